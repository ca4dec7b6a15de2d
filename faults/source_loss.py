"""Sources that lose records: by retention before they are mirrored, or by an unclean leader election."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import Read, read
from tests.support.topics import EndOffsets
from tests.support.waiting import wait_until

from mirrormaker.embedded import Broker, Cluster, metadata

SOURCE = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}  # the source compacts without delay

_BEFORE = 500  # records that are mirrored
_AFTER = 900  # records that are written while the mirror is stopped
_LOST = 333  # offsets that are lost

_LIMIT = 30.0  # seconds for everything that the cases wait for
_KEYS = 40
_COMPACTED = {
    "cleanup.policy": "compact,delete", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}  # fmt: skip

_LINES = ("LOST ", "lost: ")  # how the two lines about a loss begin: when it is found, and at the end
_LOSS = re.compile(
    r"(?P<line>LOST |lost: )(?P<name>[\w.-]+-\d+): source offsets (?P<first>\d+) to (?P<last>\d+) .*?:"
    r" (?P<at_most>at most |)(?P<count>\d+) records?\b"
)


@dataclass(frozen=True)
class SourceLoss:
    """The offsets that the source has lost, and the mirror's output."""

    name: str  # topic-partition
    first: int  # the first lost offset
    last: int  # the last lost offset
    records: int  # records at these offsets
    exact: bool  # the mirror can know the number of records; otherwise it must say "at most"
    arrived: bool  # all other records are on the target
    output: str  # the mirror's, since the start after which it found the loss

    def problems(self) -> list[str]:
        """Return everything that is wrong; nothing if the mirror reported the loss correctly."""
        count = self.last - self.first + 1
        reported = [match for line in self.output.splitlines() if (match := _LOSS.search(line))]
        wanted = (self.name, str(self.first), str(self.last), "" if self.exact else "at most ", str(count))
        fields = {match["line"]: match.group("name", "first", "last", "at_most", "count") for match in reported}
        problems = [
            f"{line}{' '.join(fields.get(line, ('is missing',)))}" for line in _LINES if fields.get(line) != wanted
        ]
        if len(reported) != len(_LINES):
            problems.append(f"the loss was reported {len(reported)} times instead of when it was found and at the end")
        if self.exact and self.records != count:
            problems.append(f"{self.records} records are lost, but {count} offsets")
        if not self.arrived:
            problems.append("the other records are not all on the target")
        return problems


def lose_by_retention(source: Cluster, target: Cluster, directory: Path, kind: str) -> SourceLoss:
    """Mirror, stop, write, delete records that were not mirrored, start again.

    `kind` is the kind of the topic: plain, compacted or transactional.
    """
    topic = f"overtaken-{kind}"
    source.create_topic(topic, 2, config=_COMPACTED if kind == "compacted" else None)
    target.create_topic(topic, 2)
    write = _write_in_transactions if kind == "transactional" else _write
    write(source, topic, 0, _BEFORE)
    mirror = MirrorProcess(
        directory, source.bootstrap, target.bootstrap, "--whitelist", topic, "--exit.when.caught.up", group=topic
    )
    with mirror:
        _check_exit(mirror)
    first = _end(source, topic)
    write(source, topic, _BEFORE, _AFTER)
    if kind == "compacted":
        time.sleep(1)  # longer than segment.ms: the next record closes the segment, which can then be compacted
        write(source, topic, _BEFORE + _AFTER, _KEYS)
        _wait_until_compacted(source, topic, first)
    start = first + _LOST
    lost = [row for row in _from(source, topic, first) if row.offset < start]
    with closing(KafkaAdminClient(bootstrap_servers=_running(source))) as admin:
        admin.delete_records({TopicPartition(topic, 0): start})
    printed = len(mirror.text)
    with mirror:
        _check_exit(mirror)
    output = mirror.text[printed:]
    if f"{topic}-0 is committed up to offset {first}, and the source begins at {start} " not in output:
        raise AssertionError(f"the mirror does not report the loss at its start:\n{output}")
    on_target = {row.value for row in read(target, topic)[0]}
    arrived = all(row.value in on_target for row in read(source, topic)[0])
    return SourceLoss(f"{topic}-0", first, start - 1, len(lost), kind == "plain", arrived, output)


