"""Old clusters: one mirror, which is killed once, copies five of them into a current one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.protocol.consumer import JoinGroupRequest
from kafka.protocol.metadata import ApiVersionsRequest

from mirrormaker.driver.sole_member import SoleMember
from mirrormaker.embedded import Cluster
from mirrormaker.errors import ConnectionLost, FencedError
from mirrormaker.settings.clients import SourceSettings, source_settings
from mirrormaker.settings.properties import read as read_properties
from mirrormaker.wire.client.cluster import Cluster as Client
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import Read, read

VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "1.0.0", "2.0.1")
API_VERSION = {"0.8.2.2": (0, 8, 2), "0.9.0.1": (0, 9)}  # kafka-python cannot find these out itself
PARTITIONS, ROUNDS, PER_ROUND = 3, 5, 600


@pytest.fixture(scope="module")
def sources() -> Iterator[dict[str, Cluster]]:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        clusters = {version: Cluster(version, name=f"kafka-{version}", heap="256m") for version in VERSIONS}
        for cluster in pool.map(Cluster.start, clusters.values()):
            stack.callback(cluster.stop)
        yield clusters


def topic(version: str) -> str:
    return f"from-{version}"


def fill(version: str, cluster: Cluster) -> list[list[tuple[bytes | None, bytes]]]:
    """Write a topic with every codec of that version. Return keys and values by partition."""
    written: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(PARTITIONS)]
    codecs = [None, "gzip", "snappy"] + (["lz4"] if version not in API_VERSION else [])
    cluster.create_topic(topic(version), partitions=PARTITIONS)
    for codec in codecs * ROUNDS:
        producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap, api_version=API_VERSION.get(version), compression_type=codec, linger_ms=20,
            enable_idempotence=False, acks="all",
        )  # fmt: skip
        for _ in range(PER_ROUND):
            number = sum(map(len, written))
            key = None if number % 7 == 0 else b"key-%d" % (number % 13)
            value = b"%s-%d" % (version.encode(), number)
            producer.send(topic(version), value, key, partition=number % PARTITIONS)
            written[number % PARTITIONS].append((key, value))
        producer.flush()
        producer.close()
    if version == "0.8.2.2":  # the LZ4 format of this version differs from that of later ones
        lines = [b"lz4-%d" % number for number in range(50)]
        where = ["--broker-list", cluster.bootstrap, "--topic", topic(version)]
        done = cluster.tools.run(
            "kafka.tools.ConsoleProducer",
            *where,
            "--compression-codec",
            "lz4",
            "--sync",
            stdin=b"\n".join(lines) + b"\n",
        )
        assert done.returncode == 0, done.stderr
    return written


def timestamps(version: str, cluster: Cluster) -> dict[int, list[int | None]]:
    """Return the timestamps on the source, as kafka-python reads them."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, api_version=API_VERSION.get(version))
    found: dict[int, list[int | None]] = {}
    for partition in range(PARTITIONS):
        where = TopicPartition(topic(version), partition)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end = consumer.end_offsets([where])[where]
        rows = found[partition] = []
        while consumer.position(where) < end:
            rows += [record.timestamp for batch in consumer.poll(500).values() for record in batch]
    consumer.close()
    return found


