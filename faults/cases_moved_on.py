"""A source that no longer has what comes next: retention overtakes a stopped mirror, an unclean election cuts a log back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stage import Ends
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tests.mirror_process import MirrorProcess
from tests.reading import Read, read

from faults.stage import wait_until
from mirrormaker.embedded import Broker, Cluster, metadata

SOURCE = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}
"""Settings of the source cluster: it compacts without delay."""

_BEFORE, _AFTER, _DELETED = 500, 900, 333
"""Records that are mirrored, those that come while the mirror is stopped, and how many offsets of these are deleted."""

_SOON = 30.0
_KEYS = 40
_COMPACTS = {
    "cleanup.policy": "compact,delete", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}  # fmt: skip


@dataclass(frozen=True)
class Overtaken:
    """What retention took, and what the mirror said about it."""

    topic: str
    first: int
    last: int
    """Offsets that were deleted unseen."""
    records: int
    """How many records were there."""
    missing: int
    """Of the source's remaining records, those that are not on the target; more than 0 is a fault."""
    at_start: tuple[str, ...]
    on_the_way: tuple[str, ...]
    at_the_end: tuple[str, ...]
    output: str

    @property
    def named(self) -> tuple[str, int, int, bool, int] | None:
        """Partition, first and last offset, "at most" and count from the mirror's own words; None if it said no such thing."""
        return _named(self.on_the_way)


def overtaken(source: Cluster, target: Cluster, directory: Path, kind: str = "plain") -> Overtaken:
    """Mirror, stop, write, delete what was not mirrored, start again. `kind`: plain, compacted or transactional."""
    topic = f"overtaken-{kind}"
    source.create_topic(topic, 2, config=_COMPACTS if kind == "compacted" else None)
    target.create_topic(topic, 2)
    where = TopicPartition(topic, 0)
    write = _write_in_transactions if kind == "transactional" else _write
    write(source, topic, 0, _BEFORE)
    mirror = MirrorProcess(
        directory, source.bootstrap, target.bootstrap, "--whitelist", topic, "--exit.when.caught.up", group=topic
    )
    with mirror:
        _exits_well(mirror)
    first = _end(source, topic)
    write(source, topic, _BEFORE, _AFTER)
    if kind == "compacted":
        write(source, topic, _BEFORE + _AFTER, _KEYS)  # a new segment, so that the last one can be cleaned
        wait_until(
            "the log is compacted", lambda: len(_from(source, topic, first)) < _end(source, topic) - first, _SOON
        )
    before = first + _DELETED
    gone = [row for row in _from(source, topic, first) if row.offset < before]
    _delete(source, where, before)
    said = len(mirror.text)
    with mirror:
        _exits_well(mirror)
    output = mirror.text[said:]
    there = {row.value for row in read(target, topic)[0]}
    missing = sum(row.value not in there for row in read(source, topic)[0])
    return Overtaken(
        topic, first, before - 1, len(gone), missing, _lines("overtaken ", output), _lines("LOST ", output),
        _lines("lost: ", output), output,
    )  # fmt: skip


@dataclass(frozen=True)
class CutBack:
    """What an unclean election took, and what the mirror said about it."""

    topic: str
    first: int
    last: int
    """Offsets that were mirrored and are no longer there."""
    arrived: bool
    """The target has what the source has, in order, and between it only what the source has lost."""
    on_the_way: tuple[str, ...]
    at_the_end: tuple[str, ...]
    output: str

    @property
    def named(self) -> tuple[str, int, int, bool, int] | None:
        return _named(self.on_the_way)


def cut_back(source: Cluster, target: Cluster, directory: Path, after: int, stopped: bool = False) -> CutBack:
    """The one replica with the newest records dies, and an old one leads; `after` records follow. Three brokers at the source.

    The topic is on two of them: the third keeps the group's offsets all the while. With `stopped` the mirror sees none of it.
    """
    topic = f"cut-back-{after}{'-stopped' * stopped}"
    source.create_topic(
        topic, 1, replication=2, config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    )
    target.create_topic(topic)
    leader, follower = _replicas(source, topic)
    options = ("--whitelist", topic, "--progress.interval.ms", "1000")
    mirror = MirrorProcess(directory, source.bootstrap, target.bootstrap, *options, group=topic)
    try:
        with mirror:
            _write(source, topic, 0, _BEFORE)
            follower.kill()
            wait_until("the leader is alone in sync", lambda: _state(source, topic).in_sync == (leader.id,), _SOON)
            _write(source, topic, _BEFORE, _DELETED)
            wait_until("all is mirrored", lambda: _end(target, topic) == _BEFORE + _DELETED, _SOON)
            if stopped:
                mirror.stop()
            leader.kill()
            follower.start()
            wait_until("the old replica leads", lambda: _state(source, topic).leader == follower.id, _SOON)
            _write(source, topic, _BEFORE + _DELETED, after)
            if stopped:
                mirror.start()
            total = _BEFORE + _DELETED + after
            wait_until("the rest is mirrored", lambda: _end(target, topic) >= total, _SOON)
            mirror.stop()
    finally:
        for broker in (leader, follower):
            broker.start()
        wait_until("both are in sync", lambda: len(_state(source, topic).in_sync) == 2, _SOON)
    ours, theirs = ([row.value for row in read(cluster, topic)[0]] for cluster in (source, target))
    lost = [_value(number) for number in range(_BEFORE, _BEFORE + _DELETED)]
    arrived = theirs == ours[:_BEFORE] + lost + ours[_BEFORE:] and len(ours) == _BEFORE + after
    return CutBack(
        topic,
        _BEFORE,
        _BEFORE + _DELETED - 1,
        arrived,
        _lines("LOST ", mirror.text),
        _lines("lost: ", mirror.text),
        mirror.text,
    )


