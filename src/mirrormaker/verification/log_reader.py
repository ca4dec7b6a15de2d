"""Read a range of a partition's log as columns, from inside a Spark task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import OUTAGE, BadFrame, BrokerError, ClusterError, CorruptBatch, DataError, describe, raise_for
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.log_fetch import DAMAGED_ANSWERS, checked
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batches
from mirrormaker.wire.records.columns import Records, unpack_in_pieces
from mirrormaker.wire.records.transactions import Aborted, flag_data
from mirrormaker.wire.records.varints import Ints

T = TypeVar("T")
_PendingFetch = tuple[int, "asyncio.Future[memoryview]"]  # the request's version, and its response

_FETCH_BYTES = 4 << 20  # of one response; two are held at a time
_SLICE_BYTES = 4 << 20  # of unpacked records in one slice
_MAX_BATCH_BYTES = 1 << 30  # of one unpacked batch: more than any broker accepts
_BYTES_PER_RECORD = 1024  # requested for each offset where only a few records are wanted
_PATIENCE = 30.0  # seconds without progress: a broker restarts in less
_PAUSE = 0.2  # seconds before the metadata is refreshed and the fetch is repeated
_MAX_WAIT_MS = 100  # short, because all requested records are in the log already


class LogSlice(NamedTuple):
    """Consecutive records of a log, with each record's producer id, and True where the broker set the timestamp."""

    records: Records
    producer_ids: Ints
    broker_stamped: npt.NDArray[np.bool_]

    def select(self, rows: slice | npt.NDArray[np.bool_]) -> LogSlice:
        """Return some of the records."""
        return LogSlice(self.records[rows], self.producer_ids[rows], self.broker_stamped[rows])


class LogReader:
    """Read the logs of one cluster, inside `with`. The next fetch is under way while the caller works on the last one.

    Runs an event loop of its own, so it must not be used in a thread where one runs.
    """

    def __init__(self, endpoint: Endpoint, read_committed: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self._cluster = Cluster(endpoint)
        self._read_committed = read_committed

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def read(self, topic: str, partition: int, start: int, stop: int) -> Iterator[LogSlice]:
        """Yield the data records from offset `start` up to `stop`, without those that retention has deleted meanwhile.

        Raise ClusterError after 30 s without progress, after three damaged answers in a row, or if the log cannot be read.
        """
        name = f"{topic}-{partition} on {self._cluster.endpoint}"
        at = start
        pending: _PendingFetch | None = None
        progress_at, damaged = time.monotonic(), 0
        while at < stop:
            try:
                pending = pending or self._run(self._send_fetch(topic, partition, at, stop))
                current, pending = pending, None
                log = self._run(checked(self._run(self._receive(topic, partition, current)), at))
                if not log.runs:
                    raise BrokerError(NOT_LEADER_OR_FOLLOWER, "the broker returns no records")
                if log.end < stop:
                    pending = self._run(self._send_fetch(topic, partition, log.end, stop))
            except OUTAGE as error:
                if isinstance(error, BrokerError) and error.code == OFFSET_OUT_OF_RANGE:
                    at = self._run(self._log_start(topic, partition, at, name))
                    continue
                pending = None
                if time.monotonic() - progress_at > _PATIENCE:
                    raise ClusterError(f"{name}, offset {at}: {describe(error)}") from error
                self._run(self._pause_and_refresh(topic))
                continue
            except CorruptBatch as error:
                damaged += 1
                if damaged == DAMAGED_ANSWERS:
                    raise ClusterError(f"{name}: {error}") from error
                continue
            try:
                yield from _slices(log.runs, log.aborted_transactions, at, stop)
            except DataError as error:
                raise ClusterError(f"{name}: {error}") from error
            at = log.end
            # Measured after the caller has taken the records: the caller's time does not count.
            progress_at, damaged = time.monotonic(), 0

    def _run(self, task: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(task)

    async def _send_fetch(self, topic: str, partition: int, at: int, stop: int) -> _PendingFetch:
        cluster = self._cluster
        if topic not in cluster.topics:
            await cluster.refresh([topic])
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise BrokerError(NOT_LEADER_OR_FOLLOWER, "the partition has no leader")
        connection = await cluster.connection(leader.leader, "fetch")
        version = fetch.version_for(connection, [cluster.topics[topic].id])
        # Old brokers cut a batch that is larger than the limit, so a small limit would never return it whole.
        size = (
            min(_FETCH_BYTES, (stop - at) * _BYTES_PER_RECORD)
            if version >= fetch.FIRST_WITH_MAX_BYTES
            else _FETCH_BYTES
        )
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

    async def _receive(self, topic: str, partition: int, pending: _PendingFetch) -> fetch.FetchedPartition:
        version, response = pending
        async with asyncio.timeout(self._cluster.endpoint.request_timeout):
            data = await asyncio.shield(response)
        error, partitions = fetch.decode_response(version, data, 1)
        raise_for(error)
        if not partitions:
            raise BadFrame(f"the fetch response does not contain {topic}-{partition}")
        raise_for(partitions[0].error)
        return partitions[0]

    async def _log_start(self, topic: str, partition: int, at: int, name: str) -> int:
        """Return the log start offset after retention has moved it past `at`; any other reason is an error."""
        start = (await list_offsets(self._cluster, [(topic, partition)], EARLIEST))[topic, partition]
        if isinstance(start, Exception) or start <= at:
            raise ClusterError(f"{name}: the log was truncated and has no offset {at} any more; verify again")
        return start

    async def _pause_and_refresh(self, topic: str) -> None:
        await asyncio.sleep(_PAUSE)
        try:
            await self._cluster.refresh([topic])
        except OUTAGE:
            self._cluster.topics.pop(topic, None)


def _slices(runs: Sequence[Batches | memoryview], aborted: Aborted, start: int, stop: int) -> Iterator[LogSlice]:
    """Unpack a fetch response; batches may begin before `start` and end after `stop`."""
    for run in runs:
        for part in _legacy_slices(run) if isinstance(run, memoryview) else _batch_slices(run, aborted, start, stop):
            offsets = part.records.offsets
            low, high = np.searchsorted(offsets, [start, stop]).tolist()
            if low < high:
                yield part if high - low == len(offsets) else part.select(slice(low, high))


def _legacy_slices(run: memoryview) -> Iterator[LogSlice]:
    for records, _ in legacy.unpack(run, _MAX_BATCH_BYTES):
        yield LogSlice(records, np.full(len(records), -1, np.int64), np.zeros(len(records), np.bool_))


def _batch_slices(run: Batches, aborted: Aborted, start: int, stop: int) -> Iterator[LogSlice]:
    headers = run.headers
    if (headers["attributes"] & (CONTROL | TRANSACTIONAL)).any() or not headers["count"].all():
        flags = [is_data for _, is_data in flag_data(run, aborted)]
    else:
        flags = [True] * len(run)
    at = 0
    for is_data, group in groupby(flags):
        after = at + sum(1 for _ in group)
        if is_data:
            yield from _data_slices(run.part(at, after), start, stop)
        at = after


def _data_slices(batches: Batches, start: int, stop: int) -> Iterator[LogSlice]:
    for records, some, counts, end, _ in unpack_in_pieces(batches, _MAX_BATCH_BYTES, _SLICE_BYTES):
        if len(records) and records.offsets[-1] >= start:
            headers = some.headers
            producer_ids = headers["producer_id"].astype(np.int64)
            broker_stamped = (headers["attributes"] & LOG_APPEND_TIME) != 0
            yield LogSlice(records, np.repeat(producer_ids, counts), np.repeat(broker_stamped, counts))
        if end >= stop:
            return
