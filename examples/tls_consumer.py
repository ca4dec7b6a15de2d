"""As consumer.py, through TLS with a client certificate: python examples/tls_consumer.py HOST:PORT TRUSTED.pem CLIENT.pem

CLIENT.pem holds the private key and its certificates; tls_producer.py tells how to get it from a Java key store.
"""

from __future__ import annotations

import sys

from kafka import KafkaConsumer

TOPIC = "test-topic"


def main(bootstrap: str, trusted: str, client: str, idle_ms: float = float("inf")) -> None:
    """Until Ctrl+C, or until nothing has come for `idle_ms`."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap.split(","),
        # for encryption
        security_protocol="SSL",
        ssl_cafile=trusted,
        # for authentication
        ssl_certfile=client,
        ssl_keyfile=client,
        group_id="my-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=idle_ms,
    )
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
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3])
