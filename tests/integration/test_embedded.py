"""The embedded Kafka is a real one, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from mirrormaker.embedded import Broker, Cluster, EmbeddedError, KafkaTools, java, metadata, reaper
from mirrormaker.embedded.upgrade import upgrade
from tests.support.waiting import wait_until

# Starts a cluster and a tool, prints their process ids, and runs on together with a fork until stdin ends.
OWNER = """
import os, sys
from mirrormaker.embedded import Cluster
cluster = Cluster(sys.argv[1], name="owned", directory=sys.argv[2] or None).start()
tool = cluster.tools.start(
    "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", "none"
)
print(cluster.brokers[0].pid, tool.pid, cluster.directory, flush=True)
os.fork()
sys.stdin.read()
"""


def produce(cluster: Cluster, topic: str, values: Iterable[bytes]) -> None:
    # Only running brokers: kafka-python leaks the socket of a refused connection.
    running = [f"127.0.0.1:{broker.port}" for broker in cluster.brokers if broker.pid]
    producer = KafkaProducer(bootstrap_servers=running, acks="all")
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush(30)
    producer.close()


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","), auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def leaders(broker: Broker, topic: str) -> list[int]:
    answer = metadata.ask(broker.port)
    return [] if answer is None else [partition.leader for _, partition in sorted(answer.topics[topic].items())]


def cluster_id(cluster: Cluster) -> str:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        return str(admin.describe_cluster()["cluster_id"])
    finally:
        admin.close()


def start_owner(version: str, directory: str = "") -> tuple[subprocess.Popen[str], list[int], str]:
    """Start a process with a cluster. Return the process, the ids of its children, and the directory of its data."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", OWNER, version, directory]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    broker, tool, used = process.stdout.readline().split()
    assert all(reaper.start_time(int(pid)) for pid in (broker, tool))
    return process, [int(broker), int(tool)], used


def test_a_cluster_returns_the_records_it_took(source: Cluster, topic_name: str) -> None:
    source.create_topic(topic_name, partitions=3, config={"max.message.bytes": "2000000"})
    produce(source, topic_name, [b"one", b"two", b"three"])
    assert consume(source, topic_name, 3) == [b"one", b"two", b"three"]


def test_tools_read_stdin_and_answer_on_stdout(source: Cluster, topic_name: str) -> None:
    source.create_topic(topic_name)
    where = ["--bootstrap-server", source.bootstrap, "--topic", topic_name]
    sent = source.tools.run("org.apache.kafka.tools.ConsoleProducer", *where, stdin=b"first\nsecond\n")
    assert sent.returncode == 0, sent.stderr
    got = source.tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--from-beginning", "--max-messages", "2"
    )
    assert got.stdout.split() == ["first", "second"], got.stderr


def test_a_tool_that_does_not_end_is_stopped(source: Cluster) -> None:
    with pytest.raises(EmbeddedError, match="did not end within 1 s"):
        source.tools.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", source.bootstrap, "--topic", "none"),
            timeout=1,
        )


def test_three_brokers_lead_and_survive_the_death_of_one(topic_name: str) -> None:
    with Cluster(brokers=3, name="three") as cluster:
        cluster.create_topic(topic_name, partitions=6, replication=3)
        leading = leaders(cluster.brokers[0], topic_name)
        assert sorted(set(leading)) == [1, 2, 3]
        produce(cluster, topic_name, [b"before"])

        killed = cluster.brokers[leading[0] - 1]
        other = cluster.brokers[leading[0] % 3]
        port, pid = killed.port, killed.pid
        killed.kill()
        assert killed.pid is None
        wait_until("the dead broker leads nothing", lambda: killed.id not in leaders(other, topic_name))
        produce(cluster, topic_name, [b"without"])
        killed.start()
        assert killed.port == port
        assert killed.pid not in (None, pid)
        assert consume(cluster, topic_name, 2) == [b"before", b"without"]


