"""Topics of every kind for the test of the offset map. They are written all at once, and mirrors are killed meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from mirrormaker.embedded import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition as Key
from tests.support.java_writer import write_with_java
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_truth import State, disagreements, log_ends, stored_state
from tests.support.reading import Read, read
from tests.support.waiting import wait_until

_COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
}


class Kind(NamedTuple):
    """Partitions on the source and on the target, the records of the first write, and the settings of the source's writer."""

    ours: int
    theirs: int
    first: int
    writer: Mapping[str, Any] = MappingProxyType({})
    config: Mapping[str, str] = MappingProxyType({})


KINDS = {
    "plain": Kind(2, 2, 500, {"linger_ms": 5}),
    "shared": Kind(1, 1, 300, {"linger_ms": 1}),
    "transactions": Kind(2, 2, 500),
    "compacted": Kind(1, 1, 1000, {"linger_ms": 50}, _COMPACT),
    # Every second record is removed before a mirror starts: twice the gaps that are noted at once, and some.
    "backlog": Kind(1, 1, 42_000, {"linger_ms": 5}, _COMPACT),
    "stamped": Kind(1, 1, 300, {}, {"message.timestamp.type": "LogAppendTime"}),
    "tiny": Kind(1, 1, 300, {"linger_ms": 0, "batch_size": 1}),
    "fewer": Kind(8, 3, 800, {"linger_ms": 5}),
    "merged": Kind(1, 1, 300, {"linger_ms": 1}),
    "filtered": Kind(2, 2, 500, {"linger_ms": 5}),
    # The source's log begins at 150, and the target has 80 records of others in front.
    "late": Kind(1, 1, 200, {"linger_ms": 5}),
}
COMPACTED = ("compacted", "backlog")
# A mirror of its own mirrors this one.
OWN_MIRROR = "filtered"
# The kinds of which places may be ranges, and the records of each calm write.
CALM_WRITE = {"fewer": 480, "compacted": 600, "backlog": 100, "late": 20}
LATE_START, LATE_FOREIGN = 150, 80
# Others write to these too: on the target, and on the second source.
_FOREIGN = 10_000_000
_ROUND = 1_000_000  # numbers of records of one write
_CALM = 3  # from this write on no mirror is killed
_FROZEN_WITHIN = 10.0  # seconds until all kinds have been written to; it takes some tenths of one


class Kill(NamedTuple):
    """What was where when streams died: they were frozen a moment before."""

    # Kinds with records on the source that are not on the target.
    waiting: set[str]
    # The ends of the logs on the target, and the kinds of which it has records that neither ledger nor map knows.
    ends: dict[Key, int]
    unreported: set[str]
    # Of compacted kinds: the source offset after the last record that is known to be mirrored.
    known: dict[str, int]


def is_kept(row: Read) -> bool:
    """Return True if the message handler keeps a record."""
    number = int((row.value or b"").split(b"-")[0])
    return not (number % 3 == 0 or number % 100 > 90)


def _key(kind: str, number: int) -> bytes:
    """Return a key: where it comes again, compaction removes the earlier record."""
    if kind == "backlog":
        return b"key-%d" % number if number % 2 or number >= _ROUND else b"same"
    return b"key-%d" % (number if kind == "compacted" and number >= _CALM * _ROUND else number % 50)


def _paced(first: int, done: Event) -> Iterator[int]:
    """Yield numbers, some at a time, until `done`: records come and go while mirrors are killed."""
    for number in itertools.count(first):
        yield number
        if number % 10 == 9 and done.wait(0.04):
            return


def _slowly(numbers: Iterable[int]) -> Iterator[int]:
    """Yield numbers so slowly that most records come alone: then two writes have more batches than a stream notes at once."""
    for number in numbers:
        yield number
        if number % 10 == 9:
            time.sleep(0.02)


