"""TLS with real brokers that require client certificates and ACLs: every kind of store, and every mistake by name."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from examples import consumer, producer

from mirrormaker.embedded.grants import grant, revoke
from mirrormaker.errors import MirrorError
from mirrormaker.settings import properties
from mirrormaker.settings.clients import target_settings
from mirrormaker.wire.client.cluster import Cluster as Client
from tests.support.comparing import assert_same
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import Writer, write
from tests.support.tls_clusters import KEY, READER, STORE, WRITER, TlsClusters, tls_clusters, write_settings


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsClusters]:
    with tls_clusters(tmp_path_factory.mktemp("stores")) as running:
        yield running


def connect(directory: Path, servers: str, lines: str) -> None:
    """Connect as `mirrormaker run` does before it starts Spark."""

    async def once() -> None:
        endpoint = target_settings(
            properties.read(write_settings(directory, servers, lines), "--producer.config")
        ).endpoint
        client = Client(endpoint)
        try:
            await client.refresh()
        finally:
            client.close()

    asyncio.run(once())


@pytest.mark.parametrize("kind", ["jks", "pkcs12", "pem", "inline"])
def test_every_kind_of_store_opens_a_connection(clusters: TlsClusters, tmp_path: Path, kind: str) -> None:
    lines = {
        "jks": clusters.jks,
        "pkcs12": clusters.pkcs12,
        "pem": clusters.pem(clusters.reader),
        "inline": clusters.inline(clusters.writer),
    }[kind]
    for listener in ("MTLS", "TLS12"):
        connect(tmp_path, clusters.source.address(listener), lines)


def test_an_empty_identification_algorithm_switches_the_host_check_off(clusters: TlsClusters, tmp_path: Path) -> None:
    lines = f"{clusters.jks}ssl.endpoint.identification.algorithm=\n"
    connect(tmp_path, clusters.source.address("WRONG"), lines)


Mistake = tuple[Callable[[TlsClusters], str], Callable[[TlsClusters], str], str]
MTLS: Callable[[TlsClusters], str] = lambda clusters: clusters.source.address("MTLS")  # noqa: E731
MISTAKES: dict[str, Mistake] = {
    "untrusted": (MTLS, lambda s: f"security.protocol=SSL\nssl.truststore.location={s.other.pem}\n",
                  "its certificate is not trusted"),
    "no truststore": (MTLS, lambda s: "security.protocol=SSL\n", "there is no ssl.truststore.location"),
    "expired": (lambda s: s.source.address("OLD"), lambda s: s.jks, "its certificate is not valid now: certificate has expired"),
    "another name": (lambda s: s.source.address("WRONG"), lambda s: s.jks, "its certificate is not for localhost"),
    "no certificate, TLS 1.3": (MTLS, lambda s: s.trust, "it wants a client certificate"),
    "no certificate, TLS 1.2": (lambda s: s.source.address("TLS12"), lambda s: s.trust, "it wants a client certificate"),
    "refused, TLS 1.3": (MTLS, lambda s: s.pem(s.stranger), "it refuses the certificate of CN=stranger,O=test"),
    "refused, TLS 1.2": (lambda s: s.source.address("TLS12"), lambda s: s.pem(s.stranger),
                         "it refuses the certificate of CN=stranger,O=test"),
    "expired client": (MTLS, lambda s: s.pem(s.expired), "it refuses the certificate of CN=expired,O=test"),
    "plain text to TLS": (MTLS, lambda s: "", "it speaks TLS"),
    "TLS to plain text": (lambda s: s.source.bootstrap, lambda s: s.jks, "that listener speaks plain text"),
    "no common protocol": (lambda s: s.source.address("TLS12"), lambda s: f"{s.jks}ssl.enabled.protocols=TLSv1.3\n",
                           "no protocol in common: this side speaks TLSv1.3"),
    "no common cipher": (MTLS, lambda s: f"{s.jks}ssl.cipher.suites=TLS_RSA_WITH_AES_128_CBC_SHA\n", "no cipher suite in common"),
    "store password": (MTLS, lambda s: s.jks.replace(STORE, "mistaken"), "the password does not open this JKS store"),
    "key password": (MTLS, lambda s: s.jks.replace(KEY, "mistaken"), "the password does not open the private key"),
    "no such store": (MTLS, lambda s: s.jks.replace("reader.jks", "gone.jks"), "gone.jks: no such file or directory"),
    "not a store": (MTLS, lambda s: s.jks.replace("reader.jks", "secrets"), "neither a JKS nor a PKCS12 store nor PEM"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_at_once(clusters: TlsClusters, tmp_path: Path, name: str) -> None:
    servers, lines, words = MISTAKES[name]
    began = time.monotonic()
    with pytest.raises((MirrorError, ConnectionError)) as error:
        connect(tmp_path, servers(clusters), lines(clusters))
    said = str(error.value)
    assert words in said
    assert time.monotonic() - began < 5
    assert not {STORE, KEY, "mistaken"} & set(said.split()), said


def test_who_is_not_let_in_waits_before_the_next_attempt(clusters: TlsClusters, tmp_path: Path) -> None:
    file = write_settings(tmp_path, clusters.source.address("MTLS"), clusters.pem(clusters.stranger))
    attempts = 0

    async def knock() -> None:
        nonlocal attempts
        client = Client(target_settings(properties.read(file, "--producer.config")).endpoint)
        while True:
            attempts += 1
            with pytest.raises(ConnectionError):
                await client.refresh()

    async def for_a_while() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(knock(), 2.5)

    asyncio.run(for_a_while())
    assert 2 <= attempts <= 5


# -- the examples


def test_what_the_tls_producer_writes_the_tls_consumer_reads(
    clusters: TlsClusters, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.source.create_topic(producer.TOPIC)
    for right in (
        ("Write", "topic", producer.TOPIC),
        ("Read", "topic", producer.TOPIC),
        ("Read", "group", "my-group"),
    ):
        grant(clusters.source, WRITER, *right)
    files = (clusters.source.address("MTLS"), str(clusters.authority.pem), str(clusters.writer.pem))
    producer.main(*files)
    assert capsys.readouterr().out.count("sent message to topic:test-topic partition:0 offset:") == 100
    consumer.main(*files, idle_ms=5000)
    assert capsys.readouterr().out.count("received topic=test-topic") == 100


# -- the whole way


def secrets_of(clusters: TlsClusters) -> list[bytes]:
    """Return the passwords, and parts of the private keys as a text would show them."""
    found = [STORE.encode(), KEY.encode()]
    for identity in (clusters.reader, clusters.writer):
        der = identity.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        found.append(base64.b64encode(der)[60:100])
    return found


def shown(mirror: MirrorProcess, events: Path) -> dict[str, bytes]:
    """Return everything of a running mirror that others may read: output, Spark's log and events, command lines."""
    files = [mirror.output, mirror.directory / "spark.log", *(file for file in events.rglob("*") if file.is_file())]
    found = {str(file): file.read_bytes() for file in files}
    found |= {f"command line of {pid}": line.encode() for pid, line in mirror.descendants().items()}
    return found


