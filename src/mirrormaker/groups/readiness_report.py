"""Whether groups could fail over now, as people and programs read it: a table with advice below it, and JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from mirrormaker.console.aligned import aligned
from mirrormaker.groups.left_out import also_reads
from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness, Readiness
from mirrormaker.status.figures import duration

_TITLES = ("GROUP", "TOPIC", "SOURCE OFFSET", "TARGET OFFSET", "STATE", "READ AGAIN", "MISSING", "LAST WRITTEN")
_MOST_ADVICE = 20  # lines: each row of a large table would repeat the same sentence


def lines(found: Readiness, now: float, *, partitions: bool = False) -> Iterator[str]:
    """Yield the table, and below it the way out for each group that is not ready."""
    if found.source_trouble:
        yield f"the source does not answer ({found.source_trouble}): its offsets are those that the mirror last wrote"
    if found.fence is not None:
        yield f"a failover closed this flow at {_utc(found.fence.time / 1000)} (by {found.fence.by}): no mirror writes any more"
    if not found.rows:
        yield "no chosen group has committed an offset in a mirrored topic"
        return
    yield from aligned(list(_partition_cells(found, now) if partitions else _cells(found, now)))
    waiting = [row for row in found.rows if not row.state.is_ready]
    yield f"ready to fail over: {len(found.rows) - len(waiting)} of {len(found.rows)}"
    if not partitions and any(len(row.partitions) > 1 for row in found.rows):
        yield "offsets and records of several partitions are added up; --partitions shows each"
    for row in waiting[:_MOST_ADVICE]:
        yield f"{row.group}{f' in {row.topic}' if row.topic else ''}: {row.state.value}: {row.advice}"
    if len(waiting) > _MOST_ADVICE:
        yield f"{len(waiting) - _MOST_ADVICE} more are not ready; --json has the advice for each"
    left_out = {row.group: row.left_out for row in found.rows if row.left_out}
    yield from (also_reads(group, topics, "not mirrored") for group, topics in list(left_out.items())[:_MOST_ADVICE])
    if len(left_out) > _MOST_ADVICE:
        yield f"{len(left_out) - _MOST_ADVICE} more groups read topics that are not mirrored; --json names them"


def _cells(found: Readiness, now: float) -> Iterator[Sequence[str]]:
    yield _TITLES
    for row in found.rows:
        yield (
            row.group,
            row.topic or "-",
            *map(_text, (_offsets(row, "source_offset"), _offsets(row, "target_offset"))),
            row.state.value,
            *map(_text, (row.again, row.missing)),
            _age(row, now),
        )


def _partition_cells(found: Readiness, now: float) -> Iterator[Sequence[str]]:
    yield (*_TITLES[:2], "PARTITION", *_TITLES[2:])
    for row in found.rows:
        for part in row.partitions:
            yield (
                row.group,
                row.topic or "-",
                _text(part.partition if row.topic else None),
                *map(_text, (part.source_offset, part.target_offset)),
                part.cost.state.value,
                *map(_text, (part.cost.again, part.cost.missing)),
                _age(row, now),
            )


def as_json(found: Readiness, now: float) -> dict[str, Any]:
    """Return the rows as a JSON object. Numbers that are not known are null."""
    return {
        "source": found.source,
        "target": found.target,
        "ready": found.is_ready,
        "source_trouble": found.source_trouble or None,
        "closed_by_failover": None if found.fence is None else found.fence.time / 1000,
        "groups": [
            {
                "group": row.group,
                "topic": row.topic or None,
                "state": row.state.value,
                "ready": row.state.is_ready,
                "source_offset": _offsets(row, "source_offset"),
                "target_offset": _offsets(row, "target_offset"),
                "read_again": row.again,
                "missing": row.missing,
                "last_written": row.written_at,
                "seconds_since_written": None if row.written_at is None else round(max(0.0, now - row.written_at), 1),
                "advice": row.advice or None,
                "not_mirrored": list(row.left_out),
                "partitions": [_partition_json(part) for part in row.partitions if row.topic],
            }
            for row in found.rows
        ],
    }


def _partition_json(part: PartitionReadiness) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "source_offset": part.source_offset,
        "target_offset": part.target_offset,
        "state": part.cost.state.value,
        "read_again": part.cost.again,
        "missing": part.cost.missing,
    }


def _offsets(row: GroupReadiness, name: str) -> int | None:
    """Return the sum of the offsets that there are; None if there is none."""
    known = [offset for part in row.partitions if (offset := getattr(part, name)) is not None]
    return sum(known) if known else None


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


def _age(row: GroupReadiness, now: float) -> str:
    if row.written_at is None:
        return "never"
    age = now - row.written_at
    return "now" if age < 1 else f"{duration(age)} ago"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
