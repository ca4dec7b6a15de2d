"""The offset map of partitions whose stored blocks are gone, from what the ends of both logs still show.

Every record of the target has a number in its batch header, and numbers go to the source's records in their order.
The position is an anchor: the last record before it has the last number. So both logs are read back from there, and matched.

- A batch counts only if its first and its last record are the same on both sides, and if the source lacks no offset behind it.
- The map begins at the last batch before which that does not hold. Readers of earlier offsets start at the beginning of the
  target's log.
- Records that go by key or through a message handler are not matched: their numbers do not follow the source's offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mirrormaker.driver.log_search import data_of
from mirrormaker.driver.routing import Routing
from mirrormaker.errors import OUTAGE, DataError, MirrorError
from mirrormaker.events import event
from mirrormaker.events.map_events import OffsetMapRebuilt
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Position
from mirrormaker.model.tail_search import Mark
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_fetch import FetchedLog, fetch_records
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import LOG_APPEND_TIME, SEQUENCES, Batch, Batches, Run
from mirrormaker.wire.records.columns import unpack

_WINDOWS = (50_000, 5_000, 500)  # offsets that are read back; fewer where they have too many bytes
_PARTITION_BYTES = 32 << 20  # of each side of a partition
_TOTAL_BYTES = 1 << 30  # of all partitions of a process
_FETCH_BYTES = 4 << 20
_MAX_UNPACKED = 64 << 20  # of one batch
_LOOK_EVERY = 1.0  # seconds
_RUNS_AT_ONCE = 200


class SourceRecords(NamedTuple):
    """The newest data records of a source partition, with nothing missing between them."""

    offsets: list[int]
    marks: list[Mark]


class MapRebuild:
    """Rebuilds maps in the background, one after the other."""

    def __init__(self, offset_map: MapKeeper, routing: Routing, report: event.Report) -> None:
        self._source, self._target = routing.source, routing.target
        self._map, self._routing, self._report = offset_map, routing, report
        self._bytes = 0  # read so far

    async def run(self) -> None:
        """Rebuild the maps that are missing, for as long as this runs."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            partitions = records = 0
            while self._map.missing:
                key, position = next(iter(self._map.missing.items()))
                # A log that cannot be read now is left alone: the map is right without it, and begins later.
                with contextlib.suppress(*OUTAGE, MirrorError):
                    runs = await self.runs(position)
                    if runs and self._map.put_before(position, map_of(position, runs)):
                        partitions += 1
                        records += sum(run.length for run in runs)
                # Groups wait for this attempt. The partition may have gone meanwhile, and come back at another position.
                if self._map.missing.get(key) is position:
                    del self._map.missing[key]
            if partitions:
                self._report(OffsetMapRebuilt(partitions, records))

    async def runs(self, position: Position) -> list[NotedRun]:
        """Return the runs that both logs show before a position, as far back as they agree; the last one ends there."""
        (cut, *others) = position.cuts
        if others or cut.ahead or position.by_key or self._routing.handler or self._bytes > _TOTAL_BYTES:
            return []
        there = cut.topic or position.topic, cut.partition
        batches = [
            batch
            for run, _ in await self._read_back(self._target, there, cut.offset)
            if isinstance(run, Batches)
            for batch in run
            if (batch.producer_id, batch.producer_epoch) == (position.identity.producer_id, position.identity.epoch)
            and batch.last_offset < cut.offset
        ]
        if not batches:
            return []
        found = await self._read_back(self._source, position.key, position.offset, self._routing.read_committed)
        return matched(batches, await _records(found, position.offset), cut)

    async def _read_back(
        self, cluster: Cluster, key: TopicPartition, end: int, read_committed: bool = False
    ) -> list[tuple[Run, FetchedLog]]:
        """Return the end of a log before an offset; fewer offsets where they have more than 32 MB."""
        start = (await list_offsets(cluster, [key], EARLIEST))[key]
        if isinstance(start, Exception):
            raise start
        for span in _WINDOWS:
            found: list[tuple[Run, FetchedLog]] = []
            size, at = 0, max(start, end - span)
            while at < end and size <= _PARTITION_BYTES:
                # `matched` and `data_of` check the CRCs of the batches that they use.
                part = await fetch_records(
                    cluster, key, at, _FETCH_BYTES, read_committed=read_committed, check_crcs=False
                )
                found += [(run, part) for run in part.runs]
                size, at = size + part.size, part.end
            self._bytes += size
            if at >= end:
                return found
        return []


async def _records(found: Sequence[tuple[Run, FetchedLog]], end: int) -> SourceRecords:
    """Return the data records before an offset that have nothing missing between them."""
    offsets: list[int] = []
    marks: list[Mark] = []
    expected = start = 0
    for run, part in found:
        if not isinstance(run, Batches):
            # Compaction leaves no trace in message formats 0 and 1.
            start = expected = legacy.last_offset(run) + 1
            continue
        for batch in run:
            if batch.base_offset != expected:
                start = batch.base_offset
            expected = batch.last_offset + 1
            if expected - batch.base_offset != batch.count:
                start = expected
        for piece in data_of(run, part, None):
            assert piece is not None
            count = int(np.searchsorted(piece.offsets, end))
            offsets += piece.offsets[:count].tolist()
            marks += [Mark.of(piece, row) for row in range(count)]
            await asyncio.sleep(0)
    first = bisect_left(offsets, start)
    return SourceRecords(offsets[first:], marks[first:])


def matched(batches: Sequence[Batch], records: SourceRecords, cut: Cut) -> list[NotedRun]:
    """Return the runs of the batches that the newest records became, the oldest run first.

    `cut` is the state of the target partition after the last record.
    """
    left, sequence = len(records.offsets), cut.sequence
    found: list[list[NotedRun]] = []
    for batch in reversed(batches):
        count = batch.count
        is_next = (batch.base_sequence + count) % SEQUENCES == sequence
        is_whole = batch.last_offset - batch.base_offset == count - 1
        if not (is_next and is_whole and count <= left and _is_same(batch, records.marks[left - count : left])):
            break
        left, sequence = left - count, batch.base_sequence
        offsets = np.array(records.offsets[left : left + count])
        bounds = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), count]
        found.append(
            [
                NotedRun(int(offsets[at]), batch.base_offset + at, stop - at, (sequence + at) % SEQUENCES)
                for at, stop in pairwise(bounds)
            ]
        )
    return [run for runs in reversed(found) for run in runs]


def _is_same(batch: Batch, marks: Sequence[Mark]) -> bool:
    """Return True if the first and the last record of a batch are the first and the last of these."""
    try:
        batch.check()
        records = unpack(Batches.of(batch), _MAX_UNPACKED)
    except DataError:
        return False
    timed = not batch.attributes & LOG_APPEND_TIME
    return all(
        Mark.of(records, row, timed=timed) == (mark if timed else mark._replace(timestamp=None))
        for row, mark in ((0, marks[0]), (len(records) - 1, marks[-1]))
    )


def map_of(position: Position, runs: Sequence[NotedRun]) -> PartitionMap:
    """Return the map of these runs, which ends at a position."""
    (cut,), first = position.cuts, runs[0]
    at = replace(position, offset=first.source, cuts=(cut._replace(sequence=first.sequence, offset=first.target),))
    found = PartitionMap()
    found.begin(at)
    for number in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[number : number + _RUNS_AT_ONCE]
        after = some[-1].without_first(some[-1].length)
        found.note(
            at.advanced(after.source, -1, [cut._replace(sequence=after.sequence, offset=after.target)]),
            [(cut.place, some)],
        )
    found.note(position, [])
    return found
