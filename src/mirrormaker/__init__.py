"""Kafka's MirrorMaker on Spark: every record once, in order, batches forwarded as they are."""

__version__ = "0.1.0"
