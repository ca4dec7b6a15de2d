"""`mirrormaker offsets` compared with the recorded output of the original, and with the original itself."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer

from mirrormaker.cli import call
from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.zookeeper.ensemble import ZooKeeper
from tests.support.offset_groups import GOLDEN, build, commit, recorded, without_ports
from tests.support.waiting import wait_until

TOOL = "kafka.tools.ConsumerOffsetChecker"
HEADER = "Group           Topic                          Pid Offset          logSize         Lag             Owner\n"
# Other tests cover these: no ZooKeeper at all, and groups that only Kafka knows, which the original needs --topic for.
_ELSEWHERE = ("bad-zk", "bad-zk-host", "pygroup")
# The original is run again for these, with one version, to check that the groups are those that were recorded.
_RUN_AGAIN = ("kstore", "live-owner", "unknown-group", "unknown-group-topic", "unknown-topic", "zkgroup-brokerinfo")
_VERSIONS = {"0.8.2.2": "pygroup-082", "0.9.0.1": "pygroup-09", "0.10.2.2": "pygroup-010"}


@pytest.fixture(scope="module", params=_VERSIONS)
def old(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster whose version has the original tool, with the recorded groups."""
    with Cluster(request.param, settings={"num.partitions": "2"}, name="old") as cluster:
        build(cluster)
        yield cluster


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A function that runs the command and returns its exit code, stdout and stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = call(["offsets", *args])
        return code, *capfd.readouterr()

    return run


Ask = Callable[..., tuple[int, str, str]]


def original(cluster: Cluster, *args: str) -> str:
    return cluster.tools.run(TOOL, "--zookeeper", str(cluster.zookeeper), *args, jvm=["-XX:TieredStopAtLevel=1"]).stdout


# -- compared with the original


def test_recorded_runs_read_the_same(old: Cluster, ask: Ask) -> None:
    """Compare with the recorded output. Errors have the same words, but go to stderr and exit with 1 instead of 0."""
    cases = [path.stem.removeprefix("coc-") for path in sorted((GOLDEN / old.version).glob("coc-*.txt"))]
    for case in (case for case in cases if case not in _ELSEWHERE):
        golden = recorded(old.version, case)
        code, output, errors = ask("--zookeeper", str(old.zookeeper), *golden.args)
        if golden.output.startswith("Exiting due to"):
            assert (code, output, errors) == (1, "", golden.output), case
        else:
            assert (code, without_ports(output), errors) == (0, without_ports(golden.output), ""), case
        if old.version == "0.8.2.2" and case in _RUN_AGAIN:
            assert original(old, *golden.args) == output + errors, case


def test_what_was_not_recorded_reads_the_same_too(old: Cluster, ask: Ask) -> None:
    """Compare a partition without an offset, an unknown topic beside a known one, and the addresses of brokers."""
    args = ("--group", "halfgroup", "--topic", "testtopic,nosuchtopic", "--broker-info")
    code, output, errors = ask("--zkconnect", str(old.zookeeper), *args)
    assert (code, errors) == (0, "")
    assert (
        "halfgroup       testtopic                      1   -1              9               unknown         none\n"
        in output
    )
    assert original(old, *args) == output


def test_a_group_that_only_kafka_knows_is_found_without_naming_its_topics(old: Cluster, ask: Ask) -> None:
    golden = recorded(old.version, "pygroup-topic").output
    group = _VERSIONS[old.version]
    assert ask("--zookeeper", str(old.zookeeper), "--group", group) == (0, golden, "")
    assert ask("--bootstrap-server", old.bootstrap, "--group", group) == (0, golden, "")


def test_asking_for_a_topic_does_not_create_it(old: Cluster, ask: Ask) -> None:
    assert ask("--zookeeper", str(old.zookeeper), "--group", "zkgroup", "--topic", "misspelt") == (0, HEADER, "")
    with ZooKeeper(str(old.zookeeper)) as zookeeper:
        assert zookeeper.partitions("misspelt") == []
        assert zookeeper.partitions("testtopic") == [0, 1]
        assert zookeeper.leader("testtopic", 1) == 1


