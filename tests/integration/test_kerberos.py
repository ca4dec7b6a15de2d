"""Mirrors between clusters with logins: the documented steps, expiring logins, a kill, no secret shown."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrormaker.embedded.certificates import Authority
from mirrormaker.embedded.grants import AUTHORIZER, grant
from mirrormaker.embedded.process_tree import command
from tests.support.comparing import assert_same
from tests.support.counting import count
from tests.support.kerberos_clusters import GROUP, TOPIC, KerberosClusters, kerberos_clusters, watch_logins
from tests.support.load import Load
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import write
from tests.support.offset_watch import OffsetWatch
from tests.support.secure_cluster import PASSWORD, SCRAM, add_scram_user, needs_kerberos

SESSIONS = 21.0  # seconds under load: two logins on each connection, and a new ticket
SHOWN = "--progress.interval.ms", "300"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def clusters(authority: Authority) -> Iterator[KerberosClusters]:
    needs_kerberos()
    broker = authority.issue("broker")
    settings = {
        **AUTHORIZER,
        **authority.listener("SAFE", broker, client_auth="none"),
        **authority.listener("CERTS", broker, client_auth="required"),
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    }
    with kerberos_clusters(settings, {"SAFE": "SASL_SSL", "CERTS": "SSL"}) as running:
        for user in ("User:reader", "User:alice"):
            grant(running.source, user, "Read", "topic", TOPIC)
            grant(running.source, user, "Read", "group", GROUP)
        for operation in ("Read", "Write"):
            grant(running.target, "User:writer", operation, "topic", TOPIC)
        add_scram_user(running.source, "alice")
        yield running


def test_the_seven_steps_that_documents_print_end_in_a_running_mirror(
    clusters: KerberosClusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.source.create_topic("my-topic", 2)
    write(clusters.source, "my-topic", 500, partitions=2)
    # Steps 1 and 2: a principal for the mirror, and its keytab.
    keytab = clusters.kdc.add("mirrormaker/localhost")
    # Steps 3 and 4: a JAAS login configuration on this machine, named in KAFKA_OPTS as for Java.
    jaas = tmp_path / "kafka_mirrormaker_jaas.conf"
    jaas.write_text(f"""KafkaClient {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true
    keyTab="{keytab}"
    storeKey=true
    useTicketCache=false
    serviceName="kafka"
    principal="mirrormaker/localhost@{clusters.kdc.realm}";
}};
""")
    krb5 = f"-Djava.security.krb5.conf={clusters.kdc.config}"
    monkeypatch.setenv("KAFKA_OPTS", f"{krb5} -Djava.security.auth.login.config={jaas}")
    # Step 5: ACLs on both clusters.
    allowed = ("--add", "--allow-principal", "User:mirrormaker")
    acls = [
        clusters.source.tools.start("org.apache.kafka.tools.AclCommand", "--bootstrap-server", cluster.bootstrap, *allowed, *what)
        for cluster, what in (
            (clusters.source, ("--topic", "my-topic", "--operation", "All")),
            (clusters.source, ("--group", "my-group", "--operation", "Read")),
            (clusters.target, ("--topic", "my-topic", "--operation", "All")),
        )
    ]  # fmt: skip
    assert [tool.wait(30) for tool in acls] == [0, 0, 0]
    # Steps 6 and 7: one line in each property file, and the start.
    addresses = (clusters.source.address("KRB"), clusters.target.address("KRB"))
    lines = "security.protocol=SASL_PLAINTEXT\n"
    options = ("--whitelist", "my-topic", "--new.consumer", "--exit.when.caught.up")
    with MirrorProcess(tmp_path, *addresses, *options, group="my-group", consumer=lines, producer=lines) as mirror:
        assert mirror.wait() == 0, mirror.text
    assert "mirrored 500 records" in mirror.text
    assert_same(clusters.source, clusters.target, "my-topic", 500)


def test_from_kerberos_to_a_cluster_that_asks_for_a_certificate(
    clusters: KerberosClusters, authority: Authority, tmp_path: Path
) -> None:
    topic, ours = "certified", authority.issue("mirror")
    for cluster in (clusters.source, clusters.target):
        cluster.create_topic(topic, 2)
    write(clusters.source, topic, 500, partitions=2)
    grant(clusters.source, "User:reader", "Read", "topic", topic)
    grant(clusters.source, "User:reader", "Read", "group", topic)
    for operation in ("Read", "Write"):
        grant(clusters.target, "User:CN=mirror,O=test", operation, "topic", topic)
    certificate = f"ssl.truststore.location={authority.pem}\nssl.keystore.type=PEM\nssl.keystore.location={ours.pem}\n"
    mirror = MirrorProcess(
        tmp_path, clusters.source.address("KRB"), clusters.target.address("CERTS"), "--whitelist", topic, "--exit.when.caught.up",
        "--krb5.config", str(clusters.kdc.config), group=topic, consumer=clusters.login("reader"),
        producer=f"security.protocol=SSL\n{certificate}",
    )  # fmt: skip
    with mirror:
        assert mirror.wait() == 0, mirror.text
    assert_same(clusters.source, clusters.target, topic, 500)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for a mirror's temporary files. Its name is short, because sockets are among them."""
    with tempfile.TemporaryDirectory(prefix="mm-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def test_two_principals_logins_that_run_out_a_kill_and_then_a_password_through_tls(
    clusters: KerberosClusters, authority: Authority, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run two mirrors one after the other under one load; the second one logs in to the source with a password."""
    load, watch = (
        Load(clusters.source.bootstrap, TOPIC),
        OffsetWatch(clusters.source.bootstrap, clusters.target.bootstrap, TOPIC),
    )
    load.start()
    watch.start()
    try:
        with clusters.mirror(tmp_path, *SHOWN) as mirror:
            report = watch_logins(clusters, mirror, watch, SESSIONS)
            assert not report.problems, f"{report.problems}\n{mirror.text}"
            _assert_no_secret(clusters, mirror, temporary)
            family = mirror.descendants()
            mirror.kill()
            wait_until_gone(family)
        events = tmp_path / "events"
        events.mkdir()
        logged = [f"spark.eventLog.{name}" for name in ("enabled=true", f"dir=file://{events}", "compress=false")]
        login = f'{SCRAM} required username="alice" password="${{env:OUR_PASSWORD}}";'
        monkeypatch.setenv("OUR_PASSWORD", PASSWORD)
        second = MirrorProcess(
            tmp_path, clusters.source.address("SAFE"), clusters.target.address("KRB"), "--whitelist", TOPIC, "--num.streams", "2",
            "--krb5.config", str(clusters.kdc.config), *SHOWN, *(word for one in logged for word in ("--spark.conf", one)),
            group=GROUP, producer=clusters.login("writer"),
            consumer="security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"ssl.truststore.location={authority.pem}\nsasl.jaas.config={login}\n",
        )  # fmt: skip
        with second:
            load.stop()
            second.wait_until(lambda: sum(watch.target) == sum(watch.source) == load.sent)
            monkeypatch.delenv("OUR_PASSWORD")
            assert any(file.stat().st_size for file in events.rglob("*") if file.is_file())
            _assert_no_secret(clusters, second, temporary, events)
            assert second.stop() == 0, second.text
    finally:
        load.stop_without_waiting()
        watch.stop()
    found = count(clusters.source, clusters.target, TOPIC)
    assert found.is_exact and found.records == load.sent, found


def _assert_no_secret(clusters: KerberosClusters, mirror: MirrorProcess, *directories: Path) -> None:
    """Check output, command lines, files of the mirror and of Spark, and Spark's events for secrets."""
    assert mirror.process is not None
    secrets = [PASSWORD.encode()]
    for keytab in (clusters.reader, clusters.writer):
        secrets += [_last_key(keytab), _last_key(keytab).hex().encode()]
    family = [mirror.process.pid, *mirror.descendants()]
    texts = {f"command line of {pid}": command(pid).encode() for pid in family}
    files = [mirror.output, mirror.directory / "spark.log"]
    files += [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    for file in files:
        try:
            texts[str(file)] = file.read_bytes()
        except FileNotFoundError:
            continue  # Spark removes files while it runs
    assert len(texts) > 5
    assert [where for where, text in texts.items() if any(secret in text for secret in secrets)] == []


def _last_key(keytab: Path) -> bytes:
    """Return the last key in a keytab. Its length stands before it, and its version number after it."""
    data = keytab.read_bytes()
    size = next(size for size in (32, 16) if data[-6 - size : -4 - size] == size.to_bytes(2, "big"))
    return data[-4 - size : -4]
