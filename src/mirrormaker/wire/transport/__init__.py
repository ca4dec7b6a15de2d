"""Connections to brokers: bytes, TLS."""
