"""Mirror everything between two clusters that speak TLS, with the Java key stores that people have.

python examples/tls.py OLD:9093 NEW:9093 client.truststore.jks client.keystore.jks

The stores' password is read from the environment (STORE_PASSWORD), so that no process list shows it.
"""

from __future__ import annotations

import os
import sys

import mirrormaker


def main(old: str, new: str, truststore: str, keystore: str, topics: str = ".*") -> int:
    """Mirror until caught up; return the number of records."""
    password = os.environ["STORE_PASSWORD"]
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.location": truststore,
        "ssl.truststore.password": password,
        "ssl.keystore.location": keystore,
        "ssl.keystore.password": password,
        "ssl.key.password": password,
    }
    source = {"bootstrap.servers": old, "group.id": "mirror", **tls}
    target = {"bootstrap.servers": new, **tls}
    with mirrormaker.mirror(source, target, topics, until_caught_up=True) as mirror:
        return mirror.wait().records


if __name__ == "__main__":
    if len(sys.argv) != 5 or "STORE_PASSWORD" not in os.environ:
        sys.exit(__doc__)
    print(f"mirrored {main(*sys.argv[1:])} records")