@pytest.mark.parametrize("case", ["bad-zk", "bad-zk-host"])
def test_a_zookeeper_that_is_not_there_is_said_in_the_originals_words(case: str, ask: Ask) -> None:
    where = {"bad-zk": "127.0.0.1:1", "bad-zk-host": "no.such.host.invalid:2181"}[case]
    code, output, errors = ask("--zookeeper", where, "--group", "zkgroup", "--socket.timeout.ms", "300")
    assert (code, output, errors) == (1, "", recorded("0.9.0.1", case).output)


# -- clusters that the original never saw


@pytest.fixture(scope="module")
def last_with_zookeeper() -> Iterator[Cluster]:
    with Cluster("3.9.2", settings={"num.partitions": "2"}, name="last") as cluster:
        build(cluster)
        yield cluster


def test_the_last_kafka_with_zookeeper(last_with_zookeeper: Cluster, ask: Ask) -> None:
    cluster = last_with_zookeeper
    golden = recorded("0.9.0.1", "zkgroup-all")
    assert ask("--zookeeper", str(cluster.zookeeper), *golden.args) == (0, golden.output, "")
    golden = recorded("0.9.0.1", "pygroup-topic")
    assert ask("--zookeeper", f"{cluster.zookeeper}/", *golden.args) == (0, golden.output, "")


def test_a_chroot_without_brokers_is_an_error_that_says_so(last_with_zookeeper: Cluster, ask: Ask) -> None:
    where = f"{last_with_zookeeper.zookeeper}/nothing/here"
    code, output, errors = ask("--zookeeper", where, "--group", "zkgroup")
    assert (code, output) == (1, "")
    assert errors.startswith(f"Exiting due to: {where} knows no broker: ")


def test_offsets_and_settings_in_zookeeper(last_with_zookeeper: Cluster) -> None:
    cluster = last_with_zookeeper
    cluster.create_topic("with-settings", config={"retention.ms": "12345"})
    with ZooKeeper(str(cluster.zookeeper)) as zookeeper:
        assert zookeeper.topic_settings("with-settings") == {"retention.ms": "12345"}
        assert zookeeper.topic_settings("testtopic") == {}
        zookeeper.commit_offsets("new", {("a", 0): 1, ("a", 1): 2})
        zookeeper.commit_offsets("new", {("a", 1): 3, ("b", 0): 2**62})
        assert zookeeper.offsets("new") == {("a", 0): 1, ("a", 1): 3, ("b", 0): 2**62}
        assert zookeeper.owners("livegroup") == dict.fromkeys([("testtopic", 0), ("testtopic", 1)], "livegroup_c1-0")
        assert zookeeper.group_topics("zkgroup") == {"testtopic", "othertopic"}
        assert zookeeper.offsets("no/such/../group") == {}


def test_without_zookeeper(source: Cluster, topic_name: str, ask: Ask) -> None:
    source.create_topic(topic_name, partitions=2)
    commit(source, topic_name, {(topic_name, 1): 0})
    where = ("--bootstrap-server", source.bootstrap)
    code, output, errors = ask(*where, "--group", topic_name, "--json", "--broker-info")
    assert (code, errors) == (0, "")
    row = {"topic": topic_name, "log_size": 0, "owner": None, "leader": 1}
    assert json.loads(output) == {
        "group": topic_name,
        "lag": 0,
        "unknown": 1,
        "partitions": [
            {**row, "partition": 0, "offset": None, "lag": None},
            {**row, "partition": 1, "offset": 0, "lag": 0},
        ],
        "brokers": {"1": source.bootstrap},
    }
    code, output, errors = ask(*where, "--group", "nobody")
    assert (code, output) == (1, "")
    assert errors == f"mirrormaker: group nobody has neither offsets nor members on {source.bootstrap}\n"
    code, output, errors = ask(*where, "--group", "nobody", "--topic", topic_name)
    assert errors == f"mirrormaker: group nobody has nothing of topic {topic_name} on {source.bootstrap}\n"


