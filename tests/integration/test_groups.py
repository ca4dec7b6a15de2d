"""Consumer groups of the source on the target: real consumers go on there, and every state with its way out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.downloads import jars
from mirrormaker.embedded.java_runtime import java
from tests.support.asking_groups import AskedGroups
from tests.support.group_clients import commit, committed, consume, delete_offsets, send
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import end_offsets, read
from tests.support.waiting import wait_until

INTERVAL = "sync.group.offsets.interval.seconds=1\nsource.cluster.alias=east\n"


@pytest.fixture
def mirror(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> Iterator[MirrorProcess]:
    """A mirror of one topic that keeps the groups in step whose names begin like the topic's."""
    source.create_topic(topic_name, partitions=2)
    # Offsets are not the same on both sides: the target's partitions have records of their own.
    target.create_topic(topic_name, partitions=2)
    send(target, topic_name, 1_000_000, 7)
    options = ("--whitelist", topic_name, "--groups", f"{topic_name}.*")
    with MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=f"mirror-{topic_name}", consumer=INTERVAL
    ) as process:
        yield process


def test_a_consumer_goes_on_at_the_target_without_a_record_twice(
    source: Cluster, target: Cluster, topic_name: str, mirror: MirrorProcess
) -> None:
    group = f"{topic_name}-readers"
    send(source, topic_name, 0, 2000)
    before = consume(source, topic_name, group, 900)
    here = committed(source, group, topic_name)
    expected = {0: here[0] + 4, 1: here[1] + 3}
    mirror.wait_until(lambda: committed(target, group, topic_name) == expected)
    after = [number for number in consume(target, topic_name, group, 10_000) if number < 1_000_000]
    assert sorted(before + after) == list(range(2000))
    assert java_checkpoints(target, "east", group) == {f"{topic_name}-{p}": (expected[p], "mine") for p in (0, 1)}


def java_checkpoints(target: Cluster, alias: str, group: str) -> dict[str, tuple[int, str]]:
    """Return what Java's RemoteClusterUtils translates a group's offsets to."""
    program = Path(__file__).parent.parent / "support" / "Checkpoints.java"
    line = [java(), "-cp", f"{jars(target.version)}/*", str(program), target.bootstrap, alias, group]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = [text.split(" ") for text in done.stdout.splitlines() if text.startswith("row ")]
    return {row[1]: (int(row[2]), row[3]) for row in rows}


def test_a_group_follows_its_source_until_somebody_else_owns_it(
    source: Cluster, target: Cluster, topic_name: str, mirror: MirrorProcess
) -> None:
    group = f"{topic_name}-job"
    send(source, topic_name, 0, 200)

    def shows(first: int, second: int) -> Callable[[], bool]:
        return lambda: committed(target, group, topic_name) == {0: first, 1: second}

    commit(source, group, topic_name, {0: 50, 1: 60})
    mirror.wait_until(shows(54, 63))
    # A rewind is followed while the target shows what we wrote.
    commit(source, group, topic_name, {0: 10, 1: 60})
    mirror.wait_until(shows(14, 63))
    # A group ahead of the mirror is held at its end, and moves on with it.
    commit(source, group, topic_name, {0: 150, 1: 60})
    mirror.wait_until(shows(104, 63))
    send(source, topic_name, 200, 200)
    mirror.wait_until(shows(154, 63))
    # Somebody uses the group on the target: hands off.
    commit(target, group, topic_name, {1: 5})
    mirror.wait_for(f"group {group} is not kept in step on the target: {topic_name}: owned by the target")
    commit(source, group, topic_name, {0: 20, 1: 70})
    mirror.wait_until(shows(24, 5))
    # The advice: delete the offsets there, and they are written again.
    delete_offsets(target, group, topic_name)
    mirror.wait_until(shows(24, 73))
    mirror.wait_for(f"group {group} is kept in step on the target again")


def test_a_group_with_consumers_on_the_target_is_left_alone_until_they_stop(
    source: Cluster, target: Cluster, topic_name: str, mirror: MirrorProcess
) -> None:
    group = f"{topic_name}-live"
    send(source, topic_name, 0, 100)
    consumer = KafkaConsumer(
        bootstrap_servers=target.bootstrap, group_id=group, enable_auto_commit=False, session_timeout_ms=9000
    )
    try:
        # A client that joins before it knows the topic gets no partitions, and may not join again.
        wait_until("the consumer knows the topic", lambda: bool(consumer.partitions_for_topic(topic_name)), 30)
        consumer.subscribe([topic_name])
        wait_until("the consumer has partitions", lambda: bool(consumer.poll(200) or consumer.assignment()), 30)
        commit(source, group, topic_name, {0: 30, 1: 40})
        mirror.wait_for(f"group {group} is not kept in step on the target: {topic_name}: active on the target")
        assert committed(target, group, topic_name) == {}
    finally:
        consumer.close()
    mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 34, 1: 43})


def test_a_restarted_mirror_remembers_which_offsets_are_its_own(
    source: Cluster, target: Cluster, topic_name: str, mirror: MirrorProcess
) -> None:
    group = f"{topic_name}-memory"
    send(source, topic_name, 0, 100)
    commit(source, group, topic_name, {0: 30, 1: 40})
    mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 34, 1: 43})
    mirror.kill()
    commit(source, group, topic_name, {0: 20, 1: 50})
    with mirror:
        mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 24, 1: 53})


def has_records(cluster: Cluster, topic: str, count: int) -> bool:
    """Return True if a topic of two partitions has so many records."""
    return sum(end_offsets(cluster, topic, 2)) == count


def test_topics_spread_by_key_start_at_the_earliest_place(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.create_topic(topic_name, partitions=4)
    target.create_topic(topic_name, partitions=2)
    group, bursts = f"{topic_name}-spread", (0, 300, 600, 1000)
    # Record n is in partition n % 4, at offset n // 4.
    read_to = {0: 150, 1: 150, 2: 200, 3: 250}

    def is_read(number: int) -> bool:
        return number // 4 < read_to[number % 4]

    options = ("--whitelist", topic_name, "--groups", f"{topic_name}.*")
    mirror = MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=f"mirror-{topic_name}", consumer=INTERVAL
    )
    with mirror:
        for first, end in pairwise(bursts):
            send(source, topic_name, first, end - first, partitions=4)
            mirror.wait_until(partial(has_records, target, topic_name, end), 120)
            time.sleep(1.5)  # the next report: the map has the exact place of a first record after it
        logs = {number: [int(row.value or b"") for row in rows] for number, rows in read(target, topic_name).items()}
        commit(source, group, topic_name, read_to)
        # The first record that the group still needs is of the third burst. The map knows a place in the second one before it.
        needed = {number: [is_read(n) for n in log].index(False) for number, log in logs.items()}
        later = {number: [n >= bursts[1] for n in log].index(True) for number, log in logs.items()}

        def is_in_place() -> bool:
            found = committed(target, group, topic_name)
            return found.keys() == needed.keys() and all(later[n] <= found[n] <= needed[n] for n in found)

        mirror.wait_until(is_in_place)
        row = AskedGroups(mirror, capsys, topic_name).rows()["spread"]
        assert mirror.stop() == 0, mirror.text
    rest = {number: logs[number][offset:] for number, offset in committed(target, group, topic_name).items()}
    again = [n for log in rest.values() for n in log if is_read(n)]
    assert (row["state"], row["missing"]) == ("synced", 0)
    assert 0 < len(again) <= row["read_again"] <= 1000 - bursts[1]
    after = consume(target, topic_name, group, 10_000)
    assert sorted(after) == sorted([*again, *(n for n in range(1000) if not is_read(n))])
