"""A difference in words: which field of which record, and its offsets on both sides."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mirrormaker.errors import ClusterError
from mirrormaker.verification.causes import CHANGED, DOUBLED, MISSING, MOVED, Difference
from mirrormaker.verification.plan import TARGET
from mirrormaker.verification.spans import Job, opened
from mirrormaker.wire.records.arrow import to_table

_FIELDS = ("key", "value", "headers", "timestamp")


def text(difference: Difference, job: Job) -> str:
    """One line."""
    source, target = f"{difference.topic}-{difference.partition}", f"{difference.topic}-{difference.place}"
    ours, theirs = difference.source_offset, difference.target_offset
    near = difference.near
    if difference.kind == CHANGED:
        fields = _changed(difference, job)
        return f"{source}: {fields} changed: source offset {ours}, target {_there(source, target)}offset {theirs}"
    if difference.kind == MISSING:
        place = f"behind offset {near}" if near is not None and near >= 0 else "before its first record"
        return f"{source}: missing: source offset {ours}, on the target {_there(source, target)}{place}"
    if difference.kind == MOVED:
        return f"{source}: out of order: source offset {ours}, target {_there(source, target)}offset {theirs}"
    if difference.kind == DOUBLED:
        return f"{target}: twice: source offset {near}, again at target offset {theirs}"
    place = f"behind offset {near}" if near is not None and near >= 0 else "before its first record"
    return f"{target}: unknown to the source: target offset {theirs}, on the source {place}"


def _there(source: str, target: str) -> str:
    return "" if source == target else f"{target} "


def _changed(difference: Difference, job: Job) -> str:
    """Which fields are not the same."""
    name = difference.topic
    assert difference.source_offset is not None and difference.target_offset is not None
    try:
        left = _record(job, difference.side, name, difference.partition, difference.source_offset)
        right = _record(job, TARGET, name, difference.place, difference.target_offset)
    except (ClusterError, pa.ArrowInvalid, UnicodeDecodeError):  # gone by now, or headers whose names are no text
        return "content"
    return " and ".join(field for field in _FIELDS if left.get(field) != right.get(field)) or "content"


def _record(job: Job, side: int, topic: str, partition: int, offset: int) -> dict[str, Any]:
    with opened(job, side) as logs:
        for piece in logs.read(topic, partition, offset, offset + 1):
            row: dict[str, Any] = to_table(piece.records).to_pylist()[0]
            return row
    return {}
