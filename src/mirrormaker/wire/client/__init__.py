"""Requests to a cluster: brokers and leaders, offsets, consumer groups, topic settings, permissions."""
