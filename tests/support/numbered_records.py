"""Write numbered records with kafka-python: once, or at a steady rate from a thread."""

from __future__ import annotations

import random
import threading

from kafka import KafkaProducer

from mirrormaker.embedded import Cluster


def write(cluster: Cluster, topic: str, count: int, partitions: int, codec: str | None = None, start: int = 0) -> None:
    """Write numbered records with keys; some have no key, no value, or headers."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), compression_type=codec, linger_ms=5)
    for number in range(start, start + count):
        producer.send(
            topic,
            None if number % 50 == 7 else b"value-%d" % number * 5,
            None if number % 10 == 3 else b"key-%d" % (number % 31),
            headers=[("n", b"%d" % number), ("empty", b"")] if number % 5 == 0 else [],
            partition=number % partitions,
        )
    producer.flush()
    producer.close()


class Writer(threading.Thread):
    """Writes numbered records at a steady rate until `stop`. With `transactions`, about every second one is aborted."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, per_second: int = 2000, codec: str | None = "lz4",
        transactions: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self.producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap.split(","), linger_ms=5, compression_type=codec,
            transactional_id=topic if transactions else None,
        )  # fmt: skip
        self.topic, self.partitions, self.per_second, self.transactions = topic, partitions, per_second, transactions
        self._stopping = threading.Event()
        self.count = 0  # records that were written and not aborted
        if transactions:
            self.producer.init_transactions()
        self.start()

    def run(self) -> None:
        """Write records, a twentieth of a second's worth at a time."""
        number = 0
        while not self._stopping.wait(0.05):
            if self.transactions:
                self.producer.begin_transaction()
            count = self.per_second // 20
            for _ in range(count):
                key = None if number % 9 == 0 else b"k%d" % (number % 97)
                self.producer.send(self.topic, b"%d" % number * 10, key, partition=number % self.partitions)
                number += 1
            if self.transactions and random.random() < 0.5:
                self.producer.flush()
                self.producer.abort_transaction()
            else:
                if self.transactions:
                    self.producer.commit_transaction()
                self.count += count
        self.producer.flush()
        self.producer.close()

    def stop(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._stopping.set()
        self.join()