def test_a_killed_broker_comes_back_with_its_records(target: Cluster, topic_name: str) -> None:
    target.create_topic(topic_name)
    produce(target, topic_name, [b"kept"])
    before = target.bootstrap
    target.brokers[0].kill()
    target.brokers[0].start()
    assert target.bootstrap == before
    assert consume(target, topic_name, 1) == [b"kept"]


def test_a_paused_broker_answers_again_when_resumed(target: Cluster) -> None:
    broker = target.brokers[0]
    broker.pause()
    try:
        wait_until("the paused broker is silent", lambda: metadata.ask(broker.port) is None)
    finally:
        broker.resume()
    wait_until("the resumed broker answers", lambda: broker.knows({broker.id}))


def test_zookeeper_cluster_with_the_java_mirrormaker(topic_name: str) -> None:
    with Cluster("3.9.2", name="zookeeper") as cluster:
        assert cluster.zookeeper is not None
        cluster.create_topic(topic_name, partitions=2)
        produce(cluster, topic_name, [b"old"])
        assert consume(cluster, topic_name, 1) == [b"old"]
        helped = cluster.tools.run("kafka.tools.MirrorMaker", "--help")
        assert "--whitelist" in helped.stderr, helped


@pytest.mark.timeout(400)
def test_an_upgraded_cluster_keeps_its_id_ports_and_records_and_moves_to_kraft(topic_name: str) -> None:
    with Cluster("2.0.1", name="upgraded") as cluster:
        cluster.create_topic(topic_name)
        address, identity, written = cluster.bootstrap, cluster_id(cluster), []
        for version in ("3.9.2", "4.3.1"):
            for step in upgrade(cluster, version):
                produce(cluster, topic_name, [step.encode()])
                written.append(step.encode())
            assert {broker.version for broker in cluster.brokers} == {cluster.version} == {version}
        assert consume(cluster, topic_name, len(written)) == written
        assert (cluster.bootstrap, cluster_id(cluster), cluster.zookeeper) == (address, identity, None)


def test_nothing_is_left_of_an_owner_killed_with_sigkill() -> None:
    process, pids, directory = start_owner("4.3.1")
    with process:
        process.kill()
        wait_until("the owner's processes have ended", lambda: not any(reaper.start_time(pid) for pid in pids))
        wait_until("the owner's data is removed", lambda: not os.path.exists(directory))


def test_an_owner_that_just_ends_stops_its_cluster_in_order(tmp_path: Path) -> None:
    process, pids, directory = start_owner("3.9.2", str(tmp_path))
    with process:
        process.communicate()
    assert not any(reaper.start_time(pid) for pid in pids), "processes outlive their owner"
    assert directory == str(tmp_path)
    assert "shut down completed" in (tmp_path / "broker-1.log").read_text(), "the broker was not stopped in order"


def test_the_reaper_spares_a_process_that_got_a_dead_ones_id() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        reaper.clear_up({bystander.pid: "another start time"}, set())
        assert bystander.poll() is None
        reaper.clear_up({bystander.pid: reaper.start_time(bystander.pid)}, set())
        assert bystander.wait(5) == -signal.SIGKILL


def test_a_kept_directory_keeps_its_records(tmp_path: Path) -> None:
    cluster = Cluster(name="kept", directory=tmp_path)
    with cluster:
        cluster.create_topic("t")
        produce(cluster, "t", [b"first"])
    with cluster:
        assert consume(cluster, "t", 1) == [b"first"]


def test_a_broker_that_cannot_start_says_why() -> None:
    with pytest.raises(EmbeddedError, match=r"broker 1 ended while it started(?s:.*)num\.io\.threads"):
        Cluster(name="broken", settings={"num.io.threads": "many"}).start()


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(EmbeddedError, match="is not a Kafka version"):
        Cluster("newest")


def test_java_too_old_or_missing_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmbeddedError, match=r"is Java 8\).*install"):
        java.__wrapped__()


def test_a_version_that_does_not_exist_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(EmbeddedError, match=r"Kafka 4\.99\.0 could not be downloaded \(unresolved dependency"):
        KafkaTools("4.99.0").run("kafka.Kafka")
    assert [path.name for path in (tmp_path / "mirrormaker").iterdir()] == ["kafka-4.99.0.lock"]
