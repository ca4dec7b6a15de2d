"""The offset map of the partitions that this process mirrors: kept in memory, and stored before the ledger says so.

The committer calls `write` before each commit. A block that has changed is stored first; a block whose last run only became longer
may wait, because the ledger's numbers say the same. So map and ledger never contradict each other, whatever is killed between.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from itertools import islice

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, FlowClosed, MirrorError, Unanswered, describe
from mirrormaker.events import event
from mirrormaker.events.map_events import (
    OffsetMapLimited,
    OffsetMapLost,
    OffsetMapMissing,
    OffsetMapUnwritten,
    OffsetMapWritten,
)
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.fence_watch import FenceDoubt, FenceWatch, closed
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map import PartitionMap, Writing
from mirrormaker.model.position import Position
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.threads import run_in_thread

_WRITE_WITHIN = 5.0  # seconds for one write
_CHUNK_BYTES = 32 << 10  # of one write: 5 ms of work; the rest of the event loop has its turn after each
_READ_WITHIN = 5.0  # seconds to read what other processes have stored, before partitions are taken over
_UNPACKED_AT_ONCE = 64 << 10  # bytes of a partition's blocks; more are unpacked in a thread
# Positions are not committed for so long while the map cannot be written; then the mirror goes on without it.
_PATIENCE = 30.0
_TRY_EVERY = 30.0  # seconds between attempts to write the map after that
_REFRESHED = 100  # blocks of partitions that only moved on, with one commit: 15 KB
_REFRESH_EVERY = 2.0  # seconds between two commits that store such blocks; a fast mirror commits several times a second
_CLEAN_EVERY = 600.0  # seconds between two looks for blocks whose records retention has deleted
_MOST_RUNS = 16 << 20  # of all partitions of this process: 200 MB
_FENCE_EVERY, _FENCE_WITHIN = 5.0, 5.0  # seconds between two looks for a fence, and for one look


class MapKeeper:
    """The maps of owned partitions, and the writer of their blocks."""

    def __init__(self, target: Cluster, source: Cluster, fallback_id: str, report: event.Report) -> None:
        """`fallback_id` stands for a source cluster without an id (before Kafka 0.10.1)."""
        self._target, self._source, self._fallback_id, self._report = target, source, fallback_id, report
        # Returns True while this process may write a partition's blocks; the committer knows that.
        self.is_ours: Callable[[TopicPartition], bool] = lambda _: True
        self._topic: MapTopic | None = None
        self._fence_watch: FenceWatch | None = None
        self._fence_doubt = FenceDoubt(target, report)
        self._looked_at = float("-inf")
        # The error that ends the flow, once a failover has closed it.
        self._closed: FlowClosed | None = None
        self._writer = keyed_topic.KeyedWriter(target, TOPIC)
        self._maps: dict[TopicPartition, PartitionMap] = {}
        # Partitions that began while the topic could not be read: their maps lack what is stored.
        self._unread: set[TopicPartition] = set()
        # Partitions that are mirrored already, and of which nothing is stored: the positions at which their maps begin.
        self.missing: dict[TopicPartition, Position] = {}
        # Maps whose stored block ends before the position, the longest waiting ones first.
        self._stale: dict[TopicPartition, None] = {}
        self._refreshed_at = float("-inf")
        self._failing_since: float | None = None
        self._try_after = 0.0
        # Why the map is not written; empty while it is.
        self.reason = ""

    @property
    def source_id(self) -> str:
        """Return the id under which the source cluster's blocks are stored."""
        return self._source.id or self._fallback_id

    async def open(self, wait: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Create the topic if need be, and read it: within 30 s, or once `wait` has returned True. Raise FlowClosed at a fence."""
        try:
            topic = await asyncio.wait_for(self._read_topic(), _PATIENCE)
        except (MirrorError, OSError, asyncio.TimeoutError) as error:
            if wait is not None and await wait():
                await self.open()
            else:
                self._give_up(error)
            return
        self._topic = topic
        self._is_written()
        await self._put_before()
        if topic.fence is not None:
            self._closed = closed(topic.fence, self._target.endpoint)
            raise self._closed
        self._fence_watch, self._looked_at = FenceWatch(self._target, self.source_id, topic.end), time.monotonic()

    async def _put_before(self) -> None:
        """Add the stored blocks to the maps that began without them."""
        for key in list(self._unread & self._maps.keys()):
            stored = await self._stored(key)
            if key in self._maps:
                self._maps[key].put_before(stored)
            self._unread.discard(key)
            await asyncio.sleep(0)

    async def _read_topic(self) -> MapTopic:
        policy = await keyed_topic.ensure(self._target, TOPIC)
        if policy and "compact" not in policy:
            raise ClusterError(
                f"{TOPIC} has cleanup.policy={policy} on {self._target.endpoint}, so its rows are deleted:"
                f" kafka-configs --alter --entity-type topics --entity-name {TOPIC} --add-config cleanup.policy=compact"
            )
        topic = MapTopic(self._target, self.source_id)
        topic.id = self._target.topics[TOPIC].id
        await topic.refresh()
        return topic

    # -- what is mirrored

    async def begin(self, positions: Iterable[Position]) -> None:
        """Go on at positions that this process takes over, or at the first positions under new identities."""
        numbered = [position for position in positions if position.identity.is_numbered]
        if not numbered:
            return
        is_read, missing = True, dict[TopicPartition, Position]()
        if any(position.key not in self._maps for position in numbered):
            is_read = await self._read_others()
        for number, position in enumerate(numbered, 1):
            if position.key not in self._maps:
                self._maps[position.key] = await self._stored(position.key) if is_read else PartitionMap()
                if not is_read:
                    self._unread.add(position.key)
                elif not self._maps[position.key].blocks and any(cut.sequence for cut in position.cuts):
                    missing[position.key] = self.missing[position.key] = position
            found = self._maps[position.key]
            found.begin(position)
            if found.is_due or found.is_stale:
                # An identity or a piece that the map lacks is stored with a next write, also if the partition does not move.
                self._stale[position.key] = None
            if number % 200 == 0:
                await asyncio.sleep(0)
        if missing:
            topic, partition = min(missing)
            self._report(OffsetMapMissing(len(missing), f"{topic}-{partition}"))

    async def _read_others(self) -> bool:
        """Read the blocks that other processes have written since the last time; return False if that is not possible."""
        # With older blocks the map would go on in one that another process has completed meanwhile.
        if self._topic is None:
            return False
        with contextlib.suppress(*OUTAGE, MirrorError):
            await asyncio.wait_for(self._topic.refresh(), _READ_WITHIN)
            return True
        return False

    async def _stored(self, key: TopicPartition) -> PartitionMap:
        """Return the map of a partition as it is stored; years of transactions take seconds to unpack."""
        assert self._topic is not None
        if self._topic.size_of(key) < _UNPACKED_AT_ONCE:
            return self._topic.read(key)
        return await run_in_thread(partial(self._topic.read, key))

    def put_before(self, position: Position, rebuilt: PartitionMap) -> bool:
        """Take in what the logs show of the offsets before a position; return False if the map no longer begins there."""
        found = self._maps.get(position.key)
        if found is None or not found.blocks or found.first != position.offset:
            return False
        found.put_before(rebuilt, is_stored=False)
        self._stale[position.key] = None
        return True

    def note(self, position: Position, report: PartitionReport) -> None:
        """Take in a stream's report; `position` is the owned partition's, which the report may have moved."""
        found = self._maps.get(position.key)
        if found is None or report.position.identity != found.blocks[-1].identity:
            return
        found.note(position, report.runs)
        if found.is_stale:
            self._stale[position.key] = None

    def forget(self, *keys: TopicPartition) -> None:
        """Forget partitions that another process mirrors now, or may mirror."""
        for key in keys:
            self._maps.pop(key, None)
            self._stale.pop(key, None)
            self._unread.discard(key)
            self.missing.pop(key, None)

    def partition(self, key: TopicPartition) -> PartitionMap | None:
        """Return the map of a source partition: as it is now if this process mirrors it, else as it was last read.

        None if it is not known: without what is stored, or can be rebuilt, a group would seem to be behind all that was mirrored.
        """
        if key in self._maps:
            return None if key in self._unread or key in self.missing else self._maps[key]
        if self._topic is None:
            return None
        stored = self._topic.known(key)
        return stored if stored.blocks else None

    async def refresh(self) -> None:
        """Read what other processes have stored."""
        if self._topic is not None:
            await self._topic.refresh()

    # -- what is stored

    async def write_all(self) -> None:
        """Store every block as it is now, as far as that is possible at once."""
        left = len(self._stale) + 1
        while 0 < len(self._stale) < left:
            left = len(self._stale)
            self._refreshed_at = float("-inf")
            await self.write([key for key in self._maps if self.is_ours(key)])

    async def write(self, keys: Collection[TopicPartition]) -> set[TopicPartition]:
        """Store the changed blocks of partitions; return those whose positions must not be committed yet.

        Every two seconds, some blocks that only became longer are stored along with them.
        """
        if self._closed is None and time.monotonic() - self._looked_at > 2 * _FENCE_EVERY:
            await self._look_for_fence()  # this process stood still: much may have happened meanwhile
        due = [key for key in keys if key in self._maps and self._maps[key].is_due]
        moved = self._longest_waiting(due)
        if self._topic is None or (self.reason and time.monotonic() < self._try_after):
            return set()
        waiting = deque([*due, *moved])
        while waiting:
            error = await self._write_chunk(self._topic, waiting)
            if error is not None:
                return self._failed(error, [key for key in due if key in self._maps and self._maps[key].is_due])
            self._is_written()
        if moved:
            self._refreshed_at = time.monotonic()
        return set()

    def _longest_waiting(self, due: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return partitions whose stored blocks end before their positions, besides those that are due; none too often."""
        if time.monotonic() - self._refreshed_at < _REFRESH_EVERY:
            return []
        return [key for key in islice(filter(self.is_ours, self._stale), _REFRESHED) if key not in due]

    async def _write_chunk(self, topic: MapTopic, waiting: deque[TopicPartition]) -> Exception | None:
        """Store the blocks of the next partitions that wait, some hundred kilobytes; return the error if that fails."""
        writings: dict[TopicPartition, Writing] = {}
        rows: list[keyed_topic.Row] = []
        size = 0
        try:
            while waiting and size < _CHUNK_BYTES:
                key = waiting.popleft()
                if key in self._maps:
                    writings[key] = self._maps[key].take()
                    new = topic.rows_of(key, writings[key])
                    size += sum(len(packed) + len(value or b"") for packed, value in new)
                    rows += new
            offsets = await asyncio.wait_for(self._writer.write(rows), _WRITE_WITHIN) if rows else []
        except Exception as error:  # also a block that cannot be packed: the map is less than the records
            self._note_failed(writings)
            return error
        except BaseException:  # cancelled: nothing is known of what was written
            self._note_failed(writings)
            raise
        topic.wrote(rows, offsets)
        if self._fence_watch is not None:
            for batch in offsets:
                self._fence_watch.wrote(batch)
        for key, writing in writings.items():
            topic.identities |= {block.identity for block in writing.blocks}
            if key in self._maps:
                self._maps[key].stored(writing)
                if self._maps[key].is_due:
                    waiting.appendleft(key)
            self._stale.pop(key, None)
        return None

    def _note_failed(self, writings: dict[TopicPartition, Writing]) -> None:
        for key, writing in writings.items():
            # Another process may have got the partition meanwhile.
            if key in self._maps:
                self._maps[key].failed(writing)

    def _failed(self, error: BaseException, due: list[TopicPartition]) -> set[TopicPartition]:
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        may_pass = not isinstance(error, MirrorError) or error.retriable
        if not self.reason and may_pass and now - self._failing_since < _PATIENCE:
            return set(due)
        self._give_up(error)
        return set()

    def _give_up(self, error: BaseException) -> None:
        """Mirror on without the map, and try again later."""
        reason = describe(error)
        if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
            reason = denied(self._target.endpoint, ("Create", "Describe", "Read", "Write"), "topic", TOPIC)
        elif isinstance(error, asyncio.TimeoutError | Unanswered):
            reason = f"{self._target.endpoint} does not answer in time"
        if reason != self.reason:
            self._report(OffsetMapUnwritten(reason))
        self.reason = reason
        self._try_after = time.monotonic() + _TRY_EVERY

    def _is_written(self) -> None:
        self._failing_since = None
        if self.reason:
            self.reason = ""
            self._report(OffsetMapWritten())

    # -- fences, and blocks whose records retention has deleted

    async def run(self) -> None:
        """Look for a fence, and delete blocks whose records are gone, for as long as this runs.

        Raise FlowClosed once a failover has closed this flow.
        """
        cleaned_at = time.monotonic()
        while self._closed is None:
            await asyncio.sleep(_FENCE_EVERY)
            if self._topic is None and time.monotonic() >= self._try_after:
                await self.open()
            elif self._unread and await self._read_others():
                await self._put_before()
            has_answered = await self._look_for_fence()
            if self._topic is not None and await self._is_lost(self._topic, has_answered):
                self._store_again()
                await self.open()
            if time.monotonic() - cleaned_at > _CLEAN_EVERY:
                cleaned_at = time.monotonic()
                with contextlib.suppress(*OUTAGE, MirrorError):
                    await self.clean()
        raise self._closed

    async def _look_for_fence(self) -> bool:
        """Raise FlowClosed if there is a fence; return False if the target did not answer, and has to be asked again later."""
        if self._fence_watch is None:
            return True
        self._looked_at = time.monotonic()
        try:
            fence = await asyncio.wait_for(self._fence_watch.look(), _FENCE_WITHIN)
        except (*OUTAGE, MirrorError) as error:
            self._fence_doubt.failed(error)
            return False
        self._fence_doubt.passed()
        if fence is not None:
            self._closed = closed(fence, self._target.endpoint)
            raise self._closed
        return True

    async def _is_lost(self, topic: MapTopic, has_answered: bool) -> bool:
        """Return True if somebody has deleted the topic, or has deleted it and created it again."""
        if not has_answered or TOPIC not in self._target.topics:
            try:
                await asyncio.wait_for(self._target.refresh([TOPIC]), _FENCE_WITHIN)
            except (*OUTAGE, MirrorError):
                return False
        known = self._target.topics.get(TOPIC)
        if known is None:
            return TOPIC not in self._target.refused  # by which this client may not see it
        return known.id != topic.id or (self._fence_watch is not None and self._fence_watch.is_replaced)

    def _store_again(self) -> None:
        """Have everything stored again that this process knows."""
        self._report(OffsetMapLost(TOPIC, len(self._maps)))
        self._topic = self._fence_watch = None
        for key, found in self._maps.items():
            found.store_again()
            self._stale[key] = None

    async def clean(self) -> None:
        """Delete the blocks all of whose records lie before the start of the target's log; the next commit stores that."""
        candidates = {key: found for key, found in self._maps.items() if len(found.blocks) > 1}
        places = {(place[0] or key[0], place[1]) for key, found in candidates.items() for place in found.places}
        starts = await list_offsets(self._target, sorted(places), EARLIEST)
        for key, found in candidates.items():
            known = {place: starts.get((place[0] or key[0], place[1])) for place in found.places}
            found.forget_before({place: start for place, start in known.items() if isinstance(start, int)})
            if found.is_due:
                self._stale[key] = None
        self._limit()

    def _limit(self) -> None:
        """Forget the oldest blocks of the largest maps while there are more runs than a process may keep."""
        sizes = {key: found.size for key, found in self._maps.items() if len(found.blocks) > 1}
        while sum(sizes.values()) > _MOST_RUNS:
            key = max(sizes, key=lambda key: sizes[key])
            found = self._maps[key]
            found.forget_first(max(1, len(found.blocks) // 8))
            self._report(OffsetMapLimited(*key, found.first))
            self._stale[key] = None
            sizes[key] = found.size
            if len(found.blocks) == 1:
                del sizes[key]
