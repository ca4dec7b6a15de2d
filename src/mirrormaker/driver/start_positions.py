"""Where a partition starts: at its ledger entry, at an offset of another program, or fresh; always under a committed identity."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from mirrormaker.driver.adoption import Adoption
from mirrormaker.driver.identities import allocate_identities
from mirrormaker.driver.owned_partition import NO_IDENTITY
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.source_loss import (
    end_of_leader_epoch,
    lost_before,
    records_ahead,
    truncated_after,
    was_created_again,
)
from mirrormaker.errors import (
    OUTAGE,
    BrokerError,
    ClusterError,
    DataError,
    LedgerError,
    PartitionError,
    Unanswered,
    describe,
)
from mirrormaker.events import event
from mirrormaker.events.partition_events import (
    LostRange,
    MirroredFromStart,
    NewTarget,
    NumberingChanged,
    RecreatedOnSource,
    RecreatedOnTarget,
    Renumbered,
    SentAgain,
    StartNote,
)
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import Cut, Position
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.cluster import Cluster, topic_id
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, find_offsets, wait_for_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import InitProducerIdRequest
from mirrormaker.wire.transport.turns import give_way, in_turns
from mirrormaker.worker.interrupts import RestartAt
from mirrormaker.worker.resume import read_back

_RETRIES = 50  # times 0.2 s: a new cluster has no producer ids to give for its first seconds

# What the group has committed for a partition: a position, or only an offset if another program has written it.
Entry = Position | int


@dataclass
class Starts:
    """Where partitions start: under their old identity, under a new one that must be committed first, or not for now."""

    continued: list[Position] = field(default_factory=list)
    started: list[Position] = field(default_factory=list)
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)


class StartPositions:
    """Turns assigned partitions into positions."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        settings: SourceSettings,
        routing: Routing,
        accept_new_target: bool,
        report: event.Report,
    ) -> None:
        self.source, self.target, self.settings, self.routing = source, target, settings, routing
        self._accept_new_target, self._report = accept_new_target, report
        self._adoption = Adoption(source, target, settings, routing, report)
        # False once the target has refused the producer epoch of mirrors.
        self._marks = True
        self._reported_recreated: dict[str, str] = {}  # by topic, the id of its newest incarnation that was reported

    async def find(
        self, keys: Collection[TopicPartition], entries: Mapping[TopicPartition, Entry], first_start: bool
    ) -> Starts:
        """Return where partitions start. `entries` are their committed offsets.

        A partition without one starts anew, unless the target holds its records already.
        """
        unknown = set(keys) - entries.keys()
        starts = Starts(failed=self._adoption.refused(unknown))
        fresh: dict[TopicPartition, int | None] = {}
        async for key in in_turns(set(keys) - starts.failed.keys()):
            entry = entries.get(key)
            try:
                start = await self._continue_from(entry) if isinstance(entry, Position) else entry
            except PartitionError as error:
                starts.failed[key] = error
                continue
            if isinstance(start, Position):
                starts.continued.append(start)
            else:
                fresh[key] = start
        started, failed = await self.start_fresh(fresh, first_start)
        settled, refused = await self._adoption.settle([p for p in started if p.key in unknown], first_start)
        starts.started = [p for p in started if p.key not in unknown] + settled
        starts.failed |= failed | refused
        return starts

    async def _continue_from(self, entry: Position) -> Position | int | None:
        """Return the ledger's position to go on from; or only its offset, if it needs a new identity; or None to start over."""
        key = entry.key
        if not entry.identity.is_numbered and await self.target.knows(InitProducerIdRequest):
            note = f"the target supports producer identities now; exactly once from offset {entry.offset} on"
            self._report(StartNote(*key, note))
            return entry.offset
        # Before 0.10.1 clusters have no ids.
        if entry.target_cluster and entry.target_cluster != self.target.id:
            self._require_new_target_accepted(entry)
            self._report(NewTarget(*key, entry.offset))
            return entry.offset
        for cluster, known_id in ((self.source, entry.topic_id), (self.target, entry.target_topic_id)):
            if known_id and topic_id(cluster, entry.topic) not in ("", known_id):
                # One answer is not believed: nothing in it has a checksum.
                await cluster.refresh([entry.topic])
        source_id, target_id = topic_id(self.source, entry.topic), topic_id(self.target, entry.topic)
        if entry.topic_id and source_id and entry.topic_id != source_id:
            self._report(RecreatedOnSource(*key))
            return None
        if entry.target_topic_id and target_id and entry.target_topic_id != target_id:
            self._report(RecreatedOnTarget(*key, entry.offset))
            return entry.offset
        by_key = self.routing.by_key(entry.topic)
        if entry.fingerprint != self.routing.fingerprint(entry.topic, by_key):
            await self._report_duplicates(entry)
            return entry.offset
        # A cluster that was upgraded has given its topics ids since the entry was written.
        return replace(
            entry,
            by_key=by_key,
            topic_id=entry.topic_id or source_id,
            target_topic_id=entry.target_topic_id or target_id,
        )

    def _require_new_target_accepted(self, entry: Position) -> None:
        if not self._accept_new_target:
            raise LedgerError(
                f"group {self.settings.group_id} has mirrored {entry.topic}-{entry.partition} to cluster"
                f" {entry.target_cluster}, and the target is now {self.target.id} ({self.target.endpoint}): use another group.id"
                " to mirror from the start, or --accept.new.target to go on from the committed offsets"
            )

    async def _report_duplicates(self, entry: Position) -> None:
        """Other settings number the records differently: records that the target holds past the ledger entry come again."""
        present: int | None = 0
        for cut in entry.cuts:
            if cut.topic and cut.topic not in self.target.topics:
                await self.target.refresh([cut.topic])
            try:
                found, _ = await read_back(self.target, cut.topic or entry.topic, Channel(entry.identity, cut))
                present = (present or 0) + found
            except (DataError, *OUTAGE):
                present = None
                break
        if present != 0:
            count = "some" if present is None else str(present)
            self._report(NumberingChanged(*entry.key, entry.offset, count))

    async def start_fresh(
        self, offsets: Mapping[TopicPartition, int | None], first_start: bool, handler_topics: Iterable[str] = ()
    ) -> tuple[list[Position], dict[TopicPartition, Exception]]:
        """Return positions under new identities at the given offsets, and the errors of partitions that cannot start.

        An offset of None means where the settings say. `handler_topics` are topics that a message handler writes to.
        """
        starts, failed = await self._offsets_by_settings(
            [key for key, offset in offsets.items() if offset is None], first_start
        )
        starts |= {key: offset for key, offset in offsets.items() if offset is not None}
        await give_way()
        for name in handler_topics if starts else ():
            await self._find_handler_topic(name)
        blanks: dict[str, Position] = {}
        for topic in {topic for topic, _ in starts}:
            try:
                blanks[topic] = self._blank(topic)
            except PartitionError as error:
                failed |= {key: error for key in starts if key[0] == topic}
        places = {
            key: self.routing.places(*key, blanks[key[0]].by_key, handler_topics)
            async for key in in_turns(starts)
            if key not in failed
        }
        # The high watermark, not the log end: records that are not replicated may vanish, and our first record would
        # then lie before the cut.
        ends, missing = await find_offsets(
            self.target, {(topic or key[0], p) for key, found in places.items() for topic, p in found}, LATEST
        )
        async for key, found in in_turns(places.items()):
            errors = [missing[topic or key[0], p] for topic, p in found if (topic or key[0], p) in missing]
            if errors:
                failed[key] = _unanswered(self.target, key, errors[0])
        wanted = [key for key in places if key not in failed]
        identities, refused = await allocate_identities(self.target, wanted, marked=self._marks)
        failed |= refused
        positions = [
            replace(
                blanks[key[0]],
                partition=key[1],
                offset=starts[key],
                identity=identity,
                cuts=tuple(Cut(p, 0, ends[topic or key[0], p], topic) for topic, p in places[key]),
            )
            async for key, identity in in_turns(identities.items())
        ]
        return positions, failed

    def _blank(self, topic: str) -> Position:
        """Return a position with everything that the topic's partitions have in common.

        It is made before their offsets are asked for. If the topic is created again meanwhile, the id in the ledger is the
        old one, and the next look at the topic tells.
        """
        by_key = self.routing.by_key(topic)
        return Position(
            topic=topic,
            partition=-1,
            offset=-1,
            leader_epoch=-1,
            topic_id=topic_id(self.source, topic),
            identity=NO_IDENTITY,
            target_cluster=self.target.id,
            target_topic_id=topic_id(self.target, topic),
            target_partitions=len(self.target.topics[topic].partitions),
            cuts=(),
            fingerprint=self.routing.fingerprint(topic, by_key),
            by_key=by_key,
        )

    async def _offsets_by_settings(
        self, keys: list[TopicPartition], first_start: bool
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Exception]]:
        """Return where partitions without an offset start: at a group's first start `auto.offset.reset` says it."""
        reset = self.settings.auto_offset_reset or "earliest"
        if keys and first_start and reset == "none":
            raise ClusterError(
                f"group {self.settings.group_id} has no committed offset for {keys[0][0]}-{keys[0][1]}, and"
                " auto.offset.reset=none forbids to choose one; set it to earliest or latest"
            )
        when = LATEST if first_start and reset == "latest" else EARLIEST
        found, failed = await find_offsets(self.source, keys, when, self.settings.read_committed)
        return found, {key: _unanswered(self.source, key, error) for key, error in failed.items()}

    async def _find_handler_topic(self, topic: str) -> None:
        """Find a topic that only a message handler names; a broker that creates topics on demand creates it now."""
        for _ in range(_RETRIES):
            await self.target.refresh([topic], create=True)
            found = self.target.topics.get(topic)
            if found and all(self.target.leader(topic, p) for p in found.partitions):
                return
            await asyncio.sleep(0.2)
        raise PartitionError(
            f"the message handler sends to {topic}, which is not on {self.target.endpoint}: create it there first"
        )

    # -- going on under a new identity

    async def restart(
        self,
        position: Position,
        restart_at: int,
        reason: str,
        handler_topics: Iterable[str] = (),
        same_records: bool = False,
    ) -> tuple[Position, LostRange | None]:
        """Return the partition's position under a new identity, and the range that is lost, if any.

        `same_records`: the records that follow are the same, so those that the target already holds are not sent again.
        """
        if restart_at == RestartAt.UNMARKED:
            self._marks, restart_at = False, RestartAt.FORGOTTEN
        topics = {*handler_topics, *(cut.topic for cut in position.cuts)} - {""}
        key = position.key
        await self.source.refresh([position.topic])
        await self.target.refresh([position.topic])
        if not self.routing.is_known(position.topic):
            raise PartitionError(f"{position.topic}-{position.partition} stops: {reason}, and the topic is gone")
        if position.target_cluster and self.target.id and position.target_cluster != self.target.id:
            raise PartitionError(
                f"{position.topic}-{position.partition} stops: it was mirrored to cluster {position.target_cluster}, and"
                f" {self.target.endpoint} is cluster {self.target.id} now: restart the mirror"
            )
        offset, ahead, lost = await self._restart_offset(position, restart_at, reason)
        nothing_is_gone = offset == position.offset and restart_at in (RestartAt.OUT_OF_RANGE, RestartAt.TRUNCATED)
        same_records |= restart_at == RestartAt.FORGOTTEN or nothing_is_gone
        self._report_restart(position, restart_at, reason, offset)
        positions, failed = await self.start_fresh({key: offset}, False, sorted(topics))
        if failed:
            raise failed[key]
        (new,) = positions
        if same_records:
            cuts = tuple(_keep_ahead(cut, position.cut(cut.partition, cut.topic)) for cut in new.cuts)
            new = replace(new, cuts=cuts)
        elif ahead and len(new.cuts) == 1:
            new = replace(new, cuts=(_keep_ahead(new.cuts[0], position.cuts[0]._replace(ahead=ahead)),))
        elif any(cut.ahead for cut in position.cuts) and restart_at in (RestartAt.OUT_OF_RANGE, RestartAt.TRUNCATED):
            self._report(SentAgain(*key, sum(cut.ahead for cut in position.cuts)))
        same_place = restart_at in (RestartAt.SAME_PLACE, RestartAt.FORGOTTEN) and offset == position.offset
        return replace(new, leader_epoch=position.leader_epoch if same_place else -1), lost

    def _report_restart(self, position: Position, restart_at: int, reason: str, offset: int) -> None:
        """Report a topic that was created again once, everything else for each partition."""
        topic = position.topic
        if restart_at != RestartAt.FROM_THE_START:
            self._report(Renumbered(topic, position.partition, reason, offset))
        elif self._reported_recreated.get(topic) != topic_id(self.source, topic):
            self._reported_recreated[topic] = topic_id(self.source, topic)
            self._report(MirroredFromStart(topic, reason))

    async def _restart_offset(
        self, position: Position, restart_at: int, reason: str
    ) -> tuple[int, int, LostRange | None]:
        """Return the source offset to go on at, how many records from there on the target holds, and the lost range."""
        key = position.key
        start = (await wait_for_offsets(self.source, [key], EARLIEST))[key]
        if restart_at == RestartAt.FROM_THE_START:
            return start, 0, None
        if restart_at in (RestartAt.SAME_PLACE, RestartAt.FORGOTTEN):
            return position.offset, 0, None
        end = (await wait_for_offsets(self.source, [key], LATEST))[key]
        reached = position.offset + records_ahead(position)
        if end < reached and await was_created_again(self.source, position):
            self._report(RecreatedOnSource(*key))
            return start, 0, None
        agreed = await end_of_leader_epoch(self.source, position)
        # Behind the position another leader may have gone on in the same way: the resume compares those records.
        if (agreed is not None and agreed < position.offset) or end < reached:
            agreed = min(end, position.offset if agreed is None else agreed)
            return agreed, 0, truncated_after(position, agreed)
        offset = max(start, position.offset)
        if reached >= offset:
            return offset, reached - offset, None
        reset = self.settings.auto_offset_reset or "earliest"
        if reset == "none":
            raise PartitionError(
                f"{key[0]}-{key[1]} stops: {reason}, and auto.offset.reset=none forbids to go on elsewhere"
            )
        offset = start if reset == "earliest" else end
        return offset, 0, await lost_before(self.source, position, offset)


def _unanswered(cluster: Cluster, key: TopicPartition, error: Exception) -> Exception:
    """Return the error of a partition whose offsets cannot be found: one that lasts, or one that is worth waiting for."""
    text = f"{cluster.endpoint} does not tell the offsets of {key[0]}-{key[1]}: {describe(error)}"
    is_final = isinstance(error, BrokerError) and not error.retriable
    return PartitionError(text) if is_final else Unanswered(text, key[0])


def _keep_ahead(new: Cut, old: Cut) -> Cut:
    """Keep the count of records ahead, and the offset after the last of them: a resume compares it with the source's."""
    return new._replace(ahead=old.ahead, offset=old.offset) if old.ahead else new
