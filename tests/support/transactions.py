"""Transactions on a topic, every second one of which is aborted."""

from __future__ import annotations

from kafka import KafkaProducer

from mirrormaker.embedded import Cluster


def write_transactions(cluster: Cluster, topic: str, first: int = 0, count: int = 6) -> None:
    """Write transactions of ten records each to partition 0; abort those with an odd number."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic, linger_ms=0)
    producer.init_transactions()
    for number in range(first, first + count):
        producer.begin_transaction()
        for record in range(10):
            producer.send(topic, b"%d-%d" % (number, record), partition=0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
