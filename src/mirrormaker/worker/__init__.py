"""The code that runs in Spark tasks: each stream fetches from the source, numbers batches, and sends them to the target."""
