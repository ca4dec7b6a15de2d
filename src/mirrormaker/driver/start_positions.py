"""Where a partition starts: from its ledger entry, from a foreign offset, or fresh; always under an identity that is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mirrormaker.driver.source_loss import cut_back, end_of_epoch, lost_before, there_already
from mirrormaker.errors import (
    OUTAGE,
    BrokerError,
    ClusterError,
    DataError,
    LedgerError,
    PartitionError,
    Unanswered,
)
from mirrormaker.model.fingerprint import fingerprint_of
from mirrormaker.model.ledger import unpack
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import UNNUMBERED, Cut, Identity, Place, Position
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.acls import CLUSTER_DENIED, denied
from mirrormaker.wire.client.cluster import Cluster, topic_id
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, wait_for_offsets
from mirrormaker.wire.protocol.messages import InitProducerIdRequest
from mirrormaker.worker.interrupts import FORGOTTEN, FROM_THE_START, OUT_OF_RANGE, SAME_PLACE, TRUNCATED
from mirrormaker.worker.resume import read_back

Key = tuple[str, int]
Say = Callable[[str], None]

_RETRIES = 50  # times 0.2 s: a new cluster has no producer ids to give for its first seconds
_AT_ONCE = 50  # identities asked for side by side


@dataclass(frozen=True)
class Routing:
    """What decides where records go, besides the number of partitions."""

    path: str  # of the file that says it
    partition_by: str | None
    handler: tuple[str, str | None] | None


class StartPositions:
    """Turns assigned partitions into positions."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        settings: SourceSettings,
        routing: Routing,
        accept_new_target: bool,
        say: Say,
    ) -> None:
        self.source, self.target, self.settings, self.routing = source, target, settings, routing
        self.accept_new_target = accept_new_target
        self.say = say
        self._said: dict[str, str] = {}  # topics that were created again, by the id that was spoken of

    def by_key(self, topic: str) -> bool:
        """Do the topic's records go where their keys say, or to the partition of the same number?"""
        here, there = (len(cluster.topics[topic].partitions) for cluster in (self.source, self.target))
        if self.routing.partition_by == "same" and there < here:
            raise PartitionError(
                f"{topic} has {here} partitions on the source and {there} on the target: with partition.by=same"
                f" ({self.routing.path}) some would have nowhere to go; add partitions on the target, or partition by key"
            )
        return here != there if self.routing.partition_by is None else self.routing.partition_by == "key"

    def fingerprint(self, topic: str, by_key: bool) -> int:
        """Of what decides which number a record gets."""
        committed, handler = self.settings.read_committed, self.routing.handler
        if not by_key and handler is None:
            return int(committed)
        partitions = len(self.target.topics[topic].partitions) if by_key else 0
        return fingerprint_of(committed, partitions, self.routing.partition_by, handler)

    async def positions(
        self, keys: Iterable[Key], committed: dict[Key, tuple[int, str]], first_start: bool
    ) -> tuple[list[Position], list[Position]]:
        """(positions that go on under their old identity, positions that start under a new one and must be committed)."""
        going_on: list[Position] = []
        fresh: dict[Key, int | None] = {}
        for key in keys:
            if key not in committed:
                fresh[key] = None
                continue
            offset, metadata = committed[key]
            known = unpack(*key, offset, metadata)
            verdict = await self._judge(known) if known else offset
            if isinstance(verdict, Position):
                going_on.append(verdict)
            else:
                fresh[key] = verdict
        started = await self.start_anew(fresh, first_start)
        new = [position for position in started if position.key not in committed]
        held = sum(any(cut.offset for cut in position.cuts) for position in new)
        if first_start and held:
            self.say(
                f"group {self.settings.group_id} is new and {held} partitions on the target hold records already:"
                " what another group has mirrored there will be there twice"
            )
        return going_on, started

    async def _judge(self, known: Position) -> Position | int | None:
        """Go on from a ledger entry; or only from its offset, with new numbers; or from the topic's start."""
        name = f"{known.topic}-{known.partition}"
        if not known.identity.is_numbered and await self.target.knows(InitProducerIdRequest):
            self.say(
                f"{name}: the target has become able to tell what it has; exactly once from offset {known.offset} on"
            )
            return known.offset
        if known.target_cluster and known.target_cluster != self.target.id:  # before 0.10.1 there were no ids
            if not self.accept_new_target:
                raise LedgerError(
                    f"group {self.settings.group_id} has mirrored {name} to cluster {known.target_cluster}, and the target is now"
                    f" {self.target.id} ({self.target.endpoint}): use another group.id to mirror from the start, or"
                    " --accept.new.target to go on from the committed offsets"
                )
            self.say(f"{name}: new target cluster, going on at offset {known.offset}")
            return known.offset
        source_id, target_id = topic_id(self.source, known.topic), topic_id(self.target, known.topic)
        if known.topic_id and source_id and known.topic_id != source_id:
            self.say(f"{known.topic} was deleted and created again on the source: mirroring {name} from its start")
            return None
        if known.target_topic_id and target_id and known.target_topic_id != target_id:
            self.say(
                f"{known.topic} was deleted and created again on the target: {name} goes on at offset {known.offset}"
            )
            return known.offset
        by_key = self.by_key(known.topic)
        if known.fingerprint != self.fingerprint(known.topic, by_key):
            await self._say_what_doubles(known)
            return known.offset
        return replace(known, by_key=by_key)

    async def _say_what_doubles(self, known: Position) -> None:
        """Other settings number the records differently: what the target holds past the ledger entry comes again."""
        present = 0
        for cut in known.cuts:
            if cut.topic and cut.topic not in self.target.topics:
                await self.target.refresh([cut.topic])
            try:
                found, _ = await read_back(self.target, cut.topic or known.topic, Channel(known.identity, cut))
                present += found
            except (DataError, *OUTAGE):
                present = -1
                break
        if present:
            count = "some" if present < 0 else str(present)
            self.say(
                f"{known.topic}-{known.partition}: what decides the numbering (isolation.level, partitions, partition.by or the"
                f" message handler) was changed after an unclean stop; {count} records from offset {known.offset} on are"
                " mirrored a second time"
            )

    async def start_anew(
        self, wanted: dict[Key, int | None], first_start: bool, others: Iterable[str] = ()
    ) -> list[Position]:
        """Positions under new identities, at the given offsets; None means where the settings say.

        `others` are topics that a message handler sends to.
        """
        if not wanted:
            return []
        unknown = [key for key, offset in wanted.items() if offset is None]
        reset = self.settings.auto_offset_reset or "earliest"
        if unknown and first_start and reset == "none":
            raise ClusterError(
                f"group {self.settings.group_id} has no committed offset for {unknown[0][0]}-{unknown[0][1]}, and"
                " auto.offset.reset=none forbids to choose one; set it to earliest or latest"
            )
        when = LATEST if first_start and reset == "latest" else EARLIEST
        starts = await wait_for_offsets(self.source, unknown, when, self.settings.read_committed)
        for name in others:
            await self._find(name)
        by_key = {topic: self.by_key(topic) for topic, _ in wanted}
        places = {key: self._places(key, by_key[key[0]], others) for key in wanted}
        # Not the log end: what is not replicated may vanish, and our first record would then lie before the cut.
        ends = await wait_for_offsets(
            self.target, {(t or key[0], p) for key, found in places.items() for t, p in found}, LATEST
        )
        slots = asyncio.Semaphore(_AT_ONCE)
        numbered = await self.target.knows(InitProducerIdRequest)

        async def one(key: Key, offset: int | None) -> Position:
            async with slots:
                identity = await new_identity(self.target) if numbered else UNNUMBERED
            return Position(
                topic=key[0],
                partition=key[1],
                offset=starts[key] if offset is None else offset,
                leader_epoch=-1,
                topic_id=topic_id(self.source, key[0]),
                identity=identity,
                target_cluster=self.target.id,
                target_topic_id=topic_id(self.target, key[0]),
                target_partitions=len(self.target.topics[key[0]].partitions),
                cuts=tuple(Cut(p, 0, ends[t or key[0], p], t) for t, p in places[key]),
                fingerprint=self.fingerprint(key[0], by_key[key[0]]),
                by_key=by_key[key[0]],
            )

        return list(await asyncio.gather(*(one(key, offset) for key, offset in wanted.items())))

    def _places(self, key: Key, by_key: bool, others: Iterable[str]) -> list[Place]:
        """The target partitions that this source partition may write to."""
        if not by_key and self.routing.handler is None:
            return [("", key[1])]
        names = {"": key[0]} | {name: name for name in others}
        return [(short, p) for short, name in names.items() for p in sorted(self.target.topics[name].partitions)]

    async def _find(self, topic: str) -> None:
        """A topic that only a message handler knows of; where brokers create topics on demand, they do so now."""
        for _ in range(_RETRIES):
            await self.target.refresh([topic], create=True)
            found = self.target.topics.get(topic)
            if found and all(self.target.leader(topic, p) for p in found.partitions):
                return
            await asyncio.sleep(0.2)
        raise PartitionError(
            f"the message handler sends to {topic}, which is not on {self.target.endpoint}: create it there first"
        )

    async def go_on(
        self, position: Position, offset: int, reason: str, others: Iterable[str] = (), keep: bool = False
    ) -> tuple[Position, str]:
        """The same partition under a new identity where its numbers no longer fit, and the range that is lost, if any.

        `keep`: the records that follow are the same, so those of them that are there already are not sent again.
        """
        others = {*others, *(cut.topic for cut in position.cuts)} - {""}
        name, key = f"{position.topic}-{position.partition}", position.key
        await self.source.refresh([position.topic])
        await self.target.refresh([position.topic])
        if position.topic not in self.source.topics or position.topic not in self.target.topics:
            raise PartitionError(f"{name} stops: {reason}, and the topic is gone")
        at, ahead, lost = await self._where(position, offset, reason)
        keep |= offset == FORGOTTEN or (
            at == position.offset and offset in (OUT_OF_RANGE, TRUNCATED)
        )  # nothing is gone
        if offset == FROM_THE_START:
            if self._said.get(position.topic) != topic_id(self.source, position.topic):
                self._said[position.topic] = topic_id(self.source, position.topic)
                self.say(f"{position.topic}: {reason}; mirroring it from its start")
        else:
            self.say(f"{name}: {reason}; going on at source offset {at}")
        (new,) = await self.start_anew({key: at}, False, sorted(others))
        if keep:
            new = replace(
                new, cuts=tuple(_still_ahead(cut, position.cut(cut.partition, cut.topic)) for cut in new.cuts)
            )
        elif ahead and len(new.cuts) == 1:
            new = replace(new, cuts=(_still_ahead(new.cuts[0], position.cuts[0]._replace(ahead=ahead)),))
        elif any(cut.ahead for cut in position.cuts) and offset in (OUT_OF_RANGE, TRUNCATED):
            some = sum(cut.ahead for cut in position.cuts)
            self.say(f"{name}: up to {some} records that the target holds already are mirrored a second time")
        kept = offset in (SAME_PLACE, FORGOTTEN) and at == position.offset
        return replace(new, leader_epoch=position.leader_epoch if kept else -1), lost

    async def _where(self, position: Position, where: int, reason: str) -> tuple[int, int, str]:
        """The source offset at which a partition goes on, records from there on that are there, and what was lost before."""
        key = position.key
        start = (await wait_for_offsets(self.source, [key], EARLIEST))[key]
        if where == FROM_THE_START:
            return start, 0, ""
        if where in (SAME_PLACE, FORGOTTEN):
            return position.offset, 0, ""
        end = (await wait_for_offsets(self.source, [key], LATEST))[key]
        reached = position.offset + there_already(position)
        agreed = await end_of_epoch(self.source, position)
        # Behind the position another leader may have gone on in the same way: what is there will be compared.
        if (agreed is not None and agreed < position.offset) or end < reached:
            agreed = min(end, position.offset if agreed is None else agreed)
            return agreed, 0, cut_back(position, agreed)
        at = max(start, position.offset)
        if reached >= at:
            return at, reached - at, ""
        reset = self.settings.auto_offset_reset or "earliest"
        if reset == "none":
            raise PartitionError(
                f"{key[0]}-{key[1]} stops: {reason}, and auto.offset.reset=none forbids to go on elsewhere"
            )
        at = start if reset == "earliest" else end
        return at, 0, await lost_before(self.source, position, at)


def _still_ahead(new: Cut, old: Cut) -> Cut:
    """Its offset stays right behind the last record that is there: that one will be compared with the source's."""
    return new._replace(ahead=old.ahead, offset=old.offset) if old.ahead else new


async def new_identity(target: Cluster) -> Identity:
    """A producer id that nobody else uses."""
    last = 0
    for _ in range(_RETRIES):
        try:
            answer = await target.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        except OSError:
            await asyncio.sleep(0.2)
            continue
        if answer.error_code == 0:
            return Identity(answer.producer_id, answer.producer_epoch)
        last = answer.error_code
        if last == CLUSTER_DENIED:
            raise ClusterError(denied(target.endpoint, "IdempotentWrite", "cluster"))
        if not BrokerError(last).retriable:
            raise ClusterError(f"{target.endpoint} gives no producer id: {BrokerError(last)}")
        await asyncio.sleep(0.2)
    raise Unanswered(f"{target.endpoint} gives no producer id: {BrokerError(last)}")
