"""TLS with real brokers that require client certificates and ACLs: every kind of store, and every mistake by name."""

from __future__ import annotations

import asyncio
import base64
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from examples import consumer, producer

from mirrormaker.cli import call
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.flow import Flow, Wiring
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.certificates import Authority, Identity
from mirrormaker.embedded.grants import AUTHORIZER, grant, revoke
from mirrormaker.errors import ClusterError, MirrorError
from mirrormaker.events.event import Event
from mirrormaker.model.topic_filter import Filter, python_matcher
from mirrormaker.settings import properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.options import Parser, add_options, parse
from mirrormaker.wire.client.cluster import Cluster as Client
from tests.support.comparing import assert_same
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import Writer, write

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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsClusters]:
    directory = tmp_path_factory.mktemp("stores")
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


def settings_of(directory: Path, servers: str, lines: str) -> str:
    file = directory / "client.properties"
    file.write_text(f"bootstrap.servers={servers}\n{lines}")
    return str(file)


def connect(directory: Path, servers: str, lines: str) -> None:
    """Connect as `mirrormaker run` does before it starts Spark."""

    async def once() -> None:
        endpoint = target_settings(
            properties.read(settings_of(directory, servers, lines), "--producer.config")
        ).endpoint
        client = Client(endpoint)
        try:
            await client.refresh()
        finally:
            client.close()

    asyncio.run(once())


@pytest.mark.parametrize("kind", ["jks", "pkcs12", "pem", "inline"])
def test_every_kind_of_store_opens_a_connection(stage: TlsClusters, tmp_path: Path, kind: str) -> None:
    lines = {
        "jks": stage.jks, "pkcs12": stage.pkcs12, "pem": stage.pem(stage.reader), "inline": stage.inline(stage.writer),
    }[kind]  # fmt: skip
    for listener in ("MTLS", "TLS12"):
        connect(tmp_path, stage.source.address(listener), lines)


def test_an_empty_identification_algorithm_switches_the_host_check_off(stage: TlsClusters, tmp_path: Path) -> None:
    lines = f"{stage.jks}ssl.endpoint.identification.algorithm=\n"
    connect(tmp_path, stage.source.address("WRONG"), lines)


Mistake = tuple[Callable[[TlsClusters], str], Callable[[TlsClusters], str], str]
MTLS: Callable[[TlsClusters], str] = lambda stage: stage.source.address("MTLS")  # noqa: E731
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
def test_a_mistake_is_named_at_once(stage: TlsClusters, tmp_path: Path, name: str) -> None:
    servers, lines, words = MISTAKES[name]
    began = time.monotonic()
    with pytest.raises((MirrorError, ConnectionError)) as error:
        connect(tmp_path, servers(stage), lines(stage))
    said = str(error.value)
    assert words in said
    assert time.monotonic() - began < 5
    assert not {STORE, KEY, "mistaken"} & set(said.split()), said


def test_who_is_not_let_in_waits_before_the_next_attempt(stage: TlsClusters, tmp_path: Path) -> None:
    file = settings_of(tmp_path, stage.source.address("MTLS"), stage.pem(stage.stranger))
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


# -- rights


def begin(stage: TlsClusters, directory: Path) -> list[str]:
    """Run a mirror up to the start of its streams. Return the texts of its events."""
    consumer, producer = directory / "source.properties", directory / "target.properties"
    consumer.write_text(f"bootstrap.servers={stage.source.address('MTLS')}\ngroup.id={GROUP}\n{stage.jks}")
    producer.write_text(f"bootstrap.servers={stage.target.address('MTLS')}\n{stage.pkcs12}")
    parser = Parser(prog="mirrormaker run", allow_abbrev=False)
    add_options(parser)
    line = ["--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", TOPIC]
    events: list[Event] = []

    async def judge() -> Callable[[str], bool]:
        return python_matcher(TOPIC)

    async def never() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        source = source_settings(properties.read(str(consumer), "--consumer.config"))
        target = target_settings(properties.read(str(producer), "--producer.config"))
        wiring = Wiring(
            parse(parser, line),
            target,
            Filter.of(TOPIC, None),
            judge,
            never,
            ControlServer(),
            directory / "spark.log",
            events.append,
        )
        flow = Flow(0, source, wiring, None)
        try:
            await flow.connect()
            running = asyncio.ensure_future(flow.run())
            await asyncio.wait([running, asyncio.ensure_future(flow.ready.wait())], return_when=asyncio.FIRST_COMPLETED)
            flow.stop()
            await running
        finally:
            flow.source.close()
            flow.target.close()

    asyncio.run(run())
    return [event.text for event in events]


def refusal(stage: TlsClusters, directory: Path) -> str:
    """Return the error for a missing right. It takes a moment until a broker knows changed ACLs."""
    deadline = time.monotonic() + 10
    while True:
        try:
            begin(stage, directory)
        except ClusterError as error:
            return str(error)
        assert time.monotonic() < deadline, "the mirror has all rights"


def begin_within(stage: TlsClusters, directory: Path, seconds: float = 10) -> list[str]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return begin(stage, directory)
        except ClusterError:
            if time.monotonic() > deadline:
                raise


