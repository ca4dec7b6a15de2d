"""Connections to brokers: sockets, TLS, and the frames that go over them."""
