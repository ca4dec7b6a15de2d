"""The status of a running mirror: the page, its JSON documents, metrics and events."""
