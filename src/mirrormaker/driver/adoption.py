"""Partitions without a committed offset whose target holds records: go on after them, start anew, or refuse to guess.

The committed offsets of a group expire when its mirror is stopped for longer than `offsets.retention.minutes`. The target's
log still says how far the mirror has got: its last records are searched on the source.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mirrormaker.driver.log_search import (
    CLOCK_SKEW_MS,
    LogRange,
    Tails,
    find_tails,
    offset_at,
    read_first_time,
    read_sample,
    read_tails,
    replicated_end,
)
from mirrormaker.driver.routing import Routing
from mirrormaker.errors import OUTAGE, BrokerError, DataError, PartitionError, Unanswered, describe
from mirrormaker.events import event
from mirrormaker.events.partition_events import Adopted, NewGroupOnFullTarget
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE
from mirrormaker.model.position import Position
from mirrormaker.model.tail_search import TAIL, Conclusion, Doubt, Mark
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, find_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.murmur2 import by_key
from mirrormaker.wire.transport.turns import in_turns

_AT_ONCE = 4  # partitions that are looked at side by side, each with up to 20 MB of fetched batches
_ATTEMPTS, _PAUSE = 3, 0.2  # the pause is in seconds
_SAMPLES = 3  # of the source's records that are searched on the target
_REFUSED_FOR = 600.0  # seconds until a refused partition is looked at again: somebody has to commit an offset first
_NAMED = 3  # partitions that a line about many of them names

Refused = dict[TopicPartition, Exception]

_REASONS = {
    Doubt.EQUAL: "the last records on the target are on the source several times",
    Doubt.PARTLY: (
        "the target holds records of the source, but not as the source has them now (compacted since then, or mirrored"
        " with other settings)"
    ),
    Doubt.TOO_FAR: "the last records on the target were not found in 256 MB of the source's log",
    Doubt.OLDER: "the target holds records of the source, but not among its last 10,000",
    Doubt.SPREAD: "the target holds records of the source, which do not go to one partition alone",
}


@dataclass(frozen=True)
class _Logs:
    """What can be read of a source partition, and of each target partition that it may write to."""

    source: LogRange
    targets: dict[int, LogRange]

    @property
    def are_full(self) -> bool:
        """Return True if both sides have records."""
        return self.source.start < self.source.end and bool(self.full_targets)

    @property
    def full_targets(self) -> list[int]:
        """Return the target partitions that have records."""
        return [partition for partition, log in self.targets.items() if log.start < log.end]


class Adoption:
    """Decides where partitions start that have no committed offset, if the target holds records already."""

    def __init__(
        self, source: Cluster, target: Cluster, settings: SourceSettings, routing: Routing, report: event.Report
    ) -> None:
        self.source, self.target, self.settings, self.routing = source, target, settings, routing
        self._report = report
        self._slots = asyncio.Semaphore(_AT_ONCE)
        # Refused partitions, and until when.
        self._refused: dict[TopicPartition, tuple[float, Exception]] = {}

    def refused(self, keys: Iterable[TopicPartition]) -> Refused:
        """Return the partitions among `keys` that were refused a while ago: reading the logs again would not help."""
        now, known = time.monotonic(), self._refused
        return {key: known[key][1] for key in keys if key in known and now < known[key][0]}

    async def settle(self, positions: Sequence[Position], first_start: bool) -> tuple[list[Position], Refused]:
        """Return where partitions without a committed offset start, and the errors of those for which that is unknown.

        `positions` are where they start if the target holds none of their records.
        """
        # An unnumbered mirror cannot tell its own records from others, and promises "at least once".
        full = [p async for p in in_turns(positions) if p.identity.is_numbered and any(cut.offset for cut in p.cuts)]
        logs, failed = await self._logs(full) if full else ({}, {})
        full = [p for p in full if p.key in logs and logs[p.key].are_full]
        found = await asyncio.gather(*(self._examine(position, logs[position.key]) for position in full))
        conclusions = {position.key: conclusion for position, conclusion in zip(full, found, strict=True)}
        adopted = {key: offset for key, offset in conclusions.items() if isinstance(offset, int)}
        failed |= {key: error for key, error in conclusions.items() if isinstance(error, Exception)}
        failed |= self._refuse({key: doubt for key, doubt in conclusions.items() if isinstance(doubt, Doubt | str)})
        self._report_adopted(adopted)
        others = sum(conclusion is None for conclusion in conclusions.values())
        if others and first_start:
            self._report(NewGroupOnFullTarget(self.settings.group_id, others))
        settled = [
            replace(p, offset=adopted[p.key]) if p.key in adopted else p
            async for p in in_turns(positions)
            if p.key not in failed
        ]
        return settled, failed

    # -- looking at one partition

    async def _logs(self, positions: Sequence[Position]) -> tuple[dict[TopicPartition, _Logs], Refused]:
        """Return what there is to read for each partition, and the errors of those whose leaders do not tell."""
        keys = [position.key for position in positions]
        places = {(position.topic, cut.partition) for position in positions for cut in position.cuts}
        target_starts, missing = await find_offsets(self.target, places, EARLIEST)
        starts, no_start = await find_offsets(self.source, keys, EARLIEST)
        ends, no_end = await find_offsets(self.source, keys, LATEST, self.settings.read_committed)
        logs: dict[TopicPartition, _Logs] = {}
        failed: Refused = {}
        async for position in in_turns(positions):
            key, topic = position.key, position.topic
            errors = [no_start.get(key), no_end.get(key), *(missing.get((topic, c.partition)) for c in position.cuts)]
            error = next((error for error in errors if error is not None), None)
            if error is not None:
                failed[key] = self._unanswered(key, error)
                continue
            cuts = {cut.partition: LogRange(target_starts[topic, cut.partition], cut.offset) for cut in position.cuts}
            logs[key] = _Logs(LogRange(starts[key], ends[key]), cuts)
        return logs, failed

    async def _examine(self, position: Position, logs: _Logs) -> Conclusion | str | Exception:
        """Return the offset to go on at, None if the target holds none of the partition's records, or why that is unknown."""
        async with self._slots:
            last: Exception = LookupError()
            for attempt in range(_ATTEMPTS):
                if attempt:
                    await asyncio.sleep(_PAUSE)
                    with contextlib.suppress(*OUTAGE):
                        await self.source.refresh([position.topic])
                        await self.target.refresh([position.topic])
                try:
                    return await self._find(position, logs)
                except DataError as error:
                    return f"a log cannot be read: {error}"
                except OUTAGE as error:
                    last = error
            return self._unanswered(position.key, last)

    async def _find(self, position: Position, logs: _Logs) -> Conclusion:
        if position.by_key or self.routing.handler is not None:
            return Doubt.SPREAD if await self._holds_first_records(position, logs) else None
        key = position.key
        log = logs.targets[position.partition]._replace(end=await replicated_end(self.target, key))
        tails = await read_tails(self.target, key, log)
        read_committed = self.settings.read_committed
        found = await find_tails(self.source, key, logs.source, tails, read_committed=read_committed)
        if found is None and await self._holds_first_records(position, logs):
            return Doubt.OLDER
        return found

    async def _holds_first_records(self, position: Position, logs: _Logs) -> bool:
        """Return True if the target holds the first records of the source, or may hold them.

        Retention may be shorter on the target. Then the records are searched that the source got when the target's log
        begins.
        """
        key, at = position.key, logs.source.start
        read_committed = self.settings.read_committed
        for _ in range(_SAMPLES):
            sample = await read_sample(self.source, key, logs.source, at, read_committed=read_committed)
            if sample is None:
                return False
            partition, records = self._destination(position, sample, logs.full_targets)
            first_time, timed = await read_first_time(self.target, (position.topic, partition), logs.targets[partition])
            if await self._holds((position.topic, partition), logs.targets[partition], records, timed):
                return True
            later = await offset_at(self.source, key, logs.source, first_time)
            if later <= at:
                return False
            at = later
        return False

    def _destination(self, position: Position, records: Records, full: Collection[int]) -> tuple[int, Records]:
        """Return the target partition that most of the records go to, without a message handler, and these records.

        Only partitions that have records count.
        """
        if position.by_key:
            targets = by_key(records, position.partition, position.target_partitions)
        else:
            targets = np.full(len(records), position.partition, np.int64)
        counts = {partition: int((targets == partition).sum()) for partition in full}
        chosen = max(counts, key=lambda partition: counts[partition])
        return chosen, records[targets == chosen]

    async def _holds(self, key: TopicPartition, log: LogRange, records: Records, timed: bool) -> bool:
        """Return False if none of the records are in a target partition."""
        marks = tuple(Mark.of(records, row, timed=timed) for row in range(min(TAIL, len(records))))
        if not marks:
            return False
        if not timed:
            # A broker appends a record after its producer has made it.
            oldest = int(records.timestamps.min()) - CLOCK_SKEW_MS
            log = log._replace(start=await offset_at(self.target, key, log, oldest))
        return await find_tails(self.target, key, log, Tails([marks], None), read_committed=False) is not None

    # -- reporting

    def _report_adopted(self, adopted: dict[TopicPartition, int]) -> None:
        by_topic: dict[str, dict[int, int]] = defaultdict(dict)
        for (topic, partition), offset in sorted(adopted.items()):
            by_topic[topic][partition] = offset
        for topic, offsets in by_topic.items():
            self._report(Adopted(self.settings.group_id, topic, tuple(offsets), tuple(offsets.values())))

    def _refuse(self, doubts: dict[TopicPartition, Doubt | str]) -> Refused:
        """Return one error for all partitions of a topic that are refused for the same reason."""
        groups: dict[tuple[str, str], list[TopicPartition]] = defaultdict(list)
        for key, doubt in sorted(doubts.items()):
            groups[key[0], _REASONS[doubt] if isinstance(doubt, Doubt) else doubt].append(key)
        refused: Refused = {}
        for (_, reason), keys in groups.items():
            refused |= dict.fromkeys(keys, PartitionError(self._refusal(keys, reason)))
        until = time.monotonic() + _REFUSED_FOR
        self._refused |= {key: (until, error) for key, error in refused.items()}
        return refused

    def _refusal(self, keys: Sequence[TopicPartition], reason: str) -> str:
        """Return what is wrong, and both ways on: an offset that is committed by hand counts before everything else."""
        topic, number = keys[0]
        names = ", ".join(f"{topic}-{partition}" for _, partition in keys[:_NAMED])
        one = len(keys) == 1
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        group = self.settings.group_id
        command = (
            f"kafka-consumer-groups --bootstrap-server {self.source.endpoint} --group {group} --topic"
            f" {topic}:{number if one else 'P'} --reset-offsets --to-offset N --execute"
        )
        return (
            f"{names}{more} {'stops' if one else 'stop'}: group {group} has no committed offset for"
            f" {'it' if one else 'them'}, and {reason}; stop the mirror and run{'' if one else ' for each partition P'}:"
            f" {command} to go on at source offset N, or the same with --to-earliest to mirror everything again"
        )

    def _unanswered(self, key: TopicPartition, error: Exception) -> Exception:
        text = f"it cannot be found out where {key[0]}-{key[1]} goes on: {describe(error)}"
        is_final = isinstance(error, BrokerError) and not error.retriable and error.code != OFFSET_OUT_OF_RANGE
        return PartitionError(text) if is_final else Unanswered(text, key[0])
