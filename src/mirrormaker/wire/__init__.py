"""Kafka as bytes: connections, the two hot requests framed by hand, record batch headers. Knows nothing of mirroring."""
