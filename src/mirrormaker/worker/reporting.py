"""The reports of one stream: each says what has changed since the last one, and nothing twice.

The control connection delivers every report once and in order, or ends, and the stream ends with it. So a partition counts as told
as soon as it is in a report, and its counters start again from zero. Whether the driver answers decides only on the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mirrormaker.control.control_messages import (
    CannotDeliver,
    Ended,
    NeedsIdentity,
    Outcome,
    PartitionReport,
    Released,
    Report,
    Stopped,
    Take,
)
from mirrormaker.errors import MirrorError, Undeliverable
from mirrormaker.model.position import Position
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.worker.counters import cpu_seconds, memory_bytes
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.interrupts import Renumber

# Everything of a cursor that a report has and that changes: offset and leader epoch, records, high watermark, state and note.
# Bytes and batches change with the records, cuts with the offset.
_Facts = tuple[int, int, int, int, str, str]


class Reporting:
    """Collects what the driver does not know yet."""

    def __init__(self) -> None:
        # Set if the next report must not wait for its time. However much happens in one turn of the event loop, it is one report.
        self.is_urgent = asyncio.Event()
        self._told: dict[int, _Facts] = {}  # by tenancy
        self._ended: list[Ended] = []
        self._never_taken: list[TopicPartition] = []
        self._number = 0
        self._cpu_before = cpu_seconds()  # Spark may have used this process for another task before

    def ended(self, cursor: Cursor) -> None:
        """Report the end of a cursor."""
        part = _partition_report(cursor, cursor.closing, clean=cursor.is_clean)
        self._told.pop(cursor.tenancy, None)
        self._ended.append(Ended(part, _outcome(cursor.done.result())))
        self.is_urgent.set()

    def never_began(self, take: Take) -> None:
        """Report the end of a tenancy that the driver wants back before it has begun."""
        # The cursor that had the partition before may have requests under way.
        part = PartitionReport(take.position, take.tenancy, "released", clean=False)
        self._ended.append(Ended(part, Released()))
        self.is_urgent.set()

    def never_taken(self, key: TopicPartition) -> None:
        """Report that the stream does not have a partition that it is asked to release."""
        self._never_taken.append(key)
        self.is_urgent.set()

    def report(self, cursors: Iterable[Cursor], buffer_bytes: int) -> Report:
        """Return the next report: the changes of these cursors, and all that has ended."""
        self._number += 1
        changed = tuple(_partition_report(cursor, cursor.current) for cursor in cursors if self._is_news(cursor))
        ended, self._ended = self._ended, []
        never_taken, self._never_taken = self._never_taken, []
        return Report(
            self._number,
            changed,
            tuple(ended),
            tuple(never_taken),
            buffer_bytes=buffer_bytes,
            cpu_seconds=round(cpu_seconds() - self._cpu_before, 3),
            memory_bytes=memory_bytes(),
        )

    def _is_news(self, cursor: Cursor) -> bool:
        """Return True if the driver does not know how far the cursor is, and count it as told."""
        progress = cursor.progress
        facts = progress.offset, progress.epoch, cursor.records, cursor.high_watermark, cursor.state, cursor.note
        # A comparison takes half a microsecond, and no one can forget to mark a cursor as changed.
        if facts == self._told.get(cursor.tenancy) and not cursor.counters.has_news:
            return False
        self._told[cursor.tenancy] = facts
        return True


def _partition_report(cursor: Cursor, position: Position, *, clean: bool = False) -> PartitionReport:
    return PartitionReport(
        position,
        cursor.tenancy,
        cursor.state,
        cursor.note,
        cursor.records,
        cursor.bytes,
        cursor.high_watermark,
        clean,
        cursor.counters.collect(),
        tuple(
            (o.place, o.run_notes.collect()) for o in cursor.outlets if o.run_notes is not None and o.run_notes.has_news
        ),
    )


def _outcome(why: Exception | None) -> Outcome:
    """Translate the reason for which a cursor ended."""
    if why is None:
        return Released()
    if isinstance(why, Renumber):
        return NeedsIdentity(int(why.where), why.reason, tuple(why.topics))
    if isinstance(why, Undeliverable):
        return CannotDeliver(why.offset, why.cause, str(why))
    return Stopped(str(why), final=isinstance(why, MirrorError) and not why.retriable)
