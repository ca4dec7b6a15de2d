"""Write a hundred records to a topic, and print where each one went: python examples/producer.py HOST:PORT"""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaProducer

TOPIC = "test-topic"


def main(bootstrap: str, count: int = 100) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    for number in range(count):
        sent = producer.send(TOPIC, key=b"key-%d" % number, value=b"message-%d" % number)
        sent.add_callback(_arrived)
        sent.add_errback(_failed)
    producer.flush()
    producer.close()


def _arrived(metadata: Any) -> None:
    print(f"sent message to topic:{metadata.topic} partition:{metadata.partition} offset:{metadata.offset}")


def _failed(error: BaseException) -> None:
    print(f"error while producing to {TOPIC}: {error}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
