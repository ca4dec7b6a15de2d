"""A cluster as a client sees it: brokers, leaders, offsets, settings, permissions."""
