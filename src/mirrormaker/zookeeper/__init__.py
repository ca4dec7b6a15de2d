"""What Kafka keeps in ZooKeeper."""
