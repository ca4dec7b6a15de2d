"""Taking up assigned partitions: one that is refused does not hold up the others, and never starts anew by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.acquire import Acquisition, Parts
from mirrormaker.driver.group_protocol import Generation
from mirrormaker.driver.owned_partition import NO_IDENTITY
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.errors import ClusterError
from mirrormaker.events.event import Event
from mirrormaker.events.partition_events import PartitionStopped
from mirrormaker.model.ledger import pack
from mirrormaker.model.position import Cut, Position
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import load
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.batches import NOW, Record, Written, write_batch
from tests.support.scripted_logs import ScriptedLogs

# Which of these records were mirrored cannot be told.
EQUAL = [Record(NOW, None, b"beat")] * 300
REFUSED, NEW = ("beats", 0), ("orders", 0)


def log_of(records: list[Record]) -> list[Written]:
    return [write_batch(records, producer_id=9, producer_epoch=0, base_sequence=0)] if records else []


class Ledger:
    """The group's committed offsets, and the committer that writes them."""

    def __init__(self) -> None:
        self.group = "mirror"
        self.topics: set[str] = set()
        self.generation = Generation()
        self.rows: dict[TopicPartition, tuple[int, str]] = {}
        self.refusal: Exception | None = None

    async def committed(self) -> tuple[dict[TopicPartition, tuple[int, str]], dict[TopicPartition, Any]]:
        if self.refusal is not None:
            raise self.refusal
        return dict(self.rows), {}

    async def commit_new(self, positions: Collection[Position], _: Generation) -> dict[TopicPartition, str]:
        self.rows |= {position.key: (position.offset, pack(position)) for position in positions}
        return {}


