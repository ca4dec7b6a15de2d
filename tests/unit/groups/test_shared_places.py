"""Target partitions that several source partitions write to: where groups go on there, and which process writes it."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.groups import planning
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.planning import Look, Planner
from mirrormaker.groups.routes import written_here
from mirrormaker.groups.sync import GroupSync, SyncSettings
from mirrormaker.model.group_sync import Log, Memory
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets

ALL = "all"
GROUPS = ("readers", "writers", "others")


class KnownMap:
    """The map of a source partition: up to some source offset, every record and its place."""

    def __init__(self, places: list[Place], records: list[tuple[int, Place, int]], end: int = 0) -> None:
        """`records` are source offsets with their places and target offsets."""
        self.places, self.records, self.first, self.end = sorted(places), records, 0, end
        self.kept_each = 1

    def translate(self, place: Place, source: int) -> Translated:
        known = [row for row in self.records if row[1] == place and row[0] < self.end]
        at = bisect_left(known, source, key=lambda row: row[0])
        if at == len(known):
            end = known[-1][2] + 1 if known else 0
            return Translated(end, end)
        # Not every record is in a run of its own.
        before = [row[2] + 1 for row in known[:at] if row[0] % self.kept_each == 0]
        after = [row[2] for row in known[at:] if row[0] % self.kept_each == 0]
        if known[at][0] % self.kept_each == 0:
            return Translated(known[at][2], known[at][2])
        return Translated(before[-1] if before else 0, after[0] if after else known[-1][2] + 1)


class World:
    """Source partitions whose records a mirror spreads over the two partitions of one target topic."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.keys: list[TopicPartition] = [("one", 0), ("one", 1), ("two", 0)]
        self.produced = dict.fromkeys(self.keys, 0)
        self.target: dict[int, list[tuple[TopicPartition, int]]] = {0: [], 1: []}
        places = [(ALL, 0), (ALL, 1)]
        # They grow while a round is on its way, as those of the process's own partitions do.
        self.maps = {key: KnownMap(places, list[tuple[int, Place, int]]()) for key in self.keys}
        for known in self.maps.values():
            known.kept_each = self.random.choice([1, 1, 3, 7])
        self.committed: dict[str, dict[TopicPartition, int]] = {group: {} for group in GROUPS}
        # Source partitions that never write to a target partition.
        self.never = {(key, number) for key in self.keys for number in (0, 1) if self.random.random() < 0.3}
        self.busy = [self.random.random() + 0.01 for _ in self.keys]

    def go_on(self) -> None:
        for _ in range(self.random.randrange(6)):
            (key,) = self.random.choices(self.keys, self.busy)
            match self.random.choice("pppmmmmrrc"):
                case "p":
                    self.produced[key] += 1
                case "m" if len(self.maps[key].records) < self.produced[key]:
                    number = self.random.choice([n for n in (0, 1) if (key, n) not in self.never] or [0])
                    source = len(self.maps[key].records)
                    self.maps[key].records.append((source, (ALL, number), len(self.target[number])))
                    self.target[number].append((key, source))
                case "r":
                    self.maps[key].end = self.random.randint(self.maps[key].end, len(self.maps[key].records))
                case "c":
                    # Groups read on the source, so they may be ahead of the mirror; now and then they go back.
                    committed = self.committed[self.random.choice(GROUPS)]
                    before = committed.get(key, 0)
                    before = before // 2 if self.random.random() < 0.1 else before
                    committed[key] = self.random.randint(before, self.produced[key])


def survey_of(committed: dict[str, dict[TopicPartition, int]], on_target: dict[str, dict[int, int]]) -> Survey:
    here, there = {}, {}
    for group, offsets in committed.items():
        topics = {
            name: TopicOffsets.of(
                {key[1]: CommittedRow(offset, "") for key, offset in offsets.items() if key[0] == name}
            )
            for name, _ in offsets
        }
        here[group] = GroupOffsets(topics)
        rows = {number: CommittedRow(offset, "") for number, offset in on_target.get(group, {}).items()}
        there[group] = GroupOffsets({ALL: TopicOffsets.of(rows)})
    listed = {group: ListedGroup(group, 1) for group in committed}
    return Survey(listed, listed, here, there)


@given(st.integers(0, 1 << 32))
def test_nobody_skips_a_record_whatever_is_known_late(seed: int) -> None:
    world = World(seed)
    planner, horizons = Planner(), Horizons()
    on_target: dict[str, dict[int, int]] = {group: {} for group in GROUPS}
    memory: dict[tuple[str, str], dict[int, Memory]] = {(group, ALL): {} for group in GROUPS}
    shown: list[tuple[dict[TopicPartition, int], dict[int, int]]] = []
    refused = set[tuple[str, int]]()
    ways = written_here(world.maps, world.keys, {"one": world.keys[:2], "two": world.keys[2:]})
    for number in range(30):
        world.go_on()
        survey = survey_of(world.committed, on_target)
        committed = {group: dict(offsets) for group, offsets in world.committed.items()}
        world.go_on()
        ends = {(ALL, n): len(rows) for n, rows in world.target.items()}
        world.go_on()
        horizons.note(ends, dict(world.produced))
        world.go_on()
        look = Look(world.maps, {key: Log(0, end) for key, end in ends.items()}, {}, horizons)
        with mock.patch.object(planning, "_WORK_IN_ONE_TURN", 1):
            for step in planner.plan(survey, ways, look, memory, everything=number % 7 == 0):
                if step is None:
                    world.go_on()
                    continue
                group, _, entry = step
                for n, decision in entry.decisions.items():
                    refused.discard((group, n))
                    if decision.commit is not None and world.random.random() < 0.1:
                        refused.add((group, n))
                    elif decision.commit is not None:
                        memory[group, ALL][n] = Memory(decision.commit, mark=entry.mark)
                        on_target[group][n] = decision.commit
        for group, offsets in on_target.items():
            shown.append((committed[group], {n: at for n, at in offsets.items() if (group, n) not in refused}))
    for _ in range(400):
        world.go_on()
    for read, offsets in shown:
        for n, offset in offsets.items():
            unread = [at for at, (key, source) in enumerate(world.target[n]) if source >= read.get(key, 1 << 60)]
            assert offset <= min(unread, default=len(world.target[n])), (read, offsets)