_SAID = re.compile(r"([\w.-]+-\d+): source offsets (\d+) to (\d+) .*?: (at most )?(\d+) records?\b")


def _named(lines: tuple[str, ...]) -> tuple[str, int, int, bool, int] | None:
    found = [match for line in lines if (match := _SAID.search(line))]
    if len(found) != 1:
        return None
    name, first, last, at_most, count = found[0].groups()
    return name, int(first), int(last), at_most is not None, int(count)


def _lines(mark: str, output: str) -> tuple[str, ...]:
    return tuple(line for line in output.splitlines() if mark in line)


def _value(number: int) -> bytes:
    return b"%08d" % number


def _write(cluster: Cluster, topic: str, start: int, count: int) -> None:
    """Numbered records to the first partition, and the same to the second if there is one."""
    with _producer(cluster) as producer:
        _send(producer, cluster, topic, range(start, start + count))


def _write_in_transactions(cluster: Cluster, topic: str, start: int, count: int) -> None:
    """Ten at a time; the end of each transaction takes an offset."""
    with _producer(cluster, transactional_id=topic) as producer:
        producer.init_transactions()
        for at in range(start, start + count, 10):
            producer.begin_transaction()
            _send(producer, cluster, topic, range(at, at + 10))
            producer.commit_transaction()


def _send(producer: Any, cluster: Cluster, topic: str, numbers: range) -> None:
    partitions = len(_metadata(cluster).topics[topic])
    sent = [
        producer.send(topic, _value(number), b"%d" % (number % _KEYS), partition=partition)
        for number in numbers
        for partition in range(partitions)
    ]
    producer.flush(_SOON)
    for future in sent:
        future.get(_SOON)


class _producer:
    """Only to brokers that run: kafka-python waits for the others."""

    def __init__(self, cluster: Cluster, **settings: object) -> None:
        self._producer = KafkaProducer(bootstrap_servers=_running(cluster), acks="all", linger_ms=5, **settings)

    def __enter__(self) -> Any:
        return self._producer

    def __exit__(self, *_: object) -> None:
        self._producer.close()


def _delete(cluster: Cluster, where: TopicPartition, before: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=_running(cluster))
    try:
        admin.delete_records({where: before})
    finally:
        admin.close()


def _from(cluster: Cluster, topic: str, offset: int) -> list[Read]:
    return [row for row in read(cluster, topic)[0] if row.offset >= offset]


def _end(cluster: Cluster, topic: str) -> int:
    """Of the first partition, at a cluster of one broker."""
    ends = Ends(cluster, topic, 1)
    try:
        return ends.of_partitions()[0]
    finally:
        ends.close()


def _running(cluster: Cluster) -> list[str]:
    return [f"127.0.0.1:{broker.port}" for broker in cluster.brokers if broker.pid is not None]


def _metadata(cluster: Cluster) -> metadata.Metadata:
    found = next((answer for b in cluster.brokers if b.pid and (answer := metadata.ask(b.port))), None)
    assert found is not None, f"nobody answers at {cluster.name}"
    return found


def _state(cluster: Cluster, topic: str) -> metadata.Partition:
    return _metadata(cluster).topics[topic][0]


def _replicas(cluster: Cluster, topic: str) -> tuple[Broker, Broker]:
    """Leader and follower."""
    state = _state(cluster, topic)
    (other,) = set(state.replicas) - {state.leader}
    by_id = {broker.id: broker for broker in cluster.brokers}
    return by_id[state.leader], by_id[other]


def _exits_well(mirror: MirrorProcess) -> None:
    if mirror.wait() != 0:
        raise AssertionError(f"the mirror failed:\n{mirror.text}")
