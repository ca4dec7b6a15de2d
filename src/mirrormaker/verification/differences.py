"""The possible outcomes for a record when both sides are compared, and the text of a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrormaker.errors import ClusterError
from mirrormaker.verification.outcomes import CHANGED, DOUBLED, MISSING, OUT_OF_ORDER
from mirrormaker.verification.plan import TARGET
from mirrormaker.verification.spans import TaskInput
from mirrormaker.wire.records.arrow import to_table

_FIELDS = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True)
class Difference:
    """One record that is not the same on both sides."""

    kind: str
    topic: str
    side: int
    partition: int
    target_partition: int
    source_offset: int | None
    target_offset: int | None
    # On the side that lacks the record: the offset of the record before its place. Of a doubled record: its source
    # offset.
    neighbour: int | None = None


def describe_difference(difference: Difference, task: TaskInput) -> str:
    """Return one line without any content of the record. A changed record is read again to name its fields."""
    source = f"{difference.topic}-{difference.partition}"
    target = f"{difference.topic}-{difference.target_partition}"
    on_target = "" if source == target else f"{target} "
    ours, theirs, neighbour = difference.source_offset, difference.target_offset, difference.neighbour
    place = f"after offset {neighbour}" if neighbour is not None and neighbour >= 0 else "before its first record"
    if difference.kind == CHANGED:
        fields = _changed_fields(difference, task)
        return f"{source}: {fields} changed: source offset {ours}, target {on_target}offset {theirs}"
    if difference.kind == MISSING:
        return f"{source}: missing: source offset {ours}, on the target {on_target}{place}"
    if difference.kind == OUT_OF_ORDER:
        return f"{source}: out of order: source offset {ours}, target {on_target}offset {theirs}"
    if difference.kind == DOUBLED:
        return f"{target}: twice: source offset {neighbour}, again at target offset {theirs}"
    return f"{target}: unknown to the source: target offset {theirs}, on the source {place}"


def _changed_fields(difference: Difference, task: TaskInput) -> str:
    assert difference.source_offset is not None and difference.target_offset is not None
    topic = difference.topic
    try:
        ours = _read_record(task, difference.side, topic, difference.partition, difference.source_offset)
        theirs = _read_record(task, TARGET, topic, difference.target_partition, difference.target_offset)
    except (ClusterError, pa.ArrowInvalid, UnicodeDecodeError):
        # The record is gone by now, or the name of a header is no text.
        return "content"
    return " and ".join(field for field in _FIELDS if ours.get(field) != theirs.get(field)) or "content"


def _read_record(task: TaskInput, side: int, topic: str, partition: int, offset: int) -> dict[str, Any]:
    with task.open_log(side) as log:
        for part in log.read(topic, partition, offset, offset + 1):
            record: dict[str, Any] = to_table(part.records).to_pylist()[0]
            return record
    return {}