def test_five_old_clusters_are_emptied_into_one_of_today_though_the_mirror_is_killed(
    sources: dict[str, Cluster], target: Cluster, tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as pool:
        written = dict(zip(VERSIONS, pool.map(fill, VERSIONS, sources.values()), strict=True))
    mirror = MirrorProcess(
        tmp_path, sources[VERSIONS[0]].bootstrap, target.bootstrap, "--whitelist", "from-.*", "--exit.when.caught.up",
        consumer="session.timeout.ms=6000\n",
        # Small requests, one at a time, make the copy slow enough to be killed in the middle.
        producer="max.request.size=4096\nmax.in.flight.requests.per.connection=1\nbatch.size=2048\n",
    )  # fmt: skip
    for version in VERSIONS[1:]:
        file = tmp_path / f"{version}.properties"
        file.write_text(f"bootstrap.servers={sources[version].bootstrap}\ngroup.id=mirror\nsession.timeout.ms=6000\n")
        mirror.options += ("--consumer.config", str(file))
    with mirror:
        mirror.wait_until(lambda: any(read(target, topic(version)) for version in VERSIONS))
        mirror.wait_until(lambda: any(rows for version in VERSIONS for rows in read(target, topic(version)).values()))
        mirror.kill()
    mirror.start()
    try:
        assert mirror.wait() == 0, mirror.text
    finally:
        mirror.__exit__(None, None, None)
    for version in VERSIONS:
        there = read(target, topic(version))
        for partition in range(PARTITIONS):
            rows = [row for row in there[partition] if not (row.value or b"").startswith(b"lz4-")]
            assert [(row.key, row.value) for row in rows] == written[version][partition], f"{version}-{partition}"
        times = timestamps(version, sources[version])
        assert {p: [row.timestamp for row in rows] for p, rows in there.items()} == {
            p: [-1 if t is None else t for t in rows] for p, rows in times.items()
        }
        assert (version in API_VERSION) is all(row.timestamp == -1 for row in flat(there)), "formats 1 and 2 have times"
    loose = sorted(row.value or b"" for row in flat(read(target, topic("0.8.2.2"))) if b"lz4-" in (row.value or b""))
    assert loose == sorted(b"lz4-%d" % number for number in range(50))


def test_a_target_of_0_9_gets_each_record_in_the_order_of_its_key(
    source: Cluster, sources: dict[str, Cluster], topic_name: str, tmp_path: Path
) -> None:
    """The guarantee is at least once, without headers and timestamps; the target creates one partition."""
    old = sources["0.9.0.1"]
    source.create_topic(topic_name, partitions=3)
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        producer = KafkaProducer(bootstrap_servers=source.bootstrap, compression_type=codec, linger_ms=20)
        for number in range(60):
            value = b"%s-%d" % ((codec or "none").encode(), number)
            producer.send(topic_name, value, b"key-%d" % (number % 5), headers=[("h", b"x")])
        producer.flush()
        producer.close()
    mirror = MirrorProcess(
        tmp_path, source.bootstrap, old.bootstrap, "--whitelist", topic_name, "--exit.when.caught.up", group=topic_name
    )
    with mirror:
        assert mirror.wait() == 0, mirror.text
    assert "guarantee  at least once (the target is older than Kafka 0.11" in mirror.text
    consumer = KafkaConsumer(bootstrap_servers=old.bootstrap, api_version=API_VERSION["0.9.0.1"])
    where = TopicPartition(topic_name, 0)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    there: list[tuple[bytes, bytes]] = []
    while consumer.position(where) < consumer.end_offsets([where])[where]:
        there += [(record.key, record.value) for batch in consumer.poll(500).values() for record in batch]
    consumer.close()
    written = [(row.key, row.value) for row in flat(read(source, topic_name))]
    assert sorted(there) == sorted(written)
    for key in {key for key, _ in written}:
        assert [v for k, v in there if k == key] == [v for k, v in written if k == key]


def test_a_target_that_has_deleted_all_it_had_goes_on_under_another_identity(
    source: Cluster, sources: dict[str, Cluster], topic_name: str, tmp_path: Path
) -> None:
    """Brokers before 2.5 forget producer ids whose records were all deleted, and refuse their next sequence number."""
    old = sources["2.0.1"]
    source.create_topic(topic_name, partitions=1)
    mirror = MirrorProcess(tmp_path, source.bootstrap, old.bootstrap, "--whitelist", topic_name, group=topic_name)
    with mirror:
        send(source, topic_name, 0, 200)
        mirror.wait_until(lambda: [len(rows) for rows in read(old, topic_name).values()] == [200])
        admin = KafkaAdminClient(bootstrap_servers=[old.bootstrap])
        admin.delete_records({TopicPartition(topic_name, 0): 200})
        admin.close()
        assert read(old, topic_name) == {0: []}
        send(source, topic_name, 200, 300)
        mirror.wait_until(lambda: len(read(old, topic_name)[0]) == 100)
        send(source, topic_name, 300, 400)
        mirror.wait_until(lambda: len(read(old, topic_name)[0]) >= 200)
        assert mirror.stop() == 0, mirror.text
    assert [row.value for row in read(old, topic_name)[0]] == [b"%d" % number for number in range(200, 400)]
    assert "the target has deleted all records of this producer id" in mirror.text


def test_a_target_topic_without_an_id_that_is_created_again_gets_what_follows(
    source: Cluster, sources: dict[str, Cluster], topic_name: str, tmp_path: Path
) -> None:
    """Brokers before 2.8 have no topic ids: the new log is shorter than the old one was, and knows nothing of us."""
    old = sources["2.0.1"]
    source.create_topic(topic_name, partitions=1)
    mirror = MirrorProcess(tmp_path, source.bootstrap, old.bootstrap, "--whitelist", topic_name, group=topic_name)
    with mirror:
        send(source, topic_name, 0, 200)
        mirror.wait_until(lambda: [len(rows) for rows in read(old, topic_name).values()] == [200])
        admin = KafkaAdminClient(bootstrap_servers=[old.bootstrap])
        admin.delete_topics([topic_name])
        admin.close()
        mirror.wait_until(lambda: read(old, topic_name) == {0: []})  # the mirror creates what is missing
        send(source, topic_name, 200, 300)
        mirror.wait_until(lambda: len(read(old, topic_name)[0]) == 100)
        send(source, topic_name, 300, 400)
        mirror.wait_until(lambda: len(read(old, topic_name)[0]) >= 200)
        assert mirror.stop() == 0, mirror.text
    assert [row.value for row in read(old, topic_name)[0]] == [b"%d" % number for number in range(200, 400)]
    assert f"the target topic {topic_name} was deleted and created again" in mirror.text


def send(cluster: Cluster, topic: str, start: int, stop: int) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    for number in range(start, stop):
        producer.send(topic, b"%d" % number)
    producer.flush()
    producer.close()


def flat(found: dict[int, list[Read]]) -> list[Read]:
    return [row for rows in found.values() for row in rows]


@pytest.mark.parametrize(("version", "has_groups"), [("0.8.2.2", False), ("0.9.0.1", True)])
def test_a_broker_that_cannot_be_asked_is_found_out(
    sources: dict[str, Cluster], tmp_path: Path, version: str, has_groups: bool
) -> None:
    async def ask() -> None:
        client = Client(settings_for(sources[version], tmp_path, "anyone").endpoint)
        try:
            await client.refresh(["not-there-at-all"])
            assert "not-there-at-all" not in client.topics
            await client.refresh()
            assert "not-there-at-all" not in client.topics, "asking for a topic has created it"
            assert await client.knows(JoinGroupRequest) is has_groups
            assert not await client.knows(ApiVersionsRequest)
        finally:
            client.close()

    asyncio.run(ask())


def test_of_two_processes_on_a_cluster_without_groups_one_gives_way(
    sources: dict[str, Cluster], tmp_path: Path
) -> None:
    """Such a cluster cannot assign partitions to two processes."""
    settings = settings_for(sources["0.8.2.2"], tmp_path, "two")

    async def both() -> None:
        clients = [Client(settings.endpoint) for _ in range(2)]
        members = [SoleMember(client, settings, None, 1, set) for client in clients]
        assigned: asyncio.Queue[bool] = asyncio.Queue()

        async def nothing() -> None: ...

        tasks: list[asyncio.Task[None]] = []
        try:
            sources["0.8.2.2"].create_topic("shared", partitions=1)
            for client, member in zip(clients, members, strict=True):
                await client.refresh()
                member.subscribe(["shared"])
                tasks.append(asyncio.create_task(member.keep(nothing, assigned.put_nowait)))
                await assigned.get()
                assert member.generation.assigned == {("shared", 0)}
            for number in range(5):  # a process does not give way to its own commits
                await commit(members[0], number)
            await asyncio.sleep(2 * settings.heartbeat_interval_ms / 1000)
            assert not tasks[0].done() and members[0].is_certain
            await commit(members[1], 100)
            with pytest.raises(FencedError, match="only one process at a time"):
                await asyncio.wait_for(tasks[0], 10)
            assert not members[0].is_certain
            assert not tasks[1].done()
        finally:
            for task in tasks:
                task.cancel()
            for client in clients:
                client.close()

    asyncio.run(both())


async def commit(member: SoleMember, offset: int) -> None:
    """Commit an offset, and try again while the coordinator loads its offsets."""
    for _ in range(100):
        with contextlib.suppress(KafkaError, ConnectionLost):
            if not await member.commit({"shared": [(0, offset, -1, "")]}, member.generation):
                return
        await asyncio.sleep(0.1)
    raise AssertionError("no answer")


def settings_for(cluster: Cluster, directory: Path, group: str) -> SourceSettings:
    file = directory / "source.properties"
    file.write_text(f"bootstrap.servers={cluster.bootstrap}\ngroup.id={group}\nheartbeat.interval.ms=200\n")
    return source_settings(read_properties(str(file), "--consumer.config"))
