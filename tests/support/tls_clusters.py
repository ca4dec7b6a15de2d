"""Two clusters with TLS, client certificates and ACLs, and every kind of key store for the mirror's certificates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.certificates import Authority, Identity
from mirrormaker.embedded.grants import AUTHORIZER, grant

STORE, KEY = "store-secret-1", "key-secret-2"
READER, WRITER = "User:CN=reader,O=test", "User:CN=writer,O=test"
TOPIC, GROUP = "secured", "secured-mirror"

# The required ACLs of docs/security.md.
SOURCE_RIGHTS = (("Read", "topic", TOPIC), ("Read", "group", GROUP))
TARGET_RIGHTS = (("Write", "topic", TOPIC), ("Read", "topic", TOPIC), ("Create", "topic", TOPIC))


@dataclass(frozen=True)
class TlsClusters:
    """Two clusters, a certificate authority, and certificates of the mirror and of others."""

    directory: Path
    authority: Authority
    reader: Identity
    writer: Identity
    stranger: Identity
    expired: Identity
    other: Authority
    source: Cluster
    target: Cluster

    @property
    def trust(self) -> str:
        """The lines of a property file without a client certificate."""
        return f"security.protocol=SSL\nssl.truststore.location={self.authority.pem}\n"

    @property
    def jks(self) -> str:
        """The lines with two JKS stores and a password for the key, as documents print them."""
        return (
            f"security.protocol=SSL\nssl.truststore.location={self.directory}/authority.jks.jks\n"
            f"ssl.truststore.password={STORE}\nssl.keystore.location={self.directory}/reader.jks\n"
            f"ssl.keystore.password={STORE}\nssl.key.password={KEY}\n"
        )

    @property
    def pkcs12(self) -> str:
        """The lines with PKCS12 stores, one of them named .jks; the password is in another file."""
        return (
            f"security.protocol=SSL\nssl.truststore.location={self.directory}/authority.pkcs12.jks\n"
            f"ssl.truststore.password={STORE}\nssl.keystore.location={self.directory}/writer.p12\n"
            f"ssl.keystore.password=${{file:{self.directory}/secrets:writer}}\n"
        )

    def pem(self, identity: Identity) -> str:
        """Return the lines with PEM files."""
        return f"{self.trust}ssl.keystore.type=PEM\nssl.keystore.location={identity.pem}\n"

    def inline(self, identity: Identity) -> str:
        """Return the lines with key and certificates in the property file itself."""
        text = identity.pem.read_text().replace("\n", "\\\n  ")
        trusted = self.authority.pem.read_text().replace("\n", "\\n")
        return (
            f"security.protocol=SSL\nssl.truststore.certificates={trusted}\n"
            f"ssl.keystore.key={text}\n\nssl.keystore.certificate.chain={text}\n\n"
        )


@contextlib.contextmanager
def tls_clusters(directory: Path) -> Iterator[TlsClusters]:
    """Run both clusters. The mirror has all the rights that it needs."""
    authority, other = Authority(directory), Authority(directory, "other")
    long_ago = datetime.now(timezone.utc) - timedelta(days=100)
    broker = authority.issue("broker")
    reader, writer = authority.issue("reader"), authority.issue("writer")
    authority.truststore(STORE)
    authority.truststore(STORE, "PKCS12")
    reader.jks(STORE, KEY)
    writer.pkcs12(STORE)
    (directory / "secrets").write_text(f"writer={STORE}\n")
    wrong, old = authority.issue("wrong", host="elsewhere.example"), authority.issue("old", since=long_ago)
    mtls = authority.listener("MTLS", broker)
    mistaken = {
        **authority.listener("TLS12", broker), "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
        **authority.listener("WRONG", wrong), **authority.listener("OLD", old),
    }  # fmt: skip
    listeners = dict.fromkeys(("MTLS", "TLS12", "WRONG", "OLD"), "SSL")
    quiet = {"auto.create.topics.enable": "false", **AUTHORIZER}
    with (
        Cluster(settings={**quiet, **mtls, **mistaken}, name="tls-source", listeners=listeners) as source,
        Cluster(settings={**quiet, **mtls}, name="tls-target", listeners={"MTLS": "SSL"}) as target,
    ):
        source.create_topic(TOPIC, 2)
        for right in (*SOURCE_RIGHTS, ("DescribeConfigs", "topic", TOPIC)):
            grant(source, READER, *right)
        for right in TARGET_RIGHTS:
            grant(target, WRITER, *right)
        stranger, expired = other.issue("stranger"), authority.issue("expired", since=long_ago)
        yield TlsClusters(directory, authority, reader, writer, stranger, expired, other, source, target)


def write_settings(directory: Path, servers: str, lines: str) -> str:
    """Write a client's property file and return its path."""
    file = directory / "client.properties"
    file.write_text(f"bootstrap.servers={servers}\n{lines}")
    return str(file)
