"""A Kafka client in bytes: connections, logins, requests, record batches. It knows nothing of mirroring."""