def test_a_group_that_has_read_everything_goes_on_at_the_end() -> None:
    """The source partitions have their last records at very different places."""
    keys: list[TopicPartition] = [("orders", 0), ("orders", 1)]
    places = [("", 0)]
    maps = {
        keys[0]: KnownMap(places, [(0, ("", 0), 0)], 1),
        keys[1]: KnownMap(places, [(n, ("", 0), n + 1) for n in range(999)], 999),
    }
    horizons = Horizons()
    horizons.note({("orders", 0): 1000}, {keys[0]: 1, keys[1]: 999})
    survey = survey_of({"readers": {keys[0]: 1, keys[1]: 999}}, {})
    look = Look(maps, {("orders", 0): Log(0, 1000)}, {}, horizons)
    ways = written_here(maps, keys, {"orders": keys})
    ((_, _, entry),) = [step for step in Planner().plan(survey, ways, look, {}) if step is not None]
    assert entry.decisions[0].commit == 1000
    assert entry.again == 0


def test_a_horizon_is_the_newest_one_that_the_map_has_reached() -> None:
    key, place = ("one", 0), (ALL, 0)
    horizons = Horizons()
    for number in range(2000):
        horizons.note({place: number * 10}, {key: number})
    assert horizons.find(key, 1999, place) == 19_990
    assert horizons.find(key, 1998, place) == 19_980
    assert 11_000 <= horizons.find(key, 1500, place) <= 15_000
    assert horizons.find(key, 10, place) == -1
    assert horizons.find(("two", 0), 10, place) == -1
    assert len(horizons._looks) < 25


OURS, THEIRS = ("a", 0), ("b", 0)
PARTITIONS = {"a": [OURS], "b": [THEIRS]}


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param([OURS], [THEIRS], {"a", ALL}, id="the process of the first one"),
        pytest.param([THEIRS], [OURS], {"b"}, id="the process of the other one"),
        pytest.param([OURS, THEIRS], [], {"a", "b", ALL}, id="one process has both"),
    ],
)
def test_one_process_writes_where_two_topics_go_into_one(
    own: list[TopicPartition], others: list[TopicPartition], expected: set[str]
) -> None:
    maps = {key: KnownMap([("", 0), (ALL, 0)], []) for key in [*own, *others]}
    found = written_here(maps, own, PARTITIONS)
    assert found.keys() & {ALL, *(name for name, _ in own)} == expected
    assert found.keys() == expected


class StoredMaps:
    """The maps of all partitions, as every process can read them."""

    def __init__(self, maps: dict[TopicPartition, KnownMap]) -> None:
        self.maps = maps

    def partition(self, key: TopicPartition) -> KnownMap | None:
        return self.maps.get(key)

    async def refresh(self) -> None:
        """Nothing is stored meanwhile."""


@pytest.mark.parametrize("has_handler", [True, False])
def test_two_processes_never_write_the_same_target_topic(has_handler: bool) -> None:
    """Without a handler, the maps have these places from a time when there was one."""
    maps: Any = StoredMaps({key: KnownMap([("", 0), (ALL, 0)], []) for key in (OURS, THEIRS)})
    source: Any = SimpleNamespace(topics={name: SimpleNamespace(partitions=[0]) for name in ("a", "b", "other")})
    settings = SyncSettings(
        lambda _: True, has_handler=has_handler, is_mirrored=lambda name: name in ("a", "b")
    )  # fmt: skip
    written: list[str] = []
    for own in (OURS, THEIRS):
        process = GroupSync(source, source, settings, maps, partial(list, [own]), lambda _: None)
        ways, found = asyncio.run(process._usable_maps())
        assert found.keys() == {OURS, THEIRS}
        written += ways
    assert sorted(written) == ["a", ALL, "b"]


def test_nothing_is_written_if_a_handler_sends_another_topic_there_meanwhile() -> None:
    """The other process has read that a moment ago, and its records may lie before the place that was found."""
    maps: Any = StoredMaps({OURS: KnownMap([("", 0)], []), THEIRS: KnownMap([("", 0), (ALL, 0)], [])})
    source: Any = SimpleNamespace(topics={name: SimpleNamespace(partitions=[0]) for name in ("a", "b")})
    process = GroupSync(
        source, source, SyncSettings(lambda _: True, has_handler=True), maps, partial(list, [THEIRS]), lambda _: None
    )

    async def play() -> None:
        ways, _ = await process._usable_maps()
        assert (await process._ways_that_stay(ways)).keys() == {"b", ALL}
        maps.maps[OURS] = KnownMap([("", 0), (ALL, 0)], [])
        assert (await process._usable_maps())[0].keys() == {"b", ALL}, "it looks at others every few seconds"
        assert (await process._ways_that_stay(ways)).keys() == {"b"}

    asyncio.run(play())


def test_a_topic_that_lacks_the_map_of_a_partition_waits() -> None:
    keys = [("a", 0), ("a", 1)]
    maps = {keys[0]: KnownMap([("", 0)], [])}
    assert written_here(maps, keys, {"a": keys}) == {}
    assert written_here(maps, keys, {}).keys() == {"a"}
