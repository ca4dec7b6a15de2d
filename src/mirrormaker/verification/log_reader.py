"""Reading a range of a partition's log, as columns, from inside a Spark task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import (
    OUTAGE,
    BadFrame,
    BrokerError,
    ClusterError,
    CorruptBatch,
    DataError,
    describe,
    raise_for,
)
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batches, split
from mirrormaker.wire.records.columns import Records, unpack_some
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.lanes import flag_data

T = TypeVar("T")

_ANSWER = 4 << 20  # bytes of one answer; two are held at a time
_PIECE = 4 << 20  # bytes of unpacked records that are looked at together
_UNPACKED = 1 << 30  # bytes that a single batch may become: more than any broker takes
_PER_RECORD = 1024  # bytes asked for where only a few records are wanted
_PATIENCE = 30.0  # seconds without any answer: a broker is restarted in less
_PAUSE = 0.2  # seconds before asking again; metadata is refreshed meanwhile
_MAX_WAIT_MS = 100  # everything that is asked for is there already


class Piece(NamedTuple):
    """Some records that follow each other; who wrote each, and whether the broker's clock stamped it."""

    records: Records
    producers: Ints
    stamped: npt.NDArray[np.bool_]

    def part(self, which: slice | npt.NDArray[np.bool_]) -> Piece:
        return Piece(self.records[which], self.producers[which], self.stamped[which])


class Logs:
    """One cluster, read by one task: a loop of its own, and the next answer asked for before the last is looked at."""

    def __init__(self, endpoint: Endpoint, read_committed: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self._cluster = Cluster(endpoint)
        self._read_committed = read_committed

    def close(self) -> None:
        self._cluster.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, topic: str, partition: int, start: int, stop: int) -> Iterator[Piece]:
        """The data records from `start` up to `stop`; what retention has taken meanwhile is passed over."""
        at = start
        ahead: tuple[int, asyncio.Future[memoryview]] | None = None
        heard = time.monotonic()
        while at < stop:
            try:
                answer = ahead or self._run(self._ask(topic, partition, at, stop))
                ahead = None
                part = self._run(self._answered(topic, partition, answer))
                runs, end = list(split(part.records)), at
                if runs:
                    end = _end(runs[-1])
                elif time.monotonic() - heard > _PATIENCE:
                    raise ClusterError(f"{self._name(topic, partition)}: nothing comes for offset {at}")
                if at < end < stop:
                    ahead = self._run(self._ask(topic, partition, end, stop))
            except OUTAGE as error:
                if isinstance(error, BrokerError) and error.code == OFFSET_OUT_OF_RANGE:
                    at = self._run(self._beginning(topic, partition, at))
                    continue
                ahead = None
                if time.monotonic() - heard > _PATIENCE:
                    raise ClusterError(f"{self._name(topic, partition)}, offset {at}: {describe(error)}") from error
                self._run(self._settle(topic))
                continue
            except CorruptBatch as error:
                raise ClusterError(f"{self._name(topic, partition)}: {error}") from error
            yield from self._pieces(f"{self._name(topic, partition)}", runs, part.aborted_transactions, at, stop)
            at, heard = end, time.monotonic() if end > at else heard  # whoever takes the records may take his time

    def _run(self, task: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(task)

    def _name(self, topic: str, partition: int) -> str:
        return f"{topic}-{partition} on {self._cluster.endpoint}"

    async def _ask(self, topic: str, partition: int, at: int, stop: int) -> tuple[int, asyncio.Future[memoryview]]:
        cluster = self._cluster
        if topic not in cluster.topics:
            await cluster.refresh([topic])
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise BrokerError(NOT_LEADER_OR_FOLLOWER, "it has no leader")
        connection = await cluster.connection(leader.leader, "fetch")
        version = fetch.version_for(connection)
        # Old brokers cut a batch that is larger than the limit, and it would never come.
        size = min(_ANSWER, (stop - at) * _PER_RECORD) if version >= fetch.FIRST_WITH_MAX_BYTES else _ANSWER
        wanted = fetch.PartitionToFetch(partition, at, leader.leader_epoch, max_bytes=size)
        body = fetch.encode_request(
            version,
            [(topic, cluster.topics[topic].id, [wanted])],
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            read_committed=self._read_committed,
        )
        return version, connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])

    async def _answered(
        self, topic: str, partition: int, asked: tuple[int, asyncio.Future[memoryview]]
    ) -> fetch.FetchedPartition:
        version, answer = asked
        data = await asyncio.wait_for(asyncio.shield(answer), self._cluster.endpoint.request_timeout)
        error, found = fetch.decode_response(version, data)
        raise_for(error)
        if not found:
            raise BadFrame(f"the answer does not speak of {topic}-{partition}")
        raise_for(found[0].error)
        return found[0]

    async def _beginning(self, topic: str, partition: int, at: int) -> int:
        """Retention may have passed us; a log that ends before this was cut back, and nothing can be said of it."""
        found = (await list_offsets(self._cluster, [(topic, partition)], EARLIEST))[topic, partition]
        if isinstance(found, Exception) or found <= at:
            raise ClusterError(f"{self._name(topic, partition)}: offset {at} was there and is gone; verify again")
        return found

    async def _settle(self, topic: str) -> None:
        await asyncio.sleep(_PAUSE)
        try:
            await self._cluster.refresh([topic])
        except OUTAGE:
            self._cluster.topics.pop(topic, None)

    def _pieces(
        self, name: str, runs: Sequence[Batches | memoryview], aborted: Sequence[tuple[int, int]], start: int, stop: int
    ) -> Iterator[Piece]:
        try:
            for run in runs:
                for piece in _old(run) if isinstance(run, memoryview) else _unpacked(run, aborted, start, stop):
                    offsets = piece.records.offsets
                    low, high = np.searchsorted(offsets, [start, stop]).tolist()
                    if low < high:
                        yield piece if high - low == len(offsets) else piece.part(slice(low, high))
        except DataError as error:
            raise ClusterError(f"{name}: {error}") from error


def _end(run: Batches | memoryview) -> int:
    """The offset behind it."""
    return legacy.last_offset(run) + 1 if isinstance(run, memoryview) else run[len(run) - 1].last_offset + 1


def _old(run: memoryview) -> Iterator[Piece]:
    for records in legacy.unpack(run, _UNPACKED):
        yield Piece(records, np.full(len(records), -1, np.int64), np.zeros(len(records), np.bool_))


def _unpacked(run: Batches, aborted: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[Piece]:
    run.check()
    headers = run.headers
    if (headers["attributes"] & (CONTROL | TRANSACTIONAL)).any() or not headers["count"].all():
        flags = [is_data for _, is_data in flag_data(list(run), aborted)]
    else:
        flags = [True] * len(run)
    at = 0
    for is_data, group in groupby(flags):
        after = at + sum(1 for _ in group)
        if is_data:
            yield from _data(run.part(at, after), start, stop)
        at = after


def _data(part: Batches, start: int, stop: int) -> Iterator[Piece]:
    while len(part) and part.first_offset < stop:
        records, used = unpack_some(part, _UNPACKED, _PIECE)
        headers = part.headers[:used]
        counts = headers["count"].astype(np.int64)
        stamped = (headers["attributes"] & LOG_APPEND_TIME) != 0
        if len(records) and records.offsets[-1] >= start:
            producers = headers["producer_id"].astype(np.int64)
            yield Piece(records, np.repeat(producers, counts), np.repeat(stamped, counts))
        part = part.part(used, len(part))
