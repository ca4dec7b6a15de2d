"""The code that runs in Spark tasks: a stream fetches batches from the source, numbers them, and sends them on."""