class Office:
    """An acquisition of a group with nothing committed; one topic cannot be told from its target, the other one is new."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.source = ScriptedLogs({REFUSED: log_of(EQUAL), NEW: log_of(EQUAL[:20])}, "source")
        self.target = ScriptedLogs({REFUSED: log_of(EQUAL[:200]), NEW: []}, "target")
        self.ledger, self.events = Ledger(), list[Event]()
        # The partitions that were taken up, in the order in which streams could have them.
        self.acquired: list[set[TopicPartition]] = []
        self.start()

    def start(self) -> None:
        """Start a new process."""
        given = {"bootstrap.servers": "source:9092", "group.id": "mirror", **self.settings}
        settings = source_settings(load(given, "source"))
        routing = Routing(self.source, self.target, "target", None, None, False)
        report, nothing = self.events.append, lambda *_: None
        reactions: Any = Reactions(lambda: True, nothing, nothing, nothing)
        self.scheduler = Scheduler(0, 2, ControlServer(), report, reactions, "the log")
        starts = StartPositions(self.source, self.target, settings, routing, False, report)
        ledger: Any = self.ledger
        topics: Any = None
        parts = Parts(self.source, self.target, ledger, self.scheduler, ledger, routing, starts, topics, None, report)
        self.acquisition = Acquisition(parts, lambda: True, self._sync_topics)
        self.ledger.topics = set(self.source.topics)

    async def _sync_topics(self) -> None:
        raise AssertionError("both clusters have all topics")

    async def acquire(self, *keys: TopicPartition) -> None:
        """Take up these partitions, as the driver does each time that something has changed."""
        self.acquisition.retry_refused()
        self.acquisition.pending = set(keys) - self.scheduler.owned.keys()
        async for acquired in self.acquisition.acquire():
            self.acquired += [acquired] if acquired else []

    @property
    def flowing(self) -> set[TopicPartition]:
        return {key for key, owned in self.scheduler.owned.items() if owned.position.identity != NO_IDENTITY}


def test_a_refused_partition_of_the_first_start_does_not_hold_up_later_ones() -> None:
    async def play() -> None:
        office = Office()
        await office.acquire(REFUSED)
        assert office.scheduler.owned.keys() == {REFUSED} and not office.flowing
        await office.acquire(REFUSED, NEW)
        assert office.flowing == {NEW}
        assert office.ledger.rows.keys() == {NEW}

    asyncio.run(play())


def test_a_refused_partition_stays_refused_when_the_group_has_offsets_of_others() -> None:
    async def play() -> None:
        office = Office()
        await office.acquire(REFUSED, NEW)
        assert office.flowing == {NEW}
        office.start()
        await office.acquire(REFUSED, NEW)
        assert office.flowing == {NEW}
        assert len([event for event in office.events if "beats-0 stops" in event.text]) == 2

    asyncio.run(play())


def test_a_refused_partition_flows_once_somebody_has_committed_an_offset() -> None:
    async def play() -> None:
        office = Office()
        await office.acquire(REFUSED, NEW)
        office.ledger.rows[REFUSED] = (0, "")
        await office.acquire(REFUSED, NEW)
        assert office.flowing == {REFUSED, NEW}
        assert office.scheduler.owned[REFUSED].position.offset == 0

    asyncio.run(play())


# -- the group's first start


LATEST = {"auto.offset.reset": "latest"}
FULL = EQUAL[:20]


def new_topics(**topics: list[Record]) -> tuple[ScriptedLogs, ScriptedLogs]:
    """Return a source with topics of one partition each, and an empty target with the same topics."""
    source = ScriptedLogs({(name, 0): log_of(records) for name, records in topics.items()}, "source")
    return source, ScriptedLogs({(name, 0): [] for name in topics}, "target")


def test_processes_of_a_first_start_begin_alike_whichever_of_them_commits_first() -> None:
    async def play() -> None:
        office = Office(**LATEST)
        office.source, office.target = new_topics(a=FULL, b=FULL)
        office.start()
        await office.acquisition.note_first_start()
        first = office.acquisition, office.scheduler
        office.start()
        await office.acquisition.note_first_start()
        second = office.acquisition, office.scheduler
        for (office.acquisition, office.scheduler), key in ((first, ("a", 0)), (second, ("b", 0))):
            await office.acquire(key)
            assert office.scheduler.owned[key].position.offset == 20

    asyncio.run(play())


def test_a_topic_that_comes_after_the_first_start_begins_at_its_beginning() -> None:
    """Also at a process of the first start that had nothing to do until then."""

    async def play() -> None:
        office = Office(**LATEST)
        office.source, office.target = new_topics(a=FULL)
        office.start()
        await office.acquisition.note_first_start()
        acquisition = office.acquisition
        office.source, office.target = new_topics(a=FULL, b=FULL)
        office.start()
        acquisition._parts = office.acquisition._parts
        office.acquisition = acquisition
        await office.acquire(("b", 0))
        assert office.scheduler.owned["b", 0].position.offset == 0

    asyncio.run(play())


def test_a_topic_that_could_not_be_created_yet_at_the_first_start_begins_like_the_others() -> None:
    async def play() -> None:
        office = Office(**LATEST)
        office.source, office.target = new_topics(a=FULL, b=FULL)
        topic = office.target.topics.pop("b")
        office.start()
        office.ledger.topics = {"a"}
        await office.acquisition.note_first_start({"b"})
        await office.acquire(("a", 0))
        office.target.topics["b"] = topic
        await office.acquire(("a", 0), ("b", 0))
        assert office.scheduler.owned["b", 0].position.offset == 20

    asyncio.run(play())


def test_a_topic_of_the_first_start_that_was_created_again_begins_at_its_beginning() -> None:
    """Brokers forget the committed offsets of topics that are deleted."""

    async def play() -> None:
        office = Office(**LATEST)
        office.source, office.target = new_topics(a=FULL)
        office.start()
        await office.acquisition.note_first_start()
        topic = office.source.topics.pop("a")
        await office.acquire()
        office.source.topics["a"] = topic
        await office.acquire(("a", 0))
        assert office.scheduler.owned["a", 0].position.offset == 0

    asyncio.run(play())


def test_committed_offsets_that_cannot_be_read_concern_new_partitions_only() -> None:
    async def play() -> None:
        office = Office()
        office.ledger.refusal = ClusterError("not allowed")
        with pytest.raises(ClusterError):  # nothing can be mirrored
            await office.acquire(NEW)
        office.ledger.refusal = None
        await office.acquire(NEW)
        office.ledger.refusal = ClusterError("not allowed")
        await office.acquire(NEW, REFUSED)
        assert office.flowing == {NEW}
        assert office.events[-1].text == "beats-0: the committed offsets cannot be read: not allowed"
        office.ledger.refusal = None
        office.ledger.rows[REFUSED] = (200, "")
        await office.acquire(NEW, REFUSED)
        assert office.flowing == {NEW, REFUSED}

    asyncio.run(play())


def test_partitions_that_go_on_do_not_wait_for_new_identities() -> None:
    """A new identity waits for the offset map, whose topic may be without a leader."""

    async def play() -> None:
        office = Office()
        office.source, office.target = new_topics(a=FULL, b=FULL)
        office.start()
        await office.acquire(("a", 0))
        office.start()
        office.acquired.clear()
        may_commit, commit = asyncio.Event(), office.ledger.commit_new

        async def commit_late(positions: Collection[Position], generation: Generation) -> dict[TopicPartition, str]:
            await may_commit.wait()
            return await commit(positions, generation)

        office.ledger.commit_new = commit_late  # type: ignore[method-assign, assignment]
        taking_up = asyncio.ensure_future(office.acquire(("a", 0), ("b", 0)))
        async with asyncio.timeout(5):
            while not office.acquired:
                await asyncio.sleep(0.01)
        assert office.flowing == {("a", 0)}
        may_commit.set()
        await taking_up
        assert office.acquired == [{("a", 0)}, {("b", 0)}]

    asyncio.run(play())


class MapOfBlocks:
    """Notes which partitions have a map in this process."""

    def __init__(self) -> None:
        self.kept: set[TopicPartition] = set()

    async def begin(self, positions: Collection[Position]) -> None:
        self.kept |= {position.key for position in positions}

    def forget(self, *keys: TopicPartition) -> None:
        self.kept -= set(keys)


def test_a_partition_that_goes_elsewhere_while_it_is_taken_up_leaves_no_map() -> None:
    """The map would be continued, with blocks from today, when the partition comes back."""

    async def play() -> None:
        office, kept = Office(), MapOfBlocks()
        offset_map: Any = kept
        office.acquisition._parts = replace(office.acquisition._parts, offset_map=offset_map)
        commit = office.ledger.commit_new

        async def commit_late(positions: Collection[Position], generation: Generation) -> dict[TopicPartition, str]:
            await kept.begin(positions)
            office.acquisition.pending.clear()
            return await commit(positions, generation)

        office.ledger.commit_new = commit_late  # type: ignore[method-assign, assignment]
        await office.acquire(NEW)
        assert not office.flowing and not kept.kept
        office.ledger.commit_new = commit  # type: ignore[method-assign]
        await office.acquire(NEW)
        assert office.flowing == kept.kept == {NEW}

    asyncio.run(play())


def test_a_partition_that_leaves_while_others_wait_for_their_identities_keeps_its_map() -> None:
    """Its stream has not let go of it yet, and its last position may be committed only together with its map."""

    async def play() -> None:
        office, kept = Office(), MapOfBlocks()
        office.source, office.target = new_topics(a=FULL, b=FULL)
        office.start()
        await office.acquire(("a", 0))
        office.start()
        offset_map: Any = kept
        office.acquisition._parts = replace(office.acquisition._parts, offset_map=offset_map)
        commit = office.ledger.commit_new

        async def commit_late(positions: Collection[Position], generation: Generation) -> dict[TopicPartition, str]:
            await kept.begin(positions)
            office.acquisition.pending.clear()
            return await commit(positions, generation)

        office.ledger.commit_new = commit_late  # type: ignore[method-assign, assignment]
        await office.acquire(("a", 0), ("b", 0))
        assert office.flowing == kept.kept == {("a", 0)}

    asyncio.run(play())


def test_an_entry_that_is_too_wide_for_a_commit_keeps_only_its_own_partition_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        office = Office()
        office.source, office.target = new_topics(wide=FULL, a=FULL, b=FULL)
        office.start()
        await office.acquire(("wide", 0), ("a", 0))
        assert office.flowing == {("wide", 0), ("a", 0)}
        # After a restart one that goes on has grown too wide, while a new one starts.
        wide = office.scheduler.owned["wide", 0].position
        cuts = tuple(Cut(partition, 7 * partition, 100 * partition) for partition in range(2000))
        find = StartPositions.find

        async def find_wide(starts: StartPositions, *given: Any) -> Any:
            found = await find(starts, *given)
            continued = [replace(p, cuts=cuts) if p.key == wide.key else p for p in found.continued]
            return replace(found, continued=continued)

        monkeypatch.setattr(StartPositions, "find", find_wide)
        office.start()
        office.events.clear()
        for _ in range(2):
            await office.acquire(("wide", 0), ("a", 0), ("b", 0))
            assert office.flowing == {("a", 0), ("b", 0)}
        (event,) = office.events
        assert isinstance(event, PartitionStopped) and "wide-0" in event.text
        assert office.scheduler.owned["wide", 0].stop_reason == event.text
        assert office.ledger.rows["wide", 0] == (wide.offset, pack(wide)), "its entry stays as it was"

    asyncio.run(play())
