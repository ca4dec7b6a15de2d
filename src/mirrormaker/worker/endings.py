"""The error that a cursor ends with when it cannot go on, decided once it is certain what the target holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrormaker.errors import (
    OUTAGE,
    DataError,
    LogReplaced,
    NumbersBroken,
    RecordsLost,
    Undeliverable,
    UnsupportedRequest,
)
from mirrormaker.worker.interrupts import Released, Renumber, RestartAt

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor

_NOT_PROVED = (
    "a record cannot be delivered, nor is it proved that the target holds those before it, so some are sent again"
)
_MUST_BE_CERTAIN = (RestartAt.OUT_OF_RANGE, RestartAt.TRUNCATED, RestartAt.FORGOTTEN, RestartAt.UNMARKED)


async def ending_for(cursor: Cursor, error: Exception) -> Exception | None:
    """Return the error that the cursor ends with because of `error`; None if it has to try again before that.

    The driver gives up a record, moves past lost ones, or adds target partitions. It must not send the others again, so
    the target's logs are read before that.
    """
    if isinstance(error, Undeliverable):
        error = cursor.first_undeliverable or error
    try:
        if isinstance(error, RecordsLost):
            return _ending_after_loss(cursor, error)
        if isinstance(error, LogReplaced):
            return await _ending_in_new_log(cursor, error)
        # The limit of a record and the cleanup policy may have changed since they were read.
        if isinstance(error, NumbersBroken | Undeliverable) and await _settings_changed(cursor):
            return None
        if isinstance(error, DataError):
            reason = f"reading the target back: {error}"
            return cursor.stop_error(cursor.offset, reason, final=isinstance(error, NumbersBroken))
        return error if await _may_end_with(cursor, error) else None
    except Renumber as need:
        return need
    except (DataError, Released, UnsupportedRequest, *OUTAGE):
        return None


def _ending_after_loss(cursor: Cursor, lost: RecordsLost) -> Exception:
    """Return the error for records that the target had acknowledged and has lost: at least once may go on, exactly once not."""
    if cursor.stream.work.acks != -1:
        return Renumber(RestartAt.SAME_PLACE, f"{lost}, as acks=1 allows")
    return cursor.stop_error(
        cursor.offset,
        f"{lost}; stop the mirror and set the committed offset with kafka-consumer-groups --reset-offsets:"
        " to an earlier one to mirror them again, or to this one to go on without them",
    )


async def _ending_in_new_log(cursor: Cursor, replaced: LogReplaced) -> Exception:
    """Return the request for a new identity, once it is certain which of our records a topic's new logs hold."""
    _move_to_new_log(cursor, replaced.topic)
    try:
        await cursor.make_certain()
    except NumbersBroken:
        return Renumber(RestartAt.SAME_PLACE, f"{replaced}, so some records may be sent again")
    return Renumber(RestartAt.FORGOTTEN, str(replaced))


def _move_to_new_log(cursor: Cursor, topic: str) -> None:
    """Look for our records from the start of a target topic's logs: the topic was deleted and created again.

    A batch that was sent by the topic's name may lie there already, at an offset that the new log has acknowledged.
    """
    for outlet in cursor.outlets:
        if outlet.topic == topic:
            offset = outlet.contradicted_at
            if outlet.contradiction is not None:
                # The new log has a batch of ours. If it was read since then, that began at the old log's offset: too late.
                outlet.channel.stop_until_log_read()
            outlet.contradiction, outlet.channel.offset = None, offset
            cursor.progress.cuts[outlet.place] = cursor.cut_of(outlet)._replace(offset=offset)


async def _settings_changed(cursor: Cursor) -> bool:
    topics = {outlet.topic for outlet in cursor.outlets}
    return await cursor.stream.metadata.have_settings_changed(topics, cursor.settings_seen)


async def _may_end_with(cursor: Cursor, error: Exception) -> bool:
    """Return True if it is certain what the target holds, as far as the driver needs that to handle this error."""
    if isinstance(error, Renumber):
        if not error.topics and error.where not in _MUST_BE_CERTAIN:
            return True
    elif not isinstance(error, Undeliverable):
        return True
    units = cursor.progress.units
    first = units[0] if units else None
    # Numbers that are ahead in a topic that is gone must not be carried over to the topic that has its name now.
    await cursor.stream.metadata.refresh_target({outlet.topic for outlet in cursor.outlets})
    cursor.stream.check_topics(cursor)
    await cursor.make_certain()
    if not isinstance(error, Undeliverable):
        return True
    if error.unit is not None and first is error.unit:
        if cursor.progress.is_doubted and any(outlet.is_compacted for outlet in cursor.outlets):
            # Records that were never mirrored may count as skipped, and the driver would go on after them.
            raise Renumber(RestartAt.SAME_PLACE, _NOT_PROVED)
        cursor.given_up = first.counts
        # The driver goes on after the record, so what is ahead must count from there.
        cursor.progress.doubt(False)
        return True
    return error.unit is None and first is None
