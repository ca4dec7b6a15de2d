"""Resuming: the target's own log says how many records after a position it holds already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from mirrormaker.errors import BrokerError, LogReplaced, NumbersBroken, RecordsLost
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE
from mirrormaker.model.numbers import Channel, LoggedBatch
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.records.batch import Batch, Batches
from mirrormaker.wire.records.columns import unpack_in_pieces
from mirrormaker.worker.outlet import Outlet, RecordDigest, UnconfirmedBatch
from mirrormaker.worker.run_notes import SkippedPlaces
from mirrormaker.worker.target_log import TargetLog

_MAX_UNPACKED, _PIECE = 1 << 30, 4 << 20  # bytes of the last batch found once it is unpacked, and of it at a time
_PARALLEL_SCANS = 4  # target partitions that are read at the same time for one source partition
_TAIL = 1000  # offsets at the end of a log that is shorter than it was


def restart_outlets(
    outlets: Sequence[Outlet], identity: Identity, cut_of: Callable[[Outlet], Cut], *, clean: bool
) -> list[Outlet]:
    """Set each outlet to its cut; return those whose log must be read, because the target may hold records after it.

    `clean`: the target certainly holds nothing after the cuts.
    """
    unknown: list[Outlet] = []
    for outlet in outlets:
        cut = cut_of(outlet)
        if not outlet.stands_at(cut):
            outlet.restart(identity, cut)
            if clean or not identity.is_numbered:
                outlet.channel.resume([])
            else:
                unknown.append(outlet)
        else:
            outlet.skipped_places = None  # the map knows the records that are ahead
        outlet.skip, outlet.last_skipped = cut.ahead, None
    return unknown


async def scan_outlets(
    target: Cluster, unknown: Sequence[Outlet], ahead: Sequence[Outlet], cut_of: Callable[[Outlet], Cut]
) -> None:
    """Set what each outlet has to skip, from the logs of the target partitions.

    `unknown` are outlets whose log must be read from their cut on. `ahead` are outlets whose cut says that the target
    holds records from after the position; the last one of them is read, so that it can be compared with the source's.
    """
    slots = asyncio.Semaphore(_PARALLEL_SCANS)

    async def scan(outlet: Outlet) -> None:
        async with slots:
            last = None
            if outlet in unknown:
                try:
                    last = await _scan(target, outlet)
                except NumbersBroken:
                    # The metadata may be outdated: in another topic of the same name other numbers are no wonder.
                    await target.refresh([outlet.topic])
                    outlet.cursor.stream.check_topics(outlet.cursor)
                    raise
            if last is None and outlet in ahead:
                last = await read_last(target, outlet.topic, cut_of(outlet))
            outlet.last_skipped = last

    tasks = [asyncio.ensure_future(scan(outlet)) for outlet in {*unknown, *ahead}]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _scan(target: Cluster, outlet: Outlet) -> RecordDigest | None:
    """Set what an outlet has to skip from the log after its cut; return the last record of ours there."""
    channel = outlet.channel
    try:
        present, last = await _read_after_cut(target, outlet)
    except NumbersBroken:
        if not await _correct_offset(TargetLog(target, outlet.topic, channel.partition), channel):
            raise
        present, last = await _read_after_cut(target, outlet)
    outlet.contradiction = None
    if outlet.sequence_refusals > 1 and not present:
        remembered = await TargetLog(target, outlet.topic, channel.partition).last_sequence(channel.identity)
        if remembered is not None:
            channel.check_not_behind(remembered)
    outlet.unconfirmed = None
    outlet.skip += present
    return last


async def _read_after_cut(target: Cluster, outlet: Outlet) -> tuple[int, RecordDigest | None]:
    """Read the log of an outlet; raise its contradiction unless the log has the batch in question after the others."""
    unconfirmed = outlet.repeatable_batch()
    try:
        present, last = await read_back(
            target,
            outlet.topic,
            outlet.channel,
            unconfirmed,
            is_compacted=outlet.is_compacted,
            is_same_topic=outlet.is_same_topic,
            places=outlet.skipped_places,
        )
    finally:
        if unconfirmed is not None and unconfirmed.is_under_way:
            # It was sent again, and no answer has come: a leader may append it later.
            unconfirmed.is_under_way = False
            outlet.cursor.requests_lost()
    if outlet.contradiction is not None and not present:
        raise outlet.contradiction
    return present, last


async def _correct_offset(log: TargetLog, channel: Channel) -> bool:
    """Look for the last acknowledged batch near the offset that was acknowledged; return False if it ends there.

    The offset in an answer has no checksum: it may have been damaged on its way.
    """
    end = await log.replicated_end(None)
    first = max(await log.start(), min(channel.offset, end) - _TAIL)
    found = _end_of_acknowledged(channel, (await _own_batches(log, channel.identity, first, end))[0])
    if found is None or found == channel.offset:
        return False
    channel.offset = found
    return True


def _end_of_acknowledged(channel: Channel, logged: Iterable[LoggedBatch]) -> int | None:
    """Return the offset after the last acknowledged record, if it is in the log."""
    return next((batch.last_offset + 1 for batch in logged if channel.missing_after(batch.last_sequence) == 0), None)


async def read_back(
    target: Cluster,
    topic: str,
    channel: Channel,
    unconfirmed: UnconfirmedBatch | None = None,
    *,
    is_compacted: bool = False,
    is_same_topic: bool = False,
    places: SkippedPlaces | None = None,
) -> tuple[int, RecordDigest | None]:
    """Read the target's log from the channel's cut to its end; return how many records of ours it holds, and the last.

    `is_same_topic`: the topic's id proves that it was not created again since the cut. `places` gets the places of the records.
    """
    log = TargetLog(target, topic, channel.partition)
    log.leader()
    end = await log.replicated_end(unconfirmed)
    start = await log.start()
    if end < channel.offset:
        channel.offset = await _explain_shorter_log(log, topic, channel, start, end, is_same_topic)
    log_start_passed = start > channel.offset
    logged, last = await _own_batches(log, channel.identity, max(start, channel.offset), end)
    if places is not None:
        places.found(logged)
    if log_start_passed and not logged:
        remembered = await log.last_sequence(channel.identity)
        if remembered is not None:
            logged = [LoggedBatch(end - 1, end - 1, channel.identity, remembered, remembered, 1)]
    present = channel.resume(logged, log_start_passed=log_start_passed, is_compacted=is_compacted)
    return present, _last_record(last) if last is not None else None


async def _explain_shorter_log(
    log: TargetLog, topic: str, channel: Channel, start: int, end: int, is_same_topic: bool
) -> int:
    """Raise the reason why a log ends before an offset that it had acknowledged.

    If nothing of ours is missing, the offset was wrong: return the right one.
    Numbers of ours from before the cut prove that it is still the same log. They are looked for only at its end: where
    the log was cut off, the last records that it had acknowledged come right before.
    """
    logged, _ = await _own_batches(log, channel.identity, max(start, end - _TAIL), end)
    if (found := _end_of_acknowledged(channel, logged)) is not None:
        return found
    after = [channel.missing_after(batch.last_sequence) for batch in logged]
    missing = min((count for count in after if count is not None), default=None)
    if missing is None and not is_same_topic:
        raise LogReplaced(topic)
    count = f"at most {channel.offset - end}" if missing is None else str(missing)
    raise RecordsLost(
        f"LOST {count} records that the target had acknowledged: its log ends at offset {end}, before {channel.offset}"
    )


async def _own_batches(
    log: TargetLog, identity: Identity, start: int, end: int
) -> tuple[list[LoggedBatch], Batch | None]:
    """Return the numbers of a producer's batches from one offset to another, and the last of these batches."""
    logged: list[LoggedBatch] = []
    last: Batch | None = None
    while start < end:
        reached = 0
        for batch in await log.fetch(start):
            reached = batch.last_offset + 1
            producer = Identity(batch.producer_id, batch.producer_epoch)
            if reached > start and producer == identity and not batch.is_control:
                batch.check()
                logged.append(
                    LoggedBatch(
                        batch.base_offset, batch.last_offset, identity,
                        batch.base_sequence, batch.last_sequence, batch.count,
                    )
                )  # fmt: skip
                last = batch
        if reached <= start:  # nothing, or only messages of an older format, which a mirror never writes
            raise BrokerError(NOT_LEADER_OR_FOLLOWER, f"the target returned no batch of {log} at offset {start}")
        start = reached
    return logged, last


async def read_last(target: Cluster, topic: str, cut: Cut) -> RecordDigest | None:
    """Return the record right before a cut's offset, which is ours; None if it is no longer there."""
    try:
        batches = await TargetLog(target, topic, cut.partition).fetch(cut.offset - 1) if cut.offset else []
    except BrokerError as error:
        if error.code != OFFSET_OUT_OF_RANGE:
            raise
        return None
    last = next((batch for batch in batches if batch.last_offset == cut.offset - 1), None)
    if last is None:
        return None
    last.check()
    return _last_record(last)


def _last_record(batch: Batch) -> RecordDigest | None:
    """Return the batch's last record; None if compaction has removed it."""
    for piece in unpack_in_pieces(Batches.of(batch), _MAX_UNPACKED, _PIECE):
        records = piece.records
    if not len(records) or records.offsets[-1] != batch.last_offset:
        return None
    return RecordDigest.of(records, -1)
