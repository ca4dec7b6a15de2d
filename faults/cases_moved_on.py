"""A source that no longer has what comes next: retention overtakes a stopped mirror, an unclean election cuts a log back."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stage import Ends
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import Read, read

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
class MovedOn:
    """What the source has lost, and what the mirror said about it."""

    name: str
    """The partition, as people write it."""
    first: int
    last: int
    """Offsets that are gone."""
    records: int
    """How many records were there."""
    exact: bool
    """Whether the mirror can know their number: otherwise it must say "at most"."""
    arrived: bool
    """All else is on the target."""
    output: str
    """Of the mirror, from the start that came upon it."""

    @property
    def troubles(self) -> list[str]:
        """What is wrong; nothing if the case holds."""
        count = self.last - self.first + 1
        told = [match for line in self.output.splitlines() if (match := _SAID.search(line))]
        wanted = (self.name, str(self.first), str(self.last), "" if self.exact else "at most ", str(count))
        found = {match["mark"]: match.group("name", "first", "last", "most", "count") for match in told}
        wrong = [f"{mark}{' '.join(found.get(mark, ('not said',)))}" for mark in _MARKS if found.get(mark) != wanted]
        if len(told) != len(_MARKS):
            wrong.append(f"said {len(told)} times instead of once on the way and once at the end")
        if self.exact and self.records != count:
            wrong.append(f"{self.records} records are lost, and there were {count} offsets")
        if not self.arrived:
            wrong.append("the rest is not as it must be on the target")
        return wrong


_MARKS = ("LOST ", "lost: ")
"""Of the line on the way, and the one at the end."""
_SAID = re.compile(
    r"(?P<mark>LOST |lost: )(?P<name>[\w.-]+-\d+): source offsets (?P<first>\d+) to (?P<last>\d+) .*?:"
    r" (?P<most>at most |)(?P<count>\d+) records?\b"
)


def overtaken(source: Cluster, target: Cluster, directory: Path, kind: str = "plain") -> MovedOn:
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
        time.sleep(1)  # longer than segment.ms: the next record then closes the segment, and it can be cleaned
        write(source, topic, _BEFORE + _AFTER, _KEYS)
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
    if f"{topic}-0 is committed up to offset {first}, and the source begins at {before} " not in output:
        raise AssertionError(f"nothing is said of it at the start:\n{output}")
    there = {row.value for row in read(target, topic)[0]}
    arrived = all(row.value in there for row in read(source, topic)[0])
    return MovedOn(f"{topic}-0", first, before - 1, len(gone), kind == "plain", arrived, output)


def cut_back(source: Cluster, target: Cluster, directory: Path, after: int, stopped: bool = False) -> MovedOn:
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
            if stopped:  # it must not take a source that ends before its position for one that it has caught up with
                mirror.options = (*mirror.options, "--exit.when.caught.up")
                mirror.start()
                _exits_well(mirror)
            total = _BEFORE + _DELETED + after
            wait_until("the rest is mirrored", lambda: _end(target, topic) >= total, _SOON)
            if not stopped:
                mirror.stop()
    finally:
        for broker in (leader, follower):
            broker.start()
        wait_until("both are in sync", lambda: len(_state(source, topic).in_sync) == 2, _SOON)
    ours, theirs = ([row.value for row in read(cluster, topic)[0]] for cluster in (source, target))
    lost = [_value(number) for number in range(_BEFORE, _BEFORE + _DELETED)]
    arrived = theirs == ours[:_BEFORE] + lost + ours[_BEFORE:] and len(ours) == _BEFORE + after
    return MovedOn(f"{topic}-0", _BEFORE, _BEFORE + _DELETED - 1, _DELETED, False, arrived, mirror.text)


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


def _producer(cluster: Cluster, **settings: object) -> Any:
    """Only to brokers that run: kafka-python waits for the others."""
    return closing(KafkaProducer(bootstrap_servers=_running(cluster), acks="all", linger_ms=5, **settings))


def _delete(cluster: Cluster, where: TopicPartition, before: int) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=_running(cluster))) as admin:
        admin.delete_records({where: before})


def _from(cluster: Cluster, topic: str, offset: int) -> list[Read]:
    return [row for row in read(cluster, topic)[0] if row.offset >= offset]


def _end(cluster: Cluster, topic: str) -> int:
    """Of the first partition, at a cluster of one broker."""
    with closing(Ends(cluster, topic, 1)) as ends:
        return ends.of_partitions()[0]


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
