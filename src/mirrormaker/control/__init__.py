"""The connection between driver and streams: orders one way, reports the other."""
