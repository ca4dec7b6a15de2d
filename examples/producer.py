"""Write a hundred records to a topic, and print where each one went.

python examples/producer.py HOST:PORT
python examples/producer.py HOST:PORT TRUSTED.pem CLIENT.pem     through TLS, with a client certificate

CLIENT.pem holds the private key and its certificates. From a Java key store:

    keytool -importkeystore -srckeystore kafka.client.keystore.jks -destkeystore client.p12 -deststoretype PKCS12
    openssl pkcs12 -in client.p12 -nodes -out client.pem
"""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaProducer

TOPIC = "test-topic"


def main(bootstrap: str, trusted: str | None = None, client: str | None = None, *, count: int = 100) -> None:
    """Write the records, and wait until all of them have arrived."""
    tls: dict[str, Any] = {}
    if trusted is not None:
        tls = {"security_protocol": "SSL", "ssl_cafile": trusted, "ssl_certfile": client, "ssl_keyfile": client}
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", **tls)
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
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