class MapStage:
    """Two sources and a target with a topic of every kind, and the mirrors between them."""

    def __init__(self, source: Cluster, second: Cluster, target: Cluster) -> None:
        self.source, self.second, self.target = source, second, target
        self.names = {kind: f"map-{uuid.uuid4().hex[:6]}.{kind}" for kind in KINDS}
        # Records of compacted kinds, as they were before the source was compacted.
        self._written: dict[str, dict[bytes, int]] = {kind: {} for kind in COMPACTED}
        # The ends of both logs of each topic at moments when everything was mirrored and reported.
        self.quiet: list[tuple[dict[Key, int], dict[Key, int]]] = []
        self.kills: list[Kill] = []
        self.disagreements: list[tuple[object, ...]] = []
        for kind, row in KINDS.items():
            source.create_topic(self.names[kind], partitions=row.ours, config=row.config)
            target.create_topic(self.names[kind], partitions=row.theirs)
        second.create_topic(self.names["merged"], partitions=1)

    # -- writing

    def _send(self, cluster: Cluster, kind: str, numbers: Iterable[int]) -> None:
        """Write records with unique values."""
        row, topic = KINDS[kind], self.names[kind]
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, **row.writer)
        written = self._written.get(kind, {})
        for number in numbers:
            value = b"%d-" % number * (5 if kind != "backlog" else 1)
            partitions = row.ours if cluster is not self.target else row.theirs
            future = producer.send(topic, value, _key(kind, number), partition=number % partitions)
            future.add_callback(lambda at, value=value: written.__setitem__(value, at.offset))
        producer.flush()
        producer.close()

    def write_backlog(self) -> None:
        """Write what is there before the mirrors start."""
        self._send(self.target, "late", range(_FOREIGN, _FOREIGN + LATE_FOREIGN))
        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(self._write_transactions, "none", KINDS["transactions"].first)]
            for kind, row in KINDS.items():
                if kind != "transactions":
                    jobs.append(pool.submit(self._send, self.source, kind, range(row.first)))
            others = range(_FOREIGN, _FOREIGN + 300)
            jobs.append(pool.submit(self._send, self.second, "merged", others))
            jobs.append(pool.submit(self._send, self.target, "shared", others[:50]))
            for job in jobs:
                job.result()
        time.sleep(1.1)  # segment.ms: the next record rolls the segment, and closed segments are compacted
        for kind in COMPACTED:
            self._send(self.source, kind, [_ROUND - 1])
        admin = KafkaAdminClient(bootstrap_servers=self.source.bootstrap)
        admin.delete_records({TopicPartition(self.names["late"], 0): LATE_START})
        admin.close()
        for kind, left in (("compacted", 900), ("backlog", 22_000)):
            wait_until(f"the log of {kind} is compacted", partial(self._has_less, kind, left), 60)

    def _has_less(self, kind: str, count: int) -> bool:
        return len(read(self.source, self.names[kind])[0]) < count

    def _write_transactions(self, codec: str, count: int) -> None:
        write_with_java(self.source, (self.names["transactions"], codec, count, "streams"))

    def write_and_kill(self, number: int, codec: str, kill: Callable[[], None]) -> None:
        """Write all kinds at once, kill streams in the middle of it, and return once nothing is written any more."""
        first, done = number * _ROUND, Event()
        jobs = [(self.source, kind, first) for kind in KINDS if kind != "transactions"]
        jobs += [(self.second, "merged", _FOREIGN + first), (self.target, "shared", _FOREIGN + first)]
        _, before = self.ends()
        with ThreadPoolExecutor(len(jobs) + 1) as pool:
            writers = [pool.submit(self._send, cluster, kind, _paced(at, done)) for cluster, kind, at in jobs]
            java = pool.submit(self._write_transactions, codec, 800)
            java.add_done_callback(lambda _: done.set())
            # Transactions come last: that program takes a second to start.
            wait_until("all kinds are mirrored", lambda: not self._behind(before, self.ends()[1]) or done.is_set(), 30)
            assert not java.done(), "transactions are written while streams are killed"
            kill()
            java.result()
            for writer in writers:
                writer.result()

    def write_some(self, number: int) -> None:
        """Write a few records of some kinds."""
        for kind, count in CALM_WRITE.items():
            numbers = range(number * _ROUND, number * _ROUND + count)
            self._send(self.source, kind, _slowly(numbers) if kind == "fewer" else numbers)

    # -- looking

    def ends(self) -> tuple[dict[Key, int], dict[Key, int]]:
        """Return the end offsets of all topics on the source and on the target."""
        return log_ends(self.source, self.target, list(self.names.values()))

    def _behind(self, before: dict[Key, int], now: dict[Key, int]) -> set[str]:
        """Return the kinds of which no partition has grown."""
        grown: defaultdict[str, int] = defaultdict(int)
        for key, end in now.items():
            grown[key[0]] += end - before[key]
        return {kind for kind, name in self.names.items() if not grown[name]}

    def ours(self, kind: str, cluster: Cluster) -> dict[int, list[Read]]:
        """Return the records of a source topic that are mirrored, or were, or will be."""
        if kind in COMPACTED:
            rows = sorted((offset, value) for value, offset in dict(self._written[kind]).items())
            return {0: [Read(0, offset, 0, None, value, ()) for offset, value in rows]}
        found = read(cluster, self.names[kind], committed=True)
        if kind == "filtered":
            return {partition: list(filter(is_kept, rows)) for partition, rows in found.items()}
        return found

    def sources(self, kind: str) -> list[Cluster]:
        """Return the clusters from which a topic comes."""
        return [self.source, self.second] if kind == "merged" else [self.source]

    def wait_until_mirrored(
        self, mirror: MirrorProcess, own: MirrorProcess, kinds: Iterable[str] = tuple(KINDS)
    ) -> None:
        """Wait until every record of these kinds is on the target, and in a report."""
        for kind in kinds:
            try:
                (own if kind == OWN_MIRROR else mirror).wait_until(lambda: not self.missing(kind))  # noqa: B023
            except AssertionError as error:
                raise AssertionError(f"{kind}: {sorted(self.missing(kind))[:5]} do not come") from error
        time.sleep(1.1)  # two reports of each stream
        self.quiet.append(self.ends())

    def missing(self, kind: str) -> set[bytes]:
        """Return the values that the source has now, and the target has not."""
        sources = [read(cluster, self.names[kind], committed=True) for cluster in self.sources(kind)]
        wanted = {row.value for found in sources for rows in found.values() for row in rows
                  if row.value and (kind != "filtered" or is_kept(row))}  # fmt: skip
        return wanted - {row.value for rows in read(self.target, self.names[kind]).values() for row in rows}

    # -- killing

    def kill(self, mirrors: Collection[MirrorProcess], *, with_process: bool) -> None:
        """Kill all streams with records under way, and with them the mirrors; then compare map, ledger and logs."""
        streams = [pid for mirror in mirrors for pid in mirror.python_workers()]
        assert len(streams) >= 5, "two streams for each consumer file of one mirror, and that of the other"
        self._signal(streams, signal.SIGSTOP)
        try:
            ours, _ = self.ends()
            # What is written from here on is in no stream. What they have sent reaches the target meanwhile.
            wait_until("records wait on the source", partial(self._all_grow, ours), _FROZEN_WITHIN)
            self.kills.append(self._seen(ours))
            for mirror in mirrors if with_process else ():
                mirror.kill()
        finally:
            self._signal(streams, signal.SIGKILL)
        self._compare()

    def _all_grow(self, before: dict[Key, int]) -> bool:
        return not self._behind(before, self.ends()[0])

    @staticmethod
    def _signal(streams: list[int], number: signal.Signals) -> None:
        for pid in streams:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _seen(self, before: dict[Key, int]) -> Kill:
        """Return what is where while the streams are frozen; the source had these ends when that began."""
        state = stored_state(self.source, self.target, self.names["plain"])
        ours, theirs = self.ends()
        waiting = set(KINDS) - self._behind(before, ours)
        known: dict[str, int] = {}
        unreported: set[str] = set()
        for kind in KINDS:
            for key in (key for key in ours if key[0] == self.names[kind] and key in state.ledger):
                stored, position = state.map.read(key), state.ledger[key]
                ends = {cut.partition: cut.offset for cut in position.cuts}
                for place in stored.places:
                    at = max(ends.get(place[1], 0), stored.translate(place, stored.end).offset)
                    if theirs[key[0], place[1]] > at and kind not in ("fewer", "shared", "merged"):
                        unreported.add(kind)
                if kind in COMPACTED:
                    known[kind] = max(position.offset, stored.end)
        return Kill(waiting, theirs, unreported, known)

    def _compare(self) -> None:
        """Note where maps and ledgers, as they are stored now, contradict each other or the logs."""
        names = {name: kind for kind, name in self.names.items()}
        for cluster, group in ((self.source, "plain"), (self.source, "filtered"), (self.second, "merged")):
            state = stored_state(cluster, self.target, self.names[group])
            for topic in sorted({key[0] for key in state.ledger}):
                found = self._contradictions(state, names[topic], cluster)
                if found and names[topic] in COMPACTED:
                    # Records that come a second time may have come between map and log.
                    found = self._contradictions(
                        stored_state(cluster, self.target, self.names[group]), names[topic], cluster
                    )
                self.disagreements += found

    def _contradictions(self, state: State, kind: str, cluster: Cluster) -> list[tuple[object, ...]]:
        theirs, found = read(self.target, self.names[kind]), list[tuple[object, ...]]()
        for number, rows in self.ours(kind, cluster).items():
            here = theirs if kind == "fewer" else {number: theirs[number]}
            wrong, ranges, known = disagreements(
                state, (self.names[kind], number), rows, here, once=kind not in COMPACTED
            )
            found += [(kind, number, *row) for row in wrong]
            # Where streams note every run, map and ledger together know each place up to the ledger's position.
            if kind not in (*COMPACTED, "fewer"):
                found += [(kind, number, *row) for row in ranges if row.offset >= known.first]
        return found
