"""A group whose committed offsets are gone: the mirror goes on from the target's own log, or refuses to mirror everything again.

Brokers delete the offsets of a group that was empty for `offsets.retention.minutes`. These tests delete the group.
"""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from mirrormaker.embedded import Cluster
from tests.support.comparing import assert_mirrored_by_key, assert_same
from tests.support.mirror_process import MirrorProcess, run_once, wait_until_gone
from tests.support.numbered_records import Writer, write
from tests.support.reading import Read, end_offsets, read
from tests.support.transactions import write_transactions
from tests.support.waiting import wait_until

COMMITTED = "isolation.level=read_committed\n"
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def forget(source: Cluster, group: str) -> None:
    """Delete the group with its offsets, as soon as it has no members any more."""
    admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
    results: list[str] = []

    def is_deleted() -> bool:
        results[:] = [str(result) for result in admin.delete_groups([group])]
        return not admin.list_group_offsets([group]).get(group)

    try:
        wait_until(f"{group} is deleted", is_deleted, 40, lambda: "\n".join(results))
    finally:
        admin.close()


def write_unique(cluster: Cluster, topic: str, first: int, count: int) -> None:
    """Write records with keys and different values to partition 0."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=5)
    for number in range(first, first + count):
        producer.send(topic, b"%s-%d" % (topic.encode(), number), b"key-%d" % (number % 17), partition=0)
    producer.flush()
    producer.close()


def contents(rows: list[Read]) -> list[tuple[object, ...]]:
    return [row.content for row in rows]


def test_a_mirror_goes_on_where_it_was_after_its_offsets_have_expired(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    plain, shared = f"{topic_name}.plain", f"{topic_name}.shared"
    stamped, committed = f"{topic_name}.stamped", f"{topic_name}.committed"
    partitions = {plain: 4, shared: 1, stamped: 1, committed: 1}
    for topic, count in partitions.items():
        source.create_topic(topic, partitions=count)
    target.create_topic(stamped, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    options = ("--whitelist", ",".join(partitions))

    def write_everything(first: int) -> None:
        write(source, plain, 400, 4, "lz4", first)
        write_unique(source, shared, first, 100)
        write_unique(source, stamped, first, 100)
        write_transactions(source, committed, first, 10)

    write_everything(0)
    mirror = run_once(tmp_path, source, target, *options, group=topic_name, consumer=COMMITTED)
    assert mirror.wait() == 0, mirror.text
    # Another program writes to the same topic.
    write_unique(target, shared, 10_000, 70)
    forget(source, topic_name)
    write_everything(400)
    mirror.output.write_text("")
    mirror = run_once(tmp_path, source, target, *options, group=topic_name, consumer=COMMITTED)
    assert mirror.wait() == 0, mirror.text

    assert f"group {topic_name} has no committed offsets for 4 partitions of {plain}; the target holds" in mirror.text
    assert f"{shared}-0; the target holds its records up to source offset 99: going on from there" in mirror.text
    assert "is new" not in mirror.text
    assert_same(source, target, plain, 800)
    (written,), (mirrored,) = (list(read(cluster, shared).values()) for cluster in (source, target))
    assert contents(mirrored)[:100] + contents(mirrored)[170:] == contents(written)
    (written,), (mirrored,) = (list(read(cluster, stamped).values()) for cluster in (source, target))
    assert [(row.key, row.value) for row in mirrored] == [(row.key, row.value) for row in written]
    (written,), (mirrored,) = read(source, committed, committed=True).values(), read(target, committed).values()
    assert contents(mirrored) == contents(written)
    assert len(mirrored) == 100


def test_a_killed_mirror_goes_on_where_it_was_after_its_offsets_are_gone(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=3)
    writer = Writer(source, topic_name, 3, 3000)
    # Nothing but the start is committed: the target holds much more than the ledger says.
    options = ("--whitelist", topic_name, "--offset.commit.interval.ms", "600000", "--progress.interval.ms", "300")
    consumer = "session.timeout.ms=6000\n"
    addresses = (source.bootstrap, target.bootstrap)
    with MirrorProcess(tmp_path, *addresses, *options, group=topic_name, consumer=consumer) as mirror:
        mirror.wait_until(lambda: min(end_offsets(target, topic_name, 3)) > 500)
        family = mirror.descendants()
        mirror.kill()
        wait_until_gone(family)
    time.sleep(0.5)
    writer.stop()
    forget(source, topic_name)
    mirror.output.write_text("")
    mirror = run_once(tmp_path, source, target, *options, group=topic_name, consumer=consumer)
    assert mirror.wait() == 0, mirror.text
    assert "the target holds their records" in mirror.text
    assert_same(source, target, topic_name, writer.count)


def test_a_new_source_starts_at_its_first_record_beside_other_writers(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=1)
    target.create_topic(topic_name, partitions=1)
    write_unique(target, topic_name, 5000, 300)
    write_unique(source, topic_name, 0, 200)
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert f"group {topic_name} is new, and 1 partitions on the target hold records already" in mirror.text
    (written,), (mirrored,) = (list(read(cluster, topic_name).values()) for cluster in (source, target))
    assert contents(mirrored)[300:] == contents(written)


def test_a_topic_by_key_is_refused_and_both_ways_on_work(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    first, second = f"{topic_name}.a", f"{topic_name}.b"
    for topic in (first, second):
        source.create_topic(topic, partitions=1)
        target.create_topic(topic, partitions=3)
        write_unique(source, topic, 0, 200)
    options = ("--whitelist", f"{first},{second}")

    def run() -> tuple[int, str]:
        (tmp_path / "mirror.log").write_text("")
        mirror = run_once(tmp_path, source, target, *options, group=topic_name)
        return mirror.wait(), mirror.text

    def count(topic: str) -> int:
        return sum(end_offsets(target, topic, 3))

    def follow(text: str, topic: str, *way: str) -> None:
        """Run the command in the mirror's own words."""
        (command,) = set(re.findall(rf"(kafka-consumer-groups .*?{re.escape(topic)}:0 .*?--execute)", text))
        words = shlex.split(command)[1:]
        at = words.index("--to-offset")
        words[at : at + 2] = way
        done = source.tools.run(GROUPS_TOOL, *words)
        assert done.returncode == 0 and "Error" not in done.stdout, done.stdout + done.stderr

    code, text = run()
    assert code == 0, text
    forget(source, topic_name)
    for topic in (first, second):
        write_unique(source, topic, 200, 100)
    code, text = run()
    assert code == 1, text
    assert f"{first}-0 stops: group {topic_name} has no committed offset for it" in text
    assert "--to-earliest" in text and "Traceback" not in text
    assert count(first) == count(second) == 200

    # One topic flows on; the other one is still refused, although the group has committed offsets now.
    follow(text, first, "--to-offset", "200")
    code, text = run()
    assert code == 1, text
    assert f"{second}-0 stops: group {topic_name} has no committed offset for it" in text
    assert count(second) == 200
    assert_mirrored_by_key(read(source, first), read(target, first))

    follow(text, second, "--to-earliest")
    code, text = run()
    assert code == 0, text
    assert count(second) == 200 + 300
    assert count(first) == 300
