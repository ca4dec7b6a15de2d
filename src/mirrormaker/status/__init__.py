"""What a running mirror shows: the page, the same as JSON, metrics, events."""
