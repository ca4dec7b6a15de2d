"""Kafka's data in ZooKeeper: brokers, topics, old consumer groups."""