def lose_by_truncation(source: Cluster, target: Cluster, directory: Path, after: int, stopped: bool) -> SourceLoss:
    """Kill the only replica with the newest records, let an old replica lead, and write `after` more records.

    The source has three brokers and the topic two replicas: the third broker keeps the group's offsets all the time.
    With `stopped` the mirror is stopped before the kill and started again at the end.
    """
    topic = f"cut-back-{after}{'-stopped' * stopped}"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    source.create_topic(topic, 1, replication=2, config=config)
    target.create_topic(topic)
    leader, follower = _replicas(source, topic)
    options = ("--whitelist", topic, "--progress.interval.ms", "1000")
    mirror = MirrorProcess(directory, source.bootstrap, target.bootstrap, *options, group=topic)
    try:
        with mirror:
            _write(source, topic, 0, _BEFORE)
            follower.kill()
            wait_until("only the leader is in sync", lambda: _state(source, topic).in_sync == (leader.id,), _LIMIT)
            _write(source, topic, _BEFORE, _LOST)
            wait_until("all records are mirrored", lambda: _end(target, topic) == _BEFORE + _LOST, _LIMIT)
            if stopped:
                mirror.stop()
            leader.kill()
            follower.start()
            wait_until("the old replica leads", lambda: _state(source, topic).leader == follower.id, _LIMIT)
            _write(source, topic, _BEFORE + _LOST, after)
            if stopped:
                # The source may end before the mirror's position: the mirror must not believe that it has caught up.
                mirror.options = (*mirror.options, "--exit.when.caught.up")
                mirror.start()
                _check_exit(mirror)
            total = _BEFORE + _LOST + after
            wait_until("the other records are mirrored", lambda: _end(target, topic) >= total, _LIMIT)
            if not stopped:
                mirror.stop()
    finally:
        for broker in (leader, follower):
            broker.start()
        wait_until("both replicas are in sync", lambda: len(_state(source, topic).in_sync) == 2, _LIMIT)
    on_source, on_target = ([row.value for row in read(cluster, topic)[0]] for cluster in (source, target))
    lost = [_value(number) for number in range(_BEFORE, _BEFORE + _LOST)]
    arrived = on_target == on_source[:_BEFORE] + lost + on_source[_BEFORE:] and len(on_source) == _BEFORE + after
    return SourceLoss(f"{topic}-0", _BEFORE, _BEFORE + _LOST - 1, _LOST, False, arrived, mirror.text)


def _value(number: int) -> bytes:
    return b"%08d" % number


def _write(cluster: Cluster, topic: str, start: int, count: int) -> None:
    """Write the same numbered records to each partition."""
    with _producer(cluster) as producer:
        _send(producer, cluster, topic, range(start, start + count))


def _write_in_transactions(cluster: Cluster, topic: str, start: int, count: int) -> None:
    """Write numbered records in transactions of ten; the end of each transaction takes an offset too."""
    with _producer(cluster, transactional_id=topic) as producer:
        producer.init_transactions()
        for first in range(start, start + count, 10):
            producer.begin_transaction()
            _send(producer, cluster, topic, range(first, first + 10))
            producer.commit_transaction()


def _send(producer: Any, cluster: Cluster, topic: str, numbers: range) -> None:
    partitions = len(_metadata(cluster).topics[topic])
    futures = [
        producer.send(topic, _value(number), b"%d" % (number % _KEYS), partition=partition)
        for number in numbers
        for partition in range(partitions)
    ]
    producer.flush(_LIMIT)
    for future in futures:
        future.get(_LIMIT)


def _producer(cluster: Cluster, **settings: object) -> Any:
    """Return a producer that knows only running brokers: kafka-python waits for the others."""
    return closing(KafkaProducer(bootstrap_servers=_running(cluster), acks="all", linger_ms=5, **settings))


def _wait_until_compacted(cluster: Cluster, topic: str, first: int) -> None:
    """Wait until there are fewer records than offsets from `first` on."""
    wait_until("the log is compacted", lambda: len(_from(cluster, topic, first)) < _end(cluster, topic) - first, _LIMIT)


def _from(cluster: Cluster, topic: str, offset: int) -> list[Read]:
    return [row for row in read(cluster, topic)[0] if row.offset >= offset]


def _end(cluster: Cluster, topic: str) -> int:
    """Return the end offset of the first partition, at a cluster of one broker."""
    with closing(EndOffsets(cluster, topic, 1)) as ends:
        return ends.by_partition()[0]


def _running(cluster: Cluster) -> list[str]:
    return [f"127.0.0.1:{broker.port}" for broker in cluster.brokers if broker.pid is not None]


def _metadata(cluster: Cluster) -> metadata.Metadata:
    answer = next((known for b in cluster.brokers if b.pid and (known := metadata.ask(b.port))), None)
    assert answer is not None, f"no broker of {cluster.name} answers"
    return answer


def _state(cluster: Cluster, topic: str) -> metadata.Partition:
    return _metadata(cluster).topics[topic][0]


def _replicas(cluster: Cluster, topic: str) -> tuple[Broker, Broker]:
    """Return the leader and the follower."""
    state = _state(cluster, topic)
    (follower,) = set(state.replicas) - {state.leader}
    by_id = {broker.id: broker for broker in cluster.brokers}
    return by_id[state.leader], by_id[follower]


def _check_exit(mirror: MirrorProcess) -> None:
    if mirror.wait() != 0:
        raise AssertionError(f"the mirror failed:\n{mirror.text}")