def test_a_killed_mirror_between_tls_clusters_sends_each_record_once_and_shows_no_secret(
    clusters: TlsClusters, tmp_path: Path
) -> None:
    """Mirror with exactly the ACLs of docs/security.md; one of them is missing for a while."""
    topic = "killed"
    clusters.source.create_topic(topic, 2)
    for right in (("Read", "topic", topic), ("Read", "group", topic)):
        grant(clusters.source, READER, *right)
    for right in (("Write", "topic", topic), ("Read", "topic", topic), ("Create", "topic", topic)):
        grant(clusters.target, WRITER, *right)
    write(clusters.source, topic, 3000, 2, "lz4")
    events = tmp_path / "events"
    events.mkdir()
    conf = ("--spark.conf", "spark.eventLog.enabled=true", "--spark.conf", f"spark.eventLog.dir={events}")
    options = ("--whitelist", topic, "--num.streams", "2", "--progress.interval.ms", "300")
    addresses = (clusters.source.address("MTLS"), clusters.target.address("MTLS"))
    files = {"group": topic, "consumer": clusters.jks, "producer": clusters.pkcs12}
    writer = Writer(clusters.source, topic, 2, 2000)
    with MirrorProcess(tmp_path, *addresses, *options, *conf, **files) as mirror:
        mirror.wait_for("lag", 60)
        revoke(clusters.target, WRITER, "Write", "topic", topic)
        mirror.wait_for(f"does not give {WRITER} the right to Write on topic {topic}; this grants it: kafka-acls", 30)
        grant(clusters.target, WRITER, "Write", "topic", topic)
        seen = shown(mirror, events)
        family = mirror.descendants()
        mirror.kill()
        wait_until_gone(family)
    writer.stop()
    with MirrorProcess(tmp_path, *addresses, *options, "--exit.when.caught.up", **files) as last:
        assert last.wait() == 0, last.text
    assert_same(clusters.source, clusters.target, topic, 3000 + writer.count)
    assert any("events" in name for name in seen), "Spark has written no events"
    seen |= {"the second run": last.text.encode()}
    for name, data in seen.items():
        for secret in secrets_of(clusters):
            assert secret not in data, f"{name} shows a secret"
