"""From an assignment to holdings: where each new partition stands, under an identity that is committed before its first use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.errors import OUTAGE, ClusterError, PartitionError, Unanswered
from mirrormaker.model.ledger import check_fits, rows, unpack
from mirrormaker.model.position import Identity, Position
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets

if TYPE_CHECKING:
    from mirrormaker.driver.flow import Flow

Key = tuple[str, int]

_LOOK_AGAIN = 5.0  # seconds until what could not be taken up is tried again
NOBODY = Identity(-1, -1)  # of a partition that has nowhere to go


class Acquisition:
    """What was assigned and is not yet held. Others may join at any moment: `keys` is what is still ours to take."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.keys: set[Key] = set()
        self._leaderless: set[Key] = set()  # that was spoken of
        self._from_first: set[Key] = set()  # assigned at a group's first start, and not yet begun
        self._later: asyncio.TimerHandle | None = None

    async def take_up(self) -> set[Key]:
        """Find out where each new partition stands, commit what is new, and hold it."""
        if not self.keys:
            return set()
        if any(topic not in self.flow.source.topics or topic not in self.flow.target.topics for topic, _ in self.keys):
            await self.flow.patiently(self.flow.look)  # assigned by a leader who knows more than we do
        committed = await self.flow.patiently(self.flow.membership.committed)
        if self.flow.first_start is None:
            self.flow.first_start = not committed
            self._from_first = set() if committed else set(self.keys)
        await self._add_what_zookeeper_has(committed)
        await self.flow.patiently(lambda: self._grow_as_before(committed))
        found = await self._open_all(committed)
        if found is None:
            return set()
        old, new = found
        for position in [*old, *new]:
            check_fits(position)  # or the mirror ends with its name: such a topic should not be chosen
        await self.flow.patiently(lambda: self._commit_first(new))
        await self._see_what_is_gone(old)
        for clean, positions in ((False, old), (True, new)):
            for position in positions:
                if position.key in self.keys:
                    self.flow.scheduler.holdings[position.key] = OwnedPartition(
                        position, clean=clean, committed=position
                    )
        taken = self.keys & self.flow.scheduler.holdings.keys()
        self._from_first -= taken
        return taken

    async def _add_what_zookeeper_has(self, committed: dict[Key, tuple[int, str]]) -> None:
        """What Kafka has no position of may have been mirrored by an old consumer of the group."""
        group, lookup = self.flow.settings.group_id, self.flow.lookup
        missing = self.keys - committed.keys()
        if lookup is None or not missing:
            return
        try:
            old = await lookup.group(group)
        except ClusterError as error:
            if self._from_first:
                raise ClusterError(
                    f"group {group} has nothing committed in Kafka, and {error}: without that line it starts as if nothing had"
                    " been mirrored yet"
                ) from error
            self.flow.say(f"{error}: {len(missing)} new partitions start at their beginning")
            return
        found = {key: (old.offsets[key], "") for key in missing & old.offsets.keys()}
        committed |= found
        if found:
            self.flow.say(f"group {group} goes on where ZooKeeper has it: {len(found)} partitions")
        if found and old.owners:
            some = ", ".join(list(old.owners)[:3])
            self.flow.say(
                f"group {group} has consumers at work in ZooKeeper ({some}): stop them, or records come twice"
            )

    async def _open_all(self, committed: dict[Key, tuple[int, str]]) -> tuple[list[Position], list[Position]] | None:
        """Positions of what is being taken up; None if the group has moved on before all was known."""
        while True:
            able = self._that_can_be({key for key in self.keys if self._can_begin(key, committed)})
            at_first = able & self._from_first  # only for these the settings say where to begin
            if at_first and at_first != able:
                able = at_first
                self._look_again_at_assignments()
            try:
                return await self.flow.opening.positions(able, committed, bool(at_first))
            except OUTAGE as error:
                if isinstance(error, Unanswered):  # its topic waits until all its leaders are there
                    self.flow.say(f"waiting: {error}")
                    self._leaderless |= {key for key in self.keys if key[0] == error.topic}
                with contextlib.suppress(*OUTAGE):
                    await self.flow.source.refresh()
                    await self.flow.target.refresh()
            if self.flow.assigned.is_set():
                return None

    def _can_begin(self, key: Key, committed: dict[Key, tuple[int, str]]) -> bool:
        """Where a partition begins is asked of its leaders; one that has none must not keep the others waiting."""
        topic, partition = key
        if topic not in self.flow.source.topics or topic not in self.flow.target.topics:
            return False  # it was deleted a moment ago
        known = unpack(*key, *committed[key]) if key in committed else None
        if known is not None and known.target_cluster == self.flow.target.id and key not in self._leaderless:
            return True  # the ledger tells, or so it seems
        there = self.flow.target.topics[topic].partitions
        if self.flow.source.leader(topic, partition) and all(self.flow.target.leader(topic, p) for p in there):
            self._leaderless.discard(key)
            return True
        if key not in self._leaderless:
            self._leaderless.add(key)
            self.flow.say(f"waiting: {topic}-{partition} has no leader, so nobody can tell where it begins")
        self._look_again_at_assignments()
        return False

    def _look_again_at_assignments(self) -> None:
        """In a while: some of what is assigned could not be taken up."""
        if self._later is None or self._later.when() < asyncio.get_running_loop().time():
            self._later = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self.flow.assigned.set)

    async def _see_what_is_gone(self, positions: list[Position]) -> None:
        """For the summary; the stream that comes upon it will know what exactly is lost."""
        with contextlib.suppress(*OUTAGE):
            starts = await list_offsets(self.flow.source, [position.key for position in positions], EARLIEST)
            for position in positions:
                start = starts[position.key]
                if isinstance(start, int) and start > position.offset:
                    self.flow.overtaken.append(
                        f"{position.topic}-{position.partition} is committed up to offset {position.offset}, and the source"
                        f" begins at {start} by now"
                    )

    async def _commit_first(self, new: list[Position]) -> None:
        """Identities count once they are committed. What has gone to others meanwhile is theirs to begin."""
        new[:] = [position for position in new if position.key in self.keys]
        if new:
            await self.flow.membership.commit(rows(new), must_exist=True)

    async def _grow_as_before(self, committed: dict[Key, tuple[int, str]]) -> None:
        """A source that grew while nobody looked: the ledger says that the counts were equal before."""
        known_here = {t for t, _ in self.keys if t in self.flow.source.topics and t in self.flow.target.topics}
        behind = {topic for topic in known_here if self.flow.counts(topic)[0] > self.flow.counts(topic)[1]}
        known = [unpack(*key, *entry) for key, entry in committed.items() if key[0] in behind]
        grow = {position.topic for position in known if position and self.flow.numbers.was_equal(position)}
        for line in await self.flow.ensure([self.flow.source.topics[t] for t in grow], grow):
            self.flow.say(line)

    def _that_can_be(self, keys: set[Key]) -> set[Key]:
        """All of them, or the mirror does not start; later on, one topic's trouble is its own."""
        refused: dict[str, str] = {}
        for topic in {topic for topic, _ in keys}:
            try:
                self.flow.opening.by_key(topic)
            except PartitionError as error:
                if not self.flow.ready.is_set():
                    raise
                refused[topic] = str(error)
                self.flow.say(refused[topic])
        for key in keys:
            if key[0] in refused:
                nowhere = Position(*key, 0, -1, "", NOBODY, self.flow.target.id, "", self.flow.counts(key[0])[1], ())
                self.flow.scheduler.holdings[key] = OwnedPartition(nowhere, clean=True, committed=nowhere)
                self.flow.scheduler.holdings[key].stop(refused[key[0]], final=True)
        return {key for key in keys if key[0] not in refused}

    def try_refused_again(self) -> None:
        """Partitions that had nowhere to go, and may by now."""
        for key, holding in list(self.flow.scheduler.holdings.items()):
            if holding.position.identity == NOBODY and key[0] in self.flow.target.topics:
                with contextlib.suppress(PartitionError):
                    self.flow.opening.by_key(key[0])
                    del self.flow.scheduler.holdings[key]
                    self.flow.assigned.set()
