"""The offset map of a partition whose records spread over several target partitions, which acknowledge at their own pace."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormaker.model import offset_map
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import BlockKey, pack_block, unpack_block
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.worker.run_notes import RunNotes

PLACES = 3


class World:
    """One source partition, three target partitions, a stream and a driver."""

    def __init__(self, places: list[int | None], budget: int) -> None:
        """`places` are the target partitions of the source's offsets; None: there is no record."""
        self.budget = budget
        self.queues = [[offset for offset, place in enumerate(places) if place == number] for number in range(PLACES)]
        self.end = len(places)
        self.logs: list[list[int | None]] = [[] for _ in range(PLACES)]  # source offsets; None: another writer's record
        self.sent = [0] * PLACES
        self.notes = [RunNotes(is_spread=False) for _ in range(PLACES)]
        for notes in self.notes:
            notes._budget = budget
        cuts = tuple(Cut(number, 0, 0) for number in range(PLACES))
        self.position = Position("t", 0, 0, 0, "", Identity(1, 19789), "c", "", PLACES, cuts)
        self.map = PartitionMap()
        self.map.begin(self.position)

    def acknowledge(self, place: int, count: int) -> None:
        for offset in self.queues[place][self.sent[place] : self.sent[place] + count]:
            self.notes[place].note(offset, len(self.logs[place]), 1, self.sent[place])
            self.logs[place].append(offset)
            self.sent[place] += 1

    def report(self) -> None:
        """Report the runs, and the cut before the first record that is not acknowledged."""
        waiting = [queue[sent] for queue, sent in zip(self.queues, self.sent, strict=True) if sent < len(queue)]
        offset = min(waiting, default=self.end)
        cuts = []
        for number, log in enumerate(self.logs):
            before = [at for at, source in enumerate(log) if source is not None and source < offset]
            if before:
                cuts.append(Cut(number, len(before), before[-1] + 1))
        self.position = self.position.advanced(offset, 0, cuts)
        rows = [(("", number), notes.collect()) for number, notes in enumerate(self.notes) if notes.has_news]
        self.map.note(self.position, rows)

    def stored(self) -> PartitionMap:
        blocks = []
        for block in self.map.blocks:
            again = unpack_block(BlockKey("c", "t", 0, block.start), pack_block(block, 7))
            assert again is not None
            blocks.append(again)
        return PartitionMap(blocks)

    def check(self, found: PartitionMap) -> None:
        for number, log in enumerate(self.logs):
            place = ("", number)
            pairs = [(source, at) for at, source in enumerate(log) if source is not None and source < found.end]
            for offset in range(found.end):
                truth = next((at for source, at in pairs if source >= offset), None)
                told = found.translate(place, offset)
                if truth is None:
                    assert told.offset <= len(log)
                else:
                    self._check(told, truth)
            for source, at in pairs:
                self._check(found.translate_back(place, at), source)

    def _check(self, told: Translated, truth: int) -> None:
        assert told.offset <= truth <= told.latest, (told, truth)
        assert told.is_exact or self.budget < 1000, (told, truth)


routes = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, None]), max_size=60)
steps = st.lists(st.tuples(st.sampled_from([0, 1, 2, "report", "report", "other"]), st.integers(1, 6)), max_size=40)


@settings(max_examples=200)
@given(routes, steps, st.sampled_from([0, 2, 10_000]), st.sampled_from([1, 3, 256]))
def test_every_offset_is_translated_whichever_target_partition_is_ahead(
    places: list[int | None], steps: list[tuple[int | str, int]], budget: int, block_runs: int
) -> None:
    with mock.patch.object(offset_map, "BLOCK_RUNS", block_runs):
        world = World(places, budget)
        for step, count in steps:
            if isinstance(step, int):
                world.acknowledge(step, count)
            elif step == "other":
                world.logs[count % PLACES].append(None)
            else:
                world.report()
                world.check(world.map)
                world.check(world.stored())
