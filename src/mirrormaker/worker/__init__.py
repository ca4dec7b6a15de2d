"""The executor's side: one stream fetches from the source, stamps batches, and sends them to the target."""
