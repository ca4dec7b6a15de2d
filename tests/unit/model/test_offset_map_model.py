"""The offset map against a simulated pair of logs: after each step every source offset is translated."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormaker.model import offset_map
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import BlockKey, pack_block, pack_key, unpack_block, unpack_key
from mirrormaker.model.packed_runs import PackedRuns
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.worker.run_notes import RunNotes

PLACE = ("", 0)


@dataclass
class World:
    """One source partition, one target partition, a stream, a driver, the ledger and the map's topic."""

    sources: list[int]  # the offsets that have records
    budget: int
    target: list[int | None] = field(default_factory=list)  # source offsets; None: a record of another writer
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)  # of each target offset: producer id and number
    topic: dict[bytes, bytes] = field(default_factory=dict)
    identities: int = 0

    def __post_init__(self) -> None:
        self.ledger = self._position(0, 0)
        self.position = self.ledger
        self.map = PartitionMap()
        self.map.begin(self.position)
        assert self.store()
        self.notes = self._notes()

    def _notes(self) -> RunNotes:
        notes = RunNotes(is_spread=False)
        notes._budget = self.budget
        return notes

    def _position(self, offset: int, sequence: int) -> Position:
        cut = Cut(0, sequence, len(self.target))
        return Position("t", 0, offset, 0, "0f" * 16, Identity(self.identities, 19789), "c", "", 1, (cut,))

    def _append(self, count: int) -> tuple[list[int], int, int]:
        """Let the target append the next records; return their source offsets, the first target offset and number."""
        identity = self.identities
        first = sum(1 for producer, _ in self.numbers.values() if producer == identity)
        done = {source for source in self.target if source is not None}
        records = [source for source in self.sources if source >= self.position.offset and source not in done][:count]
        base = len(self.target)
        for number, source in enumerate(records):
            self.numbers[len(self.target)] = (identity, first + number)
            self.target.append(source)
        return records, base, first

    def _advance(self, records: list[int], base: int, first: int) -> None:
        if not records:
            return
        sources = np.array(records)
        if records[-1] - records[0] + 1 == len(records):
            self.notes.note(records[0], base, len(records), first)
        else:
            self.notes.note_offsets(sources, base, first)
        cut = Cut(0, first + len(records), base + len(records))
        self.position = self.position.advanced(records[-1] + 1, 0, [cut])

    def mirror(self, count: int) -> None:
        self.take_found()
        self._advance(*self._append(count))

    def lose_answer(self, count: int) -> None:
        """The target appends records, and nobody hears of it."""
        self.take_found()
        self._append(count)

    def take_found(self) -> None:
        """Note the records after the position that the target holds, as a resume finds them, batch by batch."""
        cut = self.position.cuts[0]
        self.notes.restart(cut.offset)
        for offset in range(cut.offset, len(self.target)):
            source = self.target[offset]
            if source is not None and source >= self.position.offset:
                self._advance([source], offset, self.numbers[offset][1])

    def pass_over(self, count: int) -> None:
        """The source has offsets without records, such as markers of transactions."""
        later = [source for source in self.sources if source >= self.position.offset]
        end = later[0] if later else self.position.offset + count
        self.position = self.position.advanced(end, 0, self.position.cuts)

    def others_write(self, count: int) -> None:
        self.target += [None] * count

    def report(self) -> None:
        rows = self.notes.collect()
        self.map.note(self.position, [(PLACE, rows)] if rows else [])

    def store(self, *, fails: bool = False) -> bool:
        writing = self.map.take()
        data = {pack_key(BlockKey("c", "t", 0, block.start)): pack_block(block, 7) for block in writing.blocks}
        if fails:
            self.map.failed(writing)
            return False
        self.topic |= data
        for start in writing.gone:
            self.topic.pop(pack_key(BlockKey("c", "t", 0, start)), None)
        self.map.stored(writing)
        return True

    def commit(self, *, storing: bool = True, fails: bool = False) -> None:
        self.report()
        if (storing or self.map.is_due) and not self.store(fails=fails):
            return
        self.ledger = self.position

    def load(self) -> PartitionMap:
        blocks = []
        for key, value in self.topic.items():
            read = unpack_key(key)
            assert isinstance(read, BlockKey)
            block = unpack_block(read, value)
            assert block is not None
            blocks.append(block)
        return PartitionMap(blocks)

    def crash(self) -> None:
        """Another process goes on, with the map and the ledger as they are stored."""
        self.map, self.position = self.load(), self.ledger
        self.map.begin(self.position)
        self.notes = self._notes()
        self.take_found()
        self.commit()

    def renumber(self) -> None:
        self.take_found()
        self.report()
        self.identities += 1
        self.position = self._position(self.position.offset, 0)
        self.map.begin(self.position)
        self.notes = self._notes()
        if self.store():
            self.ledger = self.position

    def check(self, found: PartitionMap) -> None:
        earlier = [runs for block in found.blocks[:-1] for runs in block.lists.values()]
        assert all(isinstance(runs.kept, PackedRuns) for runs in earlier), "only the last block is unpacked"
        self._check_offsets(found, must_be_exact=self.budget > 1000)
        # The same map without its beginning, as after an upgrade or with a limit.
        self._check_offsets(PartitionMap(found.blocks[len(found.blocks) // 2 :]), must_be_exact=False)

    def _check_offsets(self, found: PartitionMap, *, must_be_exact: bool) -> None:
        places = [(source, offset) for offset, source in enumerate(self.target) if source is not None]
        end = max(runs.end_offset for block in found.blocks for runs in block.lists.values())
        for source in range((self.sources[-1] if self.sources else 0) + 3):
            told = found.translate(PLACE, source)
            truth = next((offset for at, offset in places if source <= at < found.end), None)
            if truth is None:
                # Anything between our last record and the place of the next one is right.
                last = max((offset + 1 for at, offset in places if at < found.end), default=0)
                assert told.offset <= end and told.latest >= last, (source, told, last, end)
            else:
                assert told.offset <= truth <= told.latest, (source, told, truth)
            if must_be_exact:
                assert told.is_exact and (truth is not None or told.offset >= last), (source, told, truth)
        for offset in range(len(self.target)):
            back = [source for source, at in places if at >= offset and source < found.end]
            told = found.translate_back(PLACE, offset)
            assert told.offset <= (back[0] if back else found.end) <= told.latest, (offset, told, back[:1])


# Some steps are more likely than others.
names = ["mirror"] * 3 + ["report", "commit", "refresh", "store", "fail", "others", "pass", "lose", "crash", "renumber"]
steps = st.lists(st.tuples(st.sampled_from(names), st.integers(1, 6)), max_size=40)
gaps = st.lists(st.sampled_from([1, 1, 1, 1, 2, 5]), min_size=1, max_size=60)


@settings(max_examples=300)
@given(gaps, steps, st.sampled_from([0, 1, 5, 10_000]), st.sampled_from([1, 3, 256]))
def test_every_offset_is_translated_to_the_truth_or_to_a_range_around_it(
    gaps: list[int], steps: list[tuple[str, int]], budget: int, block_runs: int
) -> None:
    with mock.patch.object(offset_map, "BLOCK_RUNS", block_runs):
        _run(World([int(offset) - 1 for offset in np.cumsum(gaps)], budget), steps)


def _run(world: World, steps: list[tuple[str, int]]) -> None:
    for step, count in steps:
        match step:
            case "mirror":
                world.mirror(count)
            case "report":
                world.report()
            case "commit":
                world.commit()
            case "refresh":
                world.commit(storing=False)
            case "fail":
                world.commit(fails=True)
            case "store":
                world.report()
                world.store()
            case "others":
                world.others_write(count)
            case "pass":
                world.pass_over(count)
            case "crash":
                world.crash()
            case "lose":
                world.lose_answer(count)
            case "renumber":
                world.renumber()
        world.check(world.map)
        world.check(world.load())
