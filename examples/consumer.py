"""Read a topic as one member of a group, and commit what was read.

python examples/consumer.py HOST:PORT
python examples/consumer.py HOST:PORT TRUSTED.pem CLIENT.pem     through TLS, with a client certificate (see producer.py)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer

TOPIC = "test-topic"


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Prints the partitions that this member gets and gives back."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        print(f"revoked: {sorted(revoked)}")

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        print(f"assigned: {sorted(assigned)}")


def main(
    bootstrap: str, trusted: str | None = None, client: str | None = None, *, idle_ms: float = float("inf")
) -> None:
    """Read until Ctrl+C, or until nothing has come for `idle_ms`."""
    tls: dict[str, Any] = {}
    if trusted is not None:
        tls = {"security_protocol": "SSL", "ssl_cafile": trusted, "ssl_certfile": client, "ssl_keyfile": client}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id="my-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=idle_ms,
        **tls,
    )
    consumer.subscribe([TOPIC], listener=Listener())
    try:
        for record in consumer:
            print(
                f"received topic={record.topic} partition={record.partition} offset={record.offset}"
                f" key={record.key!r} value={record.value!r}"
            )
            consumer.commit_async()
        consumer.commit()
    except KeyboardInterrupt:
        consumer.commit()
    finally:
        consumer.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