def without_the_topic(target: Cluster) -> None:
    """Delete the topic, so that the mirror must create it."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    try:
        if TOPIC in admin.list_topics():
            admin.delete_topics([TOPIC])
        while TOPIC in admin.list_topics():
            time.sleep(0.05)
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("side", "right"),
    [*(("source", right) for right in SOURCE_RIGHTS), *(("target", right) for right in TARGET_RIGHTS)],
)
def test_a_right_that_is_missing_is_named_with_the_command_that_grants_it(
    stage: TlsClusters, tmp_path: Path, side: str, right: tuple[str, str, str]
) -> None:
    cluster: Cluster = getattr(stage, side)
    who, (operation, kind, name) = READER if side == "source" else WRITER, right
    if operation == "Create":
        without_the_topic(stage.target)
    else:
        begin_within(stage, tmp_path)
    revoke(cluster, who, *right)
    try:
        said = refusal(stage, tmp_path)
    finally:
        grant(cluster, who, *right)
    servers = cluster.address("MTLS")
    assert f"{servers} does not give {who} the right to" in said
    command = said.partition("this grants it: ")[2]
    assert command.startswith(f"kafka-acls --bootstrap-server {servers} --add --allow-principal {who} --operation")
    assert f"--operation {operation}" in command
    assert command.endswith(f"--{kind} {name}")


def test_the_command_grants_what_it_says(stage: TlsClusters, tmp_path: Path) -> None:
    revoke(stage.source, READER, *SOURCE_RIGHTS[1])
    words = shlex.split(refusal(stage, tmp_path).partition("this grants it: ")[2])
    words[words.index("--bootstrap-server") + 1] = (
        stage.source.bootstrap
    )  # the listener at which an administrator may connect
    done = stage.source.tools.run("org.apache.kafka.tools.AclCommand", *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    begin_within(stage, tmp_path)


def test_settings_that_may_not_be_read_are_not_taken_over_and_a_line_says_so(
    stage: TlsClusters, tmp_path: Path
) -> None:
    right = ("DescribeConfigs", "topic", TOPIC)
    revoke(stage.source, READER, *right)
    try:
        deadline, said = time.monotonic() + 10, ""
        while "is created with the target's own settings" not in said:
            assert time.monotonic() < deadline, said
            without_the_topic(stage.target)
            said = "\n".join(begin_within(stage, tmp_path))
    finally:
        grant(stage.source, READER, *right)
    assert f"{READER} the right to DescribeConfigs on topic {TOPIC}" in said


def test_the_offset_checker_comes_in_the_same_way(
    stage: TlsClusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_within(stage, tmp_path)  # the mirror commits the start of each partition
    servers = stage.source.address("MTLS")
    file = settings_of(tmp_path, servers, stage.jks)
    assert call(["offsets", "--bootstrap-server", servers, "--group", GROUP, "--command-config", file]) == 0
    assert capsys.readouterr().out.count(f" {TOPIC} ") == 2


# -- the examples


def test_what_the_tls_producer_writes_the_tls_consumer_reads(
    stage: TlsClusters, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.source.create_topic(producer.TOPIC)
    for right in (
        ("Write", "topic", producer.TOPIC),
        ("Read", "topic", producer.TOPIC),
        ("Read", "group", "my-group"),
    ):
        grant(stage.source, WRITER, *right)
    files = (stage.source.address("MTLS"), str(stage.authority.pem), str(stage.writer.pem))
    producer.main(*files)
    assert capsys.readouterr().out.count("sent message to topic:test-topic partition:0 offset:") == 100
    consumer.main(*files, idle_ms=5000)
    assert capsys.readouterr().out.count("received topic=test-topic") == 100


# -- the whole way


def secrets_of(stage: TlsClusters) -> list[bytes]:
    """Return the passwords, and parts of the private keys as a text would show them."""
    found = [STORE.encode(), KEY.encode()]
    for identity in (stage.reader, stage.writer):
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
    stage: TlsClusters, tmp_path: Path
) -> None:
    """Mirror with exactly the ACLs of docs/security.md; one of them is missing for a while."""
    topic = "killed"
    stage.source.create_topic(topic, 2)
    for right in (("Read", "topic", topic), ("Read", "group", topic)):
        grant(stage.source, READER, *right)
    for right in (("Write", "topic", topic), ("Read", "topic", topic), ("Create", "topic", topic)):
        grant(stage.target, WRITER, *right)
    write(stage.source, topic, 3000, 2, "lz4")
    events = tmp_path / "events"
    events.mkdir()
    conf = ("--spark.conf", "spark.eventLog.enabled=true", "--spark.conf", f"spark.eventLog.dir={events}")
    options = ("--whitelist", topic, "--num.streams", "2", "--progress.interval.ms", "300")
    addresses = (stage.source.address("MTLS"), stage.target.address("MTLS"))
    files = {"group": topic, "consumer": stage.jks, "producer": stage.pkcs12}
    writer = Writer(stage.source, topic, 2, 2000)
    with MirrorProcess(tmp_path, *addresses, *options, *conf, **files) as mirror:
        mirror.wait_for("lag", 60)
        revoke(stage.target, WRITER, "Write", "topic", topic)
        mirror.wait_for(f"does not give {WRITER} the right to Write on topic {topic}; this grants it: kafka-acls", 30)
        grant(stage.target, WRITER, "Write", "topic", topic)
        seen = shown(mirror, events)
        family = mirror.descendants()
        mirror.kill()
        wait_until_gone(family)
    writer.stop()
    with MirrorProcess(tmp_path, *addresses, *options, "--exit.when.caught.up", **files) as last:
        assert last.wait() == 0, last.text
    assert_same(stage.source, stage.target, topic, 3000 + writer.count)
    assert any("events" in name for name in seen), "Spark has written no events"
    seen |= {"the second run": last.text.encode()}
    for name, data in seen.items():
        for secret in secrets_of(stage):
            assert secret not in data, f"{name} shows a secret"
