"""Reading logs for an adoption: the tails of a target partition, and their places in a source partition, within limits."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from mirrormaker.errors import BrokerError, Unanswered
from mirrormaker.kafka_errors import UNSUPPORTED_FOR_MESSAGE_FORMAT
from mirrormaker.model.position import Identity
from mirrormaker.model.tail_search import TAIL, Conclusion, Doubt, Mark, SearchTimes, Tail, TailSearch
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_fetch import FetchedLog, fetch_records
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, LATEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import ListOffsetsRequest
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, Batch, Batches, Run
from mirrormaker.wire.records.columns import Records, unpack, unpack_in_pieces
from mirrormaker.wire.records.transactions import flag_data

TAIL_OFFSETS = 10_000  # at the end of a target partition
SEARCH_BYTES = 256 << 20  # read at most for one search
SAMPLE = 200  # records
_TAIL_BYTES = 16 << 20  # held at most for the tails of one partition
_FETCH_BYTES = 4 << 20  # of one response
_SAMPLE_BYTES = 256 << 10  # of the response with a sample
_SLICE_BYTES = 4 << 20  # of records that are unpacked together
_MAX_UNPACKED = 256 << 20  # bytes of one batch, once it is unpacked
CLOCK_SKEW_MS = 3_600_000  # a producer's clock may be ahead of a broker's
_HIGH_WATERMARK_PATIENCE, _HIGH_WATERMARK_POLL = 10.0, 0.1  # seconds
_FIRST_WITH_TIMES = 1  # the version of ListOffsets (Kafka 0.10.1) that finds a record by its timestamp


class LogRange(NamedTuple):
    """The part of a log that can be read: its log start offset, and the offset after its last record."""

    start: int
    end: int


class Tails(NamedTuple):
    """The last records of each producer in a log; `latest` is the newest time at which a broker stamped one of them."""

    tails: list[Tail]
    latest: int | None


async def replicated_end(cluster: Cluster, key: TopicPartition) -> int:
    """Return the log end offset, once consumers can read up to it; raise Unanswered after 10 s.

    Records beyond the high watermark are not visible yet, and most of them will be.
    """
    end = await _list_offset(cluster, key, LATEST, replica=DEBUGGING_REPLICA)
    deadline = time.monotonic() + _HIGH_WATERMARK_PATIENCE
    while await _list_offset(cluster, key, LATEST) < end:
        if time.monotonic() > deadline:
            text = f"the end of {key[0]}-{key[1]} on {cluster.endpoint} is not on enough in-sync replicas yet"
            raise Unanswered(text, key[0])
        await asyncio.sleep(_HIGH_WATERMARK_POLL)
    return end


async def read_tails(target: Cluster, key: TopicPartition, log: LogRange) -> Tails:
    """Return the last records of each idempotent producer among the last 10,000 offsets of a log.

    Where these take more than 16 MB, fewer offsets are read.
    """
    span = TAIL_OFFSETS
    while True:
        kept, reached = await _read_last_batches(target, key, max(log.start, log.end - span), log.end)
        if reached >= log.end:
            break
        span = max(1, span // 8)
    tails: list[Tail] = []
    latest = -1
    for batches in kept.values():
        marks: list[Mark] = []
        for batch in batches:
            records = unpack(Batches.of(batch), _MAX_UNPACKED)
            timed = not batch.attributes & LOG_APPEND_TIME
            latest = latest if timed else max(latest, batch.max_timestamp)
            rows = range(max(0, len(records) - TAIL), len(records))
            marks += [Mark.of(records, row, timed=timed) for row in rows]
        tails.append(tuple(marks[-TAIL:]))
        await asyncio.sleep(0)
    return Tails(tails, latest + CLOCK_SKEW_MS if latest >= 0 else None)


async def _read_last_batches(
    target: Cluster, key: TopicPartition, start: int, end: int
) -> tuple[dict[Identity, deque[Batch]], int]:
    """Return the last batches of each producer that have at least `TAIL` records, and the offset that was reached."""
    kept: dict[Identity, deque[Batch]] = {}
    size, at = 0, start
    while at < end and size < _TAIL_BYTES:
        part = await fetch_records(target, key, at, _FETCH_BYTES)
        size, at = size + part.size, part.end
        for batch in (batch for run in part.runs if isinstance(run, Batches) for batch in run):
            is_ours = batch.producer_id >= 0 and not batch.is_transactional and not batch.is_control
            if is_ours and batch.count > 0:
                batches = kept.setdefault(Identity(batch.producer_id, batch.producer_epoch), deque())
                batches.append(batch)
                while sum(b.count for b in batches) - batches[0].count >= TAIL:
                    batches.popleft()
    return kept, at


async def find_tails(
    cluster: Cluster, key: TopicPartition, log: LogRange, wanted: Tails, *, read_committed: bool
) -> Conclusion:
    """Return where a log has the last one of the tails; read at most 256 MB for it."""
    search, times = TailSearch(*wanted), SearchTimes(*wanted)
    size, at = 0, await offset_at(cluster, key, log, times.first)
    while at < log.end and not (times.is_over or search.is_ambiguous):
        if size >= SEARCH_BYTES:
            return Doubt.TOO_FAR
        part = await fetch_records(cluster, key, at, _FETCH_BYTES, read_committed=read_committed)
        at = part.end
        unpacked, has_passed = 0, False
        for run in part.runs:
            for records in data_of(run, part, times):
                if records is None:
                    search.pass_over()
                elif len(records):
                    search.see(records)
                    unpacked += int(records.ends[-1] - records.starts[0])
                await asyncio.sleep(0)
            has_passed |= _note(run, times)
        size += max(part.size, unpacked)
        if has_passed and not times.is_over:
            ahead = await offset_at(cluster, key, log, times.first)
            if ahead > at:
                at = ahead
                search.pass_over()
    return search.conclude()


async def read_sample(
    cluster: Cluster, key: TopicPartition, log: LogRange, at: int, *, read_committed: bool
) -> Records | None:
    """Return the first data records from an offset on, up to 200 of them; None if there are none."""
    while at < log.end:
        part = await fetch_records(cluster, key, at, _SAMPLE_BYTES, read_committed=read_committed)
        for run in part.runs:
            for records in data_of(run, part, None):
                # A batch may begin before the wanted offset.
                if records is not None and len(records) and records.offsets[-1] >= at:
                    return records[records.offsets >= at][:SAMPLE]
        at = part.end
    return None


async def read_first_time(cluster: Cluster, key: TopicPartition, log: LogRange) -> tuple[int, bool]:
    """Return the first timestamp in a log, -1 if there is none, and True if a producer has set it."""
    run = (await fetch_records(cluster, key, log.start, _SAMPLE_BYTES)).runs[0]
    if not isinstance(run, Batches):
        return -1, True
    first = run[0]
    return first.max_timestamp, not first.attributes & LOG_APPEND_TIME


async def offset_at(cluster: Cluster, key: TopicPartition, log: LogRange, timestamp: int | None) -> int:
    """Return the offset of the first record that is not older than a timestamp; the log start where brokers cannot tell."""
    leader = cluster.leader(*key)
    if timestamp is None or timestamp < 0 or leader is None:
        return log.start
    connection = await cluster.connection(leader.leader)
    if connection.best_version(ListOffsetsRequest) < _FIRST_WITH_TIMES:
        return log.start
    try:
        offset = await _list_offset(cluster, key, timestamp)
    except BrokerError as error:
        if error.code != UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise
        return log.start
    return log.end if offset < 0 else max(offset, log.start)


async def _list_offset(cluster: Cluster, key: TopicPartition, when: int, *, replica: int = -1) -> int:
    offset = (await list_offsets(cluster, [key], when, replica=replica))[key]
    if isinstance(offset, Exception):
        raise offset
    return offset


def data_of(run: Run, part: FetchedLog, times: SearchTimes | None) -> Iterator[Records | None]:
    """Yield the data records of a run in their order; None in place of batches that are too old to be needed."""
    if not isinstance(run, Batches):
        yield from (records for records, _ in legacy.unpack(run, _MAX_UNPACKED) if len(records))
        return
    uses: list[bool | None] = []
    for batch, is_data in flag_data(list(run), part.aborted_transactions):
        uses.append((times is None or times.needs(batch.max_timestamp)) if is_data else None)
    at = 0
    for use, group in groupby(uses):
        stop = at + sum(1 for _ in group)
        if use:
            yield from _unpacked(run.part(at, stop))
        elif use is not None:
            yield None
        at = stop


def _unpacked(batches: Batches) -> Iterator[Records]:
    batches.check()
    for piece in unpack_in_pieces(batches, _MAX_UNPACKED, _SLICE_BYTES):
        yield piece.records


def _note(run: Run, times: SearchTimes) -> bool:
    """Note the times of what was read; return True if the search may go on further ahead."""
    if not isinstance(run, Batches):
        return False
    has_passed = False
    names: Sequence[str] = ("first_timestamp", "max_timestamp", "attributes")
    rows = zip(*(run.headers[name].tolist() for name in names), run.bounds, run.bounds[1:], strict=False)
    for first, newest, attributes, start, stop in rows:
        # Compaction has put another time in the place of the first timestamp.
        oldest = newest if attributes & DELETE_HORIZON else first
        has_passed |= times.note(oldest, newest, stop - start)
    return has_passed