def test_a_member_of_the_group_owns_its_partitions(source: Cluster, topic_name: str, ask: Ask) -> None:
    source.create_topic(topic_name, partitions=2)
    consumer = KafkaConsumer(
        topic_name,
        bootstrap_servers=source.bootstrap,
        group_id=topic_name,
        client_id="reader",
        enable_auto_commit=False,
        # A member that joins before it has heard of the topic gets nothing, until it asks for the metadata again.
        metadata_max_age_ms=1000,
    )
    wait_until("2 partitions", lambda: consumer.poll(100) or len(consumer.assignment()) == 2, 60)
    code, output, errors = ask("--bootstrap-server", source.bootstrap, "--group", topic_name)
    consumer.close()
    assert (code, errors) == (0, "")
    rows = [line.split() for line in output.splitlines()[1:]]
    assert [row[2:6] for row in rows] == [["0", "-1", "0", "unknown"], ["1", "-1", "0", "unknown"]]
    assert all(row[6].startswith("reader-") for row in rows)


# -- watching


@pytest.fixture(scope="module")
def watched(source: Cluster) -> str:
    """A group that has consumed 100 of 1000 records."""
    topic = f"watched-{uuid.uuid4().hex[:8]}"
    source.create_topic(topic)
    producer = KafkaProducer(bootstrap_servers=source.bootstrap)
    for _ in range(1000):
        producer.send(topic, b"x")
    producer.flush()
    producer.close()
    commit(source, topic, {(topic, 0): 100})
    return topic


def start(*args: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-u", "-m", "mirrormaker.cli", "offsets", *args]
    return child_processes.spawn(command, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "200"})


def test_watching_shows_the_pace_until_ctrl_c(source: Cluster, watched: str) -> None:
    where = ("--bootstrap-server", source.bootstrap, "--group", watched, "--watch", "0.2")
    process, plain = start(*where, "--json"), start(*where)
    try:
        assert process.stdout is not None and plain.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["lag"], first["records_per_second"], first["seconds_to_catch_up"]) == (900, None, None)
        head = [plain.stdout.readline().decode() for _ in range(3)]
        assert head[0].split() == [*HEADER.split()[:-1], "Records/s", "Caught", "up", "Owner"]
        assert head[1].split() == [watched, watched, "0", "100", "1000", "900", "-", "-", "none"]
        assert head[2] == "total: lag 900, - records/s, caught up: -\n"
        commit(source, watched, {(watched, 0): 700})
        while (line := json.loads(process.stdout.readline()))["lag"] != 300:
            assert line["lag"] == 900
        assert line["records_per_second"] > 0
        assert line["partitions"][0]["seconds_to_catch_up"] > 0
        while "total: lag 300" not in (text := plain.stdout.readline().decode()):
            assert text
        assert "caught up: in " in text
        for command in (process, plain):
            command.send_signal(signal.SIGINT)
        assert (process.wait(10), plain.wait(10)) == (0, 0)
        assert process.stderr is not None and plain.stderr is not None
        assert (process.stderr.read(), plain.stderr.read()) == (b"", b"")
    finally:
        for command in (process, plain):
            child_processes.end(command, signal.SIGKILL)
            close(command)


def test_watching_on_a_terminal_leaves_the_last_table_there(source: Cluster, watched: str) -> None:
    ours, theirs = pty.openpty()
    process = start("--bootstrap-server", source.bootstrap, "--group", watched, "--watch", stdout=theirs)
    os.close(theirs)
    try:
        text = b""
        while b"none" not in text:
            text += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert watched.encode() + b": lag " in text
    finally:
        child_processes.end(process, signal.SIGKILL)
        close(process)
        os.close(ours)


def close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_a_reader_that_stops_reading_is_no_mistake(source: Cluster, watched: str) -> None:
    process = start("--bootstrap-server", source.bootstrap, "--group", watched, "--watch", "0.1")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
