"""The result of a failover, as people and programs read it: two tables, or JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mirrormaker.console.aligned import aligned
from mirrormaker.groups.flow_ends import PartitionEnd
from mirrormaker.groups.left_out import also_reads
from mirrormaker.model.group_sync import State

MISSING = 3  # exit code
_TOPICS = ("TOPIC", "PARTITIONS", "MIRRORED UP TO", "LAST RECORD (UTC)", "OLDEST PARTITION", "NOT ON THE TARGET")
_GROUPS = ("GROUP", "TOPIC", "STARTS AT", "STATE", "READ AGAIN", "CANNOT READ")
_MOST_OFFSETS = 4  # partitions in one line of the table; JSON has all


@dataclass(frozen=True)
class GroupStart:
    """A group in one target topic: where its consumers go on. The topic is empty if nothing can be read of the group."""

    group: str
    topic: str
    # By target partition; None where the target has no offset, so that auto.offset.reset decides.
    offsets: Mapping[int, int | None]
    state: State
    # Records at most; None if the group's place is not known.
    again: int | None
    missing: int | None
    advice: str = ""
    # Other topics that the group reads, and that were not chosen.
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class FailoverReport:
    """A failover, or what it would do (`is_dry`)."""

    source_id: str
    time: int  # milliseconds since 1970
    is_dry: bool
    is_closed: bool  # a fence keeps the flow from being resumed
    source_answered: bool
    partitions: Sequence[PartitionEnd]
    groups: Sequence[GroupStart]
    chooses_groups: bool
    groups_trouble: str = ""  # why there are no rows of groups
    # Other reasons why this failover is not complete.
    troubles: Sequence[str] = field(default_factory=list)
    notes: Sequence[str] = ()  # more that users should know before they decide

    @property
    def exit_code(self) -> int:
        """Return 0 if everything that was chosen is there and every group is ready, else 3."""
        is_complete = all(row.is_complete for row in self.partitions) and bool(self.partitions)
        # Groups that were chosen and not found are a mistake in the choice, most probably.
        are_ready = all(row.state.is_ready for row in self.groups) and (bool(self.groups) or not self.chooses_groups)
        return 0 if is_complete and are_ready and not (self.troubles or self.groups_trouble) else MISSING

    def to_json(self) -> dict[str, Any]:
        """Return everything, as values for JSON."""
        return {
            "source": self.source_id,
            "time": self.time,
            "dry_run": self.is_dry,
            "closed": self.is_closed,
            "source_answered": self.source_answered,
            "complete": self.exit_code == 0,
            "topics": [
                {**topic.totals(self.time), "partitions": [asdict(row) for row in topic.rows]}
                for topic in self._topics()
            ],
            "groups": [
                {**asdict(row), "topic": row.topic or None, "state": row.state.value, "ready": row.state.is_ready}
                for row in self.groups
            ],
            "troubles": [*filter(None, [self.groups_trouble]), *self.troubles],
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """Yield the tables, and a last line that says how it went."""
        yield from aligned([_TOPICS, *(topic.cells(self.time) for topic in self._topics())])
        troubles = [f"{row.topic}-{row.partition}: {row.trouble}" for row in self.partitions if row.trouble]
        yield from troubles[:10]
        if len(troubles) > 10:
            yield f"... and {len(troubles) - 10} more: --json shows them"
        yield ""
        if self.groups:
            yield from aligned([_GROUPS, *(_group_cells(row) for row in self.groups)])
            yield from (_advice(row) for row in self.groups if row.advice)
            left_out = {row.group: row.left_out for row in self.groups if row.left_out}
            yield from (also_reads(group, topics, "not among the chosen topics") for group, topics in left_out.items())
        elif self.groups_trouble:
            yield self.groups_trouble
        elif self.chooses_groups:
            yield "no chosen group has offsets in these topics: --groups may be wrong; leave it out if there are none"
        else:
            yield "no groups are chosen: --groups REGEX names those that should go on at the target"
        yield ""
        yield from self.notes
        yield from self.troubles
        yield self._verdict()

    def _verdict(self) -> str:
        is_known = self.source_answered and all(row.missing is not None for row in self.partitions)
        there = (
            "everything that was chosen is on the target"
            if is_known
            else "everything that the mirror brought is on the target"
        )
        words = {True: f"{there}, and every group is ready", False: "not complete: see above"}[self.exit_code == 0]
        if self.is_dry:
            return f"nothing was changed (--dry.run); {words}"
        return f"{'the flow is closed' if self.is_closed else 'the flow is still open'}; {words}"

    def _topics(self) -> list[_Topic]:
        topics: dict[str, list[PartitionEnd]] = {}
        for row in self.partitions:
            topics.setdefault(row.topic, []).append(row)
        return [_Topic(name, rows) for name, rows in topics.items()]


@dataclass(frozen=True)
class _Topic:
    name: str
    rows: list[PartitionEnd]

    def totals(self, now: int) -> dict[str, Any]:
        missing = [row.missing for row in self.rows]
        timestamp = max(row.timestamp for row in self.rows)
        # A partition that stopped long ago may be quiet, or may not be mirrored: without the source nobody can tell.
        oldest = self._oldest()
        return {
            "topic": self.name,
            "mirrored": sum(row.mirrored for row in self.rows),
            "missing": None if None in missing else sum(count or 0 for count in missing),
            "lost": sum(row.lost for row in self.rows),
            "unmapped": sum(row.unmapped for row in self.rows),
            "timestamp": timestamp,
            "seconds_since": _seconds_since(timestamp, now),
            "oldest_partition": None if oldest is None else oldest.partition,
            "oldest_timestamp": -1 if oldest is None else oldest.timestamp,
            "oldest_seconds_since": None if oldest is None else _seconds_since(oldest.timestamp, now),
        }

    def _oldest(self) -> PartitionEnd | None:
        """Return the partition whose last record is the oldest one; None if no time is known."""
        return min((row for row in self.rows if row.timestamp >= 0), key=lambda row: row.timestamp, default=None)

    def _oldest_cell(self) -> str:
        oldest, unknown = self._oldest(), sum(row.timestamp < 0 for row in self.rows)
        if oldest is None:
            return "-"
        return f"{oldest.partition}: {_utc(oldest.timestamp)}" + (f", {unknown} unknown" if unknown else "")

    def cells(self, now: int) -> tuple[str, ...]:
        totals = self.totals(now)
        if totals["missing"] is not None:
            absent = f"{totals['missing']:,} records" if totals["missing"] else "nothing"
        elif totals["seconds_since"] is not None:
            absent = f"what was written in the last {totals['seconds_since']:,.0f} s"
            if totals["oldest_timestamp"] < totals["timestamp"]:
                since = f"the last {totals['oldest_seconds_since']:,.0f} s"
                absent += f", in partition {totals['oldest_partition']} in {since} unless it was quiet"
        else:
            absent = "unknown"
        if totals["lost"]:
            absent = f"{totals['lost']:,} records that it had, {absent}"
        mirrored = f"{totals['mirrored']:,} offsets" + (
            f" + {totals['unmapped']:,} records" if totals["unmapped"] else ""
        )
        return self.name, str(len(self.rows)), mirrored, _utc(totals["timestamp"]), self._oldest_cell(), absent


def _group_cells(row: GroupStart) -> tuple[str, ...]:
    offsets = [f"{number}:{'-' if offset is None else offset}" for number, offset in sorted(row.offsets.items())]
    more = f" +{len(offsets) - _MOST_OFFSETS}" if len(offsets) > _MOST_OFFSETS else ""
    starts = " ".join(offsets[:_MOST_OFFSETS]) + more
    return row.group, row.topic or "-", starts or "-", row.state.value, _at_most(row.again), _at_most(row.missing)


def _advice(row: GroupStart) -> str:
    return f"{row.group}: {row.topic}: {row.advice}" if row.topic else f"{row.group}: {row.advice}"


def _at_most(count: int | None) -> str:
    if count is None:
        return "-"
    return f"at most {count:,}" if count else "0"


def _seconds_since(timestamp: int, now: int) -> float | None:
    return None if timestamp < 0 else max(0.0, (now - timestamp) / 1000)


def _utc(timestamp: int) -> str:
    return "-" if timestamp < 0 else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp / 1000))
