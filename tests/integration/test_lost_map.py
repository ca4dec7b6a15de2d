"""The topic of the offset map is deleted, while a mirror runs and while it is stopped: it says so, and restores what it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from mirrormaker.embedded import Cluster
from mirrormaker.mapping.map_topic import TOPIC
from tests.support.asking_groups import AskedGroups
from tests.support.group_clients import commit, committed, send
from tests.support.java_writer import write_with_java
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_truth import stored_map, wrong_translations
from tests.support.reading import read


@pytest.fixture(scope="module")
def there() -> Iterator[Cluster]:
    """A target of its own: others have their maps on the shared one."""
    with Cluster(settings={"auto.create.topics.enable": "false"}, name="there", heap="256m") as cluster:
        yield cluster


def delete_map(cluster: Cluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.delete_topics([TOPIC])
    admin.close()


def test_a_map_that_is_deleted_is_stored_again_and_what_only_the_logs_show_is_rebuilt(
    source: Cluster, there: Cluster, topic_name: str, tmp_path: Path
) -> None:
    transactions, shared = f"{topic_name}.transactions", f"{topic_name}.shared"
    for name, partitions in ((transactions, 2), (shared, 1)):
        source.create_topic(name, partitions=partitions)
        there.create_topic(name, partitions=partitions)

    def write(first: int) -> None:
        codec = ("none", "lz4", "gzip")[first // 1000]  # the values tell it
        write_with_java(source, (transactions, codec, 200, "transactions"))
        for cluster, start, count in ((source, first, 200), (there, 1_000_000 + first, 30)):
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=1)
            for number in range(start, start + count):
                producer.send(shared, b"%d" % number, partition=0)
            producer.flush()
            producer.close()

    def is_mirrored(name: str) -> bool:
        found = read(there, name)
        values = {row.value for rows in found.values() for row in rows}
        return all(row.value in values for rows in read(source, name, committed=True).values() for row in rows)

    def is_exact(name: str) -> Callable[[], bool]:
        """Every offset has its exact place in the map that is stored."""

        def check() -> bool:
            found, theirs = stored_map(source, there), read(there, name)
            for partition, rows in read(source, name, committed=True).items():
                known = found.read((name, partition))
                wrong, inexact = wrong_translations(known, rows, {partition: theirs[partition]}, rows[-1].offset)
                assert not wrong, (name, len(wrong), wrong[:5])
                if inexact or known.end <= rows[-1].offset or known.first > rows[0].offset:
                    return False
            return True

        return check

    options = ("--whitelist", f"{topic_name}.*", "--num.streams", "1")
    mirror = MirrorProcess(
        tmp_path,
        source.bootstrap,
        there.bootstrap,
        *options,
        group=topic_name,
        consumer="isolation.level=read_committed\n",
    )
    with mirror:
        for round_number in range(2):
            write(round_number * 1000)
            mirror.wait_until(lambda: is_mirrored(shared) and is_mirrored(transactions), 90)
            if not round_number:
                delete_map(there)
                mirror.wait_for(f"{TOPIC} was deleted on the target: this process stores", 30)
        for name in (shared, transactions):
            mirror.wait_until(is_exact(name), 30)
        assert mirror.stop() == 0, mirror.text
        delete_map(there)
        write(2000)
        mirror.start()
        mirror.wait_for("the offset map has nothing of 3 partitions", 60)
        mirror.wait_for("the offset map of 3 partitions is rebuilt from the logs", 60)
        mirror.wait_until(lambda: is_mirrored(shared) and is_mirrored(transactions), 60)
        for name in (shared, transactions):
            mirror.wait_until(is_exact(name), 30)
        assert mirror.stop() == 0, mirror.text
        assert mirror.text.count("was deleted on the target") == mirror.text.count("has nothing of") == 1


def test_a_group_stays_where_it_was_written_although_the_map_before_it_is_gone(
    source: Cluster, there: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The map of a topic that is spread by key is not rebuilt."""
    source.create_topic(topic_name, partitions=2)
    there.create_topic(topic_name, partitions=1)
    group, options = f"{topic_name}-readers", ("--whitelist", topic_name, "--groups", f"{topic_name}.*")
    consumer = "sync.group.offsets.interval.seconds=1\n"
    mirror = MirrorProcess(
        tmp_path, source.bootstrap, there.bootstrap, *options, group=f"mirror-{topic_name}", consumer=consumer
    )

    def send_mirrored(first: int, count: int) -> None:
        send(source, topic_name, first, count)
        mirror.wait_until(lambda: len(read(there, topic_name)[0]) == first + count, 60)

    with mirror:
        send_mirrored(0, 50)
        time.sleep(1)  # the next report: a first record after it has an exact place
        send_mirrored(50, 50)
        commit(source, group, topic_name, {0: 25, 1: 25})
        mirror.wait_until(lambda: committed(there, group, topic_name) == {0: 50}, 30)
        assert mirror.stop() == 0, mirror.text
        delete_map(there)
        mirror.start()
        mirror.wait_for("the offset map has nothing of 2 partitions", 60)
        send_mirrored(100, 20)
        asked = AskedGroups(mirror, capsys, topic_name)
        mirror.wait_until(lambda: asked.states() == {"readers": "before the offset map"}, 30)
        time.sleep(3)  # three more rounds
        assert committed(there, group, topic_name) == {0: 50}
        (row,) = asked.rows().values()
        # Both partitions had 50 records before the map, and 10 of one may come before the other's first one.
        assert row["missing"] == 0
        assert 50 <= row["read_again"] <= 60
        assert mirror.stop() == 0, mirror.text
