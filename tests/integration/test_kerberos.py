"""Whole mirrors between clusters that ask for a login: the steps that documents print, two principals, a kill, no secret shown."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.case import Row
from faults.cases_login import GROUP, TOPIC, Sides, sides, watch_logins
from faults.judge import count
from faults.load import Load
from faults.watch import Watch

from mirrormaker.embedded.certificates import Authority
from mirrormaker.embedded.grants import AUTHORIZER, grant
from mirrormaker.embedded.process_tree import command
from tests.integration.test_mirror import assert_same, write
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.secure import PASSWORD, SCRAM, add_scram_user, needs_kerberos

SESSIONS = 21.0
"""Seconds under load: two logins on each connection, and a new ticket."""
SHOWN = "--progress.interval.ms", "300"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def there(authority: Authority) -> Iterator[Sides]:
    needs_kerberos()
    broker = authority.issue("broker")
    settings = {
        **AUTHORIZER,
        **authority.listener("SAFE", broker, client_auth="none"),
        **authority.listener("CERTS", broker, client_auth="required"),
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.safe.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    }
    with sides(settings, {"SAFE": "SASL_SSL", "CERTS": "SSL"}) as found:
        for user in ("User:reader", "User:alice"):
            grant(found.source, user, "Read", "topic", TOPIC)
            grant(found.source, user, "Read", "group", GROUP)
        for operation in ("Read", "Write"):
            grant(found.target, "User:writer", operation, "topic", TOPIC)
        add_scram_user(found.source, "alice")
        yield found


def test_the_seven_steps_that_documents_print_end_in_a_running_mirror(
    there: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there.source.create_topic("my-topic", 2)
    write(there.source, "my-topic", 500, partitions=2)
    # 1 and 2: a principal for the mirror, and its keytab.
    keytab = there.kdc.add("mirrormaker/localhost")
    # 3 and 4: a login configuration on this machine, named as for Java.
    jaas = tmp_path / "kafka_mirrormaker_jaas.conf"
    jaas.write_text(f"""KafkaClient {{
    com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true
    keyTab="{keytab}"
    storeKey=true
    useTicketCache=false
    serviceName="kafka"
    principal="mirrormaker/localhost@{there.kdc.realm}";
}};
""")
    krb5 = f"-Djava.security.krb5.conf={there.kdc.config}"
    monkeypatch.setenv("KAFKA_OPTS", f"{krb5} -Djava.security.auth.login.config={jaas}")
    # 5: what it may do, on both clusters.
    allowed = ("--add", "--allow-principal", "User:mirrormaker")
    acls = [
        there.source.tools.start("org.apache.kafka.tools.AclCommand", "--bootstrap-server", cluster.bootstrap, *allowed, *what)
        for cluster, what in (
            (there.source, ("--topic", "my-topic", "--operation", "All")),
            (there.source, ("--group", "my-group", "--operation", "Read")),
            (there.target, ("--topic", "my-topic", "--operation", "All")),
        )
    ]  # fmt: skip
    assert [tool.wait(30) for tool in acls] == [0, 0, 0]
    # 6 and 7: one line in each file, and the start.
    ends = (there.source.address("KRB"), there.target.address("KRB"))
    lines = "security.protocol=SASL_PLAINTEXT\n"
    options = ("--whitelist", "my-topic", "--new.consumer", "--exit.when.caught.up")
    with MirrorProcess(tmp_path, *ends, *options, group="my-group", consumer=lines, producer=lines) as mirror:
        assert mirror.wait() == 0, mirror.text
    assert "mirrored 500 records" in mirror.text
    assert_same(there.source, there.target, "my-topic", 500)


def test_from_kerberos_to_a_cluster_that_asks_for_a_certificate(
    there: Sides, authority: Authority, tmp_path: Path
) -> None:
    topic, ours = "certified", authority.issue("mirror")
    for cluster in (there.source, there.target):
        cluster.create_topic(topic, 2)
    write(there.source, topic, 500, partitions=2)
    grant(there.source, "User:reader", "Read", "topic", topic)
    grant(there.source, "User:reader", "Read", "group", topic)
    for operation in ("Read", "Write"):
        grant(there.target, "User:CN=mirror,O=test", operation, "topic", topic)
    certificate = f"ssl.truststore.location={authority.pem}\nssl.keystore.type=PEM\nssl.keystore.location={ours.pem}\n"
    mirror = MirrorProcess(
        tmp_path, there.source.address("KRB"), there.target.address("CERTS"), "--whitelist", topic, "--exit.when.caught.up",
        "--krb5.config", str(there.kdc.config), group=topic, consumer=there.lines("reader"),
        producer=f"security.protocol=SSL\n{certificate}",
    )  # fmt: skip
    with mirror:
        assert mirror.wait() == 0, mirror.text
    assert_same(there.source, there.target, topic, 500)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a mirror has its temporary files; a short name, since sockets are among them."""
    with tempfile.TemporaryDirectory(prefix="mm-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def test_two_principals_logins_that_run_out_a_kill_and_then_a_password_through_tls(
    there: Sides, authority: Authority, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One load, and two mirrors one after the other: the second one logs in at the source in another way."""
    load, watch = (
        Load(there.source.bootstrap, TOPIC),
        Watch(there.source.bootstrap, there.target.bootstrap, TOPIC),
    )
    load.start()
    watch.start()
    try:
        with there.mirror(tmp_path, *SHOWN) as mirror:
            row = Row("reauthentication", 1)
            watch_logins(there, mirror, watch, SESSIONS, row)
            assert not row.troubles, f"{row.troubles}\n{mirror.text}"
            _assert_no_secret(there, mirror, temporary)
            family = mirror.descendants()
            mirror.kill()
            wait_until_gone(family)
        events = tmp_path / "events"
        events.mkdir()
        logged = [f"spark.eventLog.{name}" for name in ("enabled=true", f"dir=file://{events}", "compress=false")]
        login = f'{SCRAM} required username="alice" password="${{env:OUR_PASSWORD}}";'
        monkeypatch.setenv("OUR_PASSWORD", PASSWORD)
        second = MirrorProcess(
            tmp_path, there.source.address("SAFE"), there.target.address("KRB"), "--whitelist", TOPIC, "--num.streams", "2",
            "--krb5.config", str(there.kdc.config), *SHOWN, *(word for one in logged for word in ("--spark.conf", one)),
            group=GROUP, producer=there.lines("writer"),
            consumer="security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"ssl.truststore.location={authority.pem}\nsasl.jaas.config={login}\n",
        )  # fmt: skip
        with second:
            load.stop()
            second.wait_until(lambda: sum(watch.target) == sum(watch.source) == load.sent)
            monkeypatch.delenv("OUR_PASSWORD")
            assert any(file.stat().st_size for file in events.rglob("*") if file.is_file())
            _assert_no_secret(there, second, temporary, events)
            assert second.stop() == 0, second.text
    finally:
        load.stop_without_waiting()
        watch.stop()
    found = count(there.source, there.target, TOPIC)
    assert found.exact and found.records == load.sent, found


def _assert_no_secret(there: Sides, mirror: MirrorProcess, *directories: Path) -> None:
    """Not in what is printed, not on a command line, not in a file that the mirror or Spark has made, not in Spark's events."""
    assert mirror.process is not None
    secrets = [PASSWORD.encode()]
    for keytab in (there.reader, there.writer):
        secrets += [_last_key(keytab), _last_key(keytab).hex().encode()]
    family = [mirror.process.pid, *mirror.descendants()]
    said = {f"command line of {pid}": command(pid).encode() for pid in family}
    files = [mirror.output, mirror.directory / "spark.log"]
    files += [file for directory in directories for file in directory.rglob("*") if file.is_file()]
    for file in files:
        try:
            said[str(file)] = file.read_bytes()
        except FileNotFoundError:
            continue  # Spark removes its own
    assert len(said) > 5
    assert [where for where, text in said.items() if any(secret in text for secret in secrets)] == []


def _last_key(keytab: Path) -> bytes:
    """Before the number of the key, and behind its own length."""
    data = keytab.read_bytes()
    size = next(size for size in (32, 16) if data[-6 - size : -4 - size] == size.to_bytes(2, "big"))
    return data[-4 - size : -4]
