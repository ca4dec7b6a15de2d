"""The offset map of one source partition: which target offset has the record of which source offset, both ways.

Records are mirrored in order, so the map is a list of runs (`offset_runs`). Streams report runs as the target acknowledges them.
The runs of one producer identity are kept in blocks. A block begins at a source offset and says exactly what was true when it was
last stored, so a map that is read after a crash is never wrong, only a moment old. The last block grows; the others keep their
runs packed, so that years of transactions fit into memory.

This module does no input or output.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, zip_longest
from typing import NamedTuple

from mirrormaker.model.offset_runs import NotedRun, RunList, Translated
from mirrormaker.model.packed_runs import Run
from mirrormaker.model.position import Cut, Identity, Place, Position
from mirrormaker.wire.records.batch import SEQUENCES

# A block with so many runs is complete, and the next one begins.
BLOCK_RUNS = 256
# So many blocks are written at once: half a megabyte.
BLOCKS_AT_ONCE = 512


@dataclass(slots=True)
class Block:
    """The map of the source offsets from `start` to `end`, which were mirrored under one identity."""

    start: int
    end: int
    identity: Identity
    topic_id: str
    target_topic_id: str = ""
    lists: dict[Place, RunList] = field(default_factory=dict)
    # The time of the last write, in milliseconds since 1970.
    stored_at: int = 0

    @property
    def size(self) -> int:
        """Return the number of runs."""
        return sum(runs.count for runs in self.lists.values())

    def pack(self) -> None:
        """Keep the runs packed until one of them changes."""
        for runs in self.lists.values():
            runs.pack(self.start)


# A source offset, and for each target partition its sequence number and offset there.
_State = tuple[int, dict[Place, tuple[int, int]]]


class Writing(NamedTuple):
    """Blocks on their way to the target's topic, the starts of those to delete there, and the state that they describe."""

    blocks: list[Block]
    gone: set[int]
    state: _State | None


class PartitionMap:
    """All blocks of one source partition; the last one grows while the partition is mirrored."""

    __slots__ = ("_changed", "_gone", "_places", "_stored", "blocks")

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        """Take blocks that were stored, in any order."""
        self.blocks = sorted(blocks, key=lambda block: block.start)
        # By their start: blocks that must be stored before a position is committed, and blocks that must be deleted.
        self._changed: set[int] = set()
        self._gone: set[int] = set()
        # The target partitions of all blocks; None if they must be looked up again.
        self._places: list[Place] | None = None
        # The state that the stored last block describes.
        self._stored = _state_of(self.blocks[-1]) if self.blocks else None

    # -- writing

    def begin(self, position: Position) -> None:
        """Go on at a position: in the same block if it has the same identity, else in a new one."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and _is_another_log(last, position):
            self._drop(-1)  # a topic was created again: its offsets mean other records now
        while self.blocks and self.blocks[-1].start > position.offset:
            self._drop(self.blocks[-1].start)
        if not self.blocks or self.blocks[-1].identity != position.identity:
            self._drop(position.offset)
            self._start_block(position)
            return
        last = self.blocks[-1]
        goes_on = self._goes_on(position)
        truncated = [self._list(last, cut).truncate(cut.offset) for cut in position.cuts]
        if goes_on and len(position.cuts) == 1 and position.offset > last.end:
            # The ledger is a moment newer than the stored block, and nothing but the last run became longer since.
            runs = self._list(last, position.cuts[0])
            runs.add(NotedRun(last.end, runs.end_offset, position.offset - last.end, runs.end_sequence))
        if any(truncated) or not goes_on:
            self._changed.add(last.start)
        self._end_at(last, position)

    def note(self, position: Position, noted: Iterable[tuple[Place, Sequence[NotedRun]]]) -> None:
        """Take in the runs that were reported together with a position."""
        block = self.blocks[-1]
        for place, rows in noted:
            runs = block.lists.get(place)
            if runs is None:
                first = rows[0]
                runs = RunList(first.target, first.sequence, first.target, first.sequence)
                block.lists[place] = runs
                self._places = None
            for row in rows:
                # A stream does not know of blocks: its run may have begun in the one before.
                before = max(0, block.start - row.source)
                if before < row.length and runs.add(row.without_first(before)):
                    self._changed.add(block.start)
        self._end_at(block, position)
        if not self._goes_on(position):
            self._changed.add(block.start)
        if block.size >= BLOCK_RUNS and block.end > block.start and not any(cut.ahead for cut in position.cuts):
            self._complete_block(position)

    def put_before(self, stored: PartitionMap, *, is_stored: bool = True) -> None:
        """Take in blocks that could not be read when this map began; what they say of later offsets no longer counts.

        With `is_stored=False` they were rebuilt, and must be stored.
        """
        earlier = [block for block in stored.blocks if block.start < self.first]
        for block in earlier:
            block.pack()
        if not is_stored:
            self._changed |= {block.start for block in earlier}
        own = {block.start for block in self.blocks}
        self._gone |= {block.start for block in stored.blocks if block.start > self.first} - own
        self.blocks = [*earlier, *self.blocks]
        self._places = None

    @property
    def is_due(self) -> bool:
        """Return True if something must be stored before the ledger may say that these records are mirrored."""
        return bool(self._changed or self._gone)

    @property
    def is_stale(self) -> bool:
        """Return True if the stored map ends before the position."""
        return bool(self.blocks) and (self._stored is None or self._stored[0] != self.blocks[-1].end)

    def take(self) -> Writing:
        """Return what must be stored or deleted, and the last block; `stored` or `failed` must follow.

        If that is more than some hundred blocks, the map is due again after these.
        """
        if not self.blocks:
            return Writing([], self._gone.copy(), None)
        last = self.blocks[-1]
        wanted = self._changed | {last.start}
        # They are the last ones, as long as nobody has deleted the topic.
        found = list(islice((block for block in reversed(self.blocks) if block.start in wanted), len(wanted)))
        blocks = found[::-1][:BLOCKS_AT_ONCE]
        self._changed -= {block.start for block in blocks}
        return Writing(blocks, self._gone.copy(), _state_of(last) if blocks[-1] is last else None)

    def stored(self, writing: Writing) -> None:
        """Note that everything was stored as it was taken."""
        self._gone -= writing.gone
        is_last = self.blocks and writing.blocks and writing.blocks[-1] is self.blocks[-1]
        self._stored = writing.state if is_last else None

    def failed(self, writing: Writing) -> None:
        """Note that nothing is known of what was stored."""
        self._changed |= {block.start for block in writing.blocks} & {block.start for block in self.blocks}
        self._stored = None

    def store_again(self) -> None:
        """Note that nothing is stored any more."""
        self._changed = {block.start for block in self.blocks}
        self._gone.clear()
        self._stored = None

    def forget_before(self, log_starts: dict[Place, int]) -> None:
        """Drop the blocks all of whose records lie before the start of the target's log; the last block stays."""
        while len(self.blocks) > 1:
            block = self.blocks[0]
            if any(runs.end_offset > log_starts.get(place, 0) for place, runs in block.lists.items()):
                return
            self.forget_first(1)

    def forget_first(self, count: int) -> None:
        """Drop so many of the oldest blocks; the last one stays."""
        dropped = {block.start for block in self.blocks[: min(count, len(self.blocks) - 1)]}
        del self.blocks[: len(dropped)]
        self._gone |= dropped
        self._changed -= dropped
        self._places = None

    def _drop(self, offset: int) -> None:
        """Forget the blocks from a source offset on: the source has other records there now, or they are mirrored again."""
        while self.blocks and self.blocks[-1].start >= offset:
            start = self.blocks.pop().start
            self._gone.add(start)
            self._changed.discard(start)
            self._stored = self._places = None

    def _start_block(self, position: Position) -> None:
        """Begin a block under a new identity."""
        before = self.blocks[-1] if self.blocks else None
        lists = {cut.place: _list_after(before, cut, position.offset) for cut in position.cuts}
        for cut in position.cuts:
            self._truncate_before(cut)
        self._append(position, lists)

    def _complete_block(self, position: Position) -> None:
        """Begin another block under the same identity, with the runs from after the position that were reported already."""
        before = self.blocks[-1]
        lists = {cut.place: before.lists[cut.place].split(cut) for cut in position.cuts}
        for place in before.lists.keys() - lists.keys():
            lists[place] = before.lists.pop(place)  # nothing from before the position went there
        self._changed.add(before.start)  # what is stored of it may have these runs
        self._append(position, lists)

    def _append(self, position: Position, lists: dict[Place, RunList]) -> None:
        if self.blocks:
            if self.is_stale:
                self._changed.add(self.blocks[-1].start)
            self.blocks[-1].pack()
        block = Block(
            position.offset, position.offset, position.identity, position.topic_id, position.target_topic_id, lists
        )
        self.blocks.append(block)
        self._places = None
        self._gone.discard(block.start)
        self._changed.add(block.start)
        self._stored = None

    def _truncate_before(self, cut: Cut) -> None:
        """Forget places at or after a cut: the target's log became shorter, and other records get these offsets."""
        for block in reversed(self.blocks):
            runs = block.lists.get(cut.place)
            if runs is None:
                continue
            if max(runs.end_offset, runs.ends[1]) <= cut.offset:
                return
            runs.truncate(cut.offset)
            runs.pack(block.start)
            runs.end_offset = min(runs.end_offset, cut.offset)
            self._changed.add(block.start)

    def _list(self, block: Block, cut: Cut) -> RunList:
        if cut.place not in block.lists:
            block.lists[cut.place] = RunList.at(cut)
            self._places = None
        return block.lists[cut.place]

    def _end_at(self, block: Block, position: Position) -> None:
        block.end = position.offset
        block.topic_id = position.topic_id or block.topic_id
        block.target_topic_id = position.target_topic_id or block.target_topic_id
        for cut in position.cuts:
            self._list(block, cut).end_at(cut)

    def _goes_on(self, position: Position) -> bool:
        """Return True if the last run of the stored block leads to the position.

        How offsets spread over several target partitions is known from runs alone: there a position needs no new block.
        """
        if self._stored is None:
            return False
        end, states = self._stored
        offsets = position.offset - end
        if len(position.cuts) != 1:
            return offsets >= 0
        (cut,) = position.cuts
        sequence, offset = states.get(cut.place, (-1, -1))
        return offsets >= 0 and (cut.sequence - sequence) % SEQUENCES == cut.offset - offset == offsets

    # -- reading

    @property
    def first(self) -> int:
        """Return the source offset at which the map begins."""
        return self.blocks[0].start if self.blocks else 0

    @property
    def end(self) -> int:
        """Return the source offset up to which everything is mirrored."""
        return self.blocks[-1].end if self.blocks else 0

    @property
    def size(self) -> int:
        """Return the number of runs."""
        return sum(block.size for block in self.blocks)

    @property
    def places(self) -> list[Place]:
        """Return the target partitions that have records of this partition, or may get some."""
        if self._places is None:
            self._places = sorted({place for block in self.blocks for place in block.lists})
        return self._places

    def translate(self, place: Place, source: int) -> Translated:
        """Return where a reader goes on that has read everything before a source offset.

        That is the first mirrored record at or after it. If there is none yet, it is the offset after the last mirrored record.
        Records from before the map, if there are any, lie anywhere before the first one that it knows.
        """
        if source < self.first:
            return Translated(0, self.translate(place, self.first).latest)
        at = max(0, bisect_right(self.blocks, source, key=lambda block: block.start) - 1)
        earliest: int | None = None
        earlier = (self.blocks[number] for number in range(at - 1, -1, -1))
        end = next((block.lists[place].end_offset for block in earlier if place in block.lists), 0)
        for block, after in zip_longest(islice(self.blocks, at, None), islice(self.blocks, at + 1, None)):
            runs = block.lists.get(place)
            if runs is not None:
                found = runs.find(source, block.end)
                if found is not None:
                    return found if earliest is None else Translated(earliest, found.latest)
                end = runs.end_offset
            if earliest is None and after is not None and block.end < after.start and source < after.start:
                # Records between the two blocks were mirrored while no map was kept.
                earliest = end
        return Translated(end if earliest is None else earliest, end)

    def translate_back(self, place: Place, target: int) -> Translated:
        """Return the source offset of the first mirrored record at or after a target offset; the map's end if there is none."""
        number, known_from = self._begin_of(place)
        unmapped = self._unmapped_before(number) if target < known_from else None
        found = self._find_source(place, target)
        return found if unmapped is None else Translated(min(unmapped, found.offset), found.latest)

    def _begin_of(self, place: Place) -> tuple[int, int]:
        """Return the first block of a target partition, and the target offset from which on the map knows every record."""
        for number, block in enumerate(self.blocks):
            if (found := block.lists.get(place)) is not None:
                if found.count and found.runs[0].skipped:
                    return number, found.runs[0].target
                return number, found.end_offset if found.unknown and not found.count else found.first_offset
        return 0, 0

    def _unmapped_before(self, number: int) -> int | None:
        """Return the first source offset before a block that the map lacks; None if it has all of them."""
        if self.first:
            return 0
        earlier = pairwise(islice(self.blocks, number + 1))
        return next((block.end for block, after in earlier if block.end < after.start), None)

    def _find_source(self, place: Place, target: int) -> Translated:
        before: Block | None = None
        for block in self.blocks:
            runs = block.lists.get(place)
            if runs is None:
                continue
            found = runs.find_source(target, block.start, block.end)
            if found is not None:
                has_hole = before is not None and before.end < block.start and target < runs.first_offset
                return Translated(before.end, found.latest) if before is not None and has_hole else found
            before = block
        return Translated(self.end, self.end)

    def runs(self) -> Iterator[tuple[Place, Run]]:
        """Yield every run with its target partition, in the order of the source for each of them."""
        for block in self.blocks:
            for place, runs in block.lists.items():
                for run in runs.runs:
                    yield place, run


def _is_another_log(block: Block, position: Position) -> bool:
    """Return True if the topic of either side was created again since the block was mirrored."""
    pairs = (block.topic_id, position.topic_id), (block.target_topic_id, position.target_topic_id)
    return any(before and now and before != now for before, now in pairs)


def _state_of(block: Block) -> _State:
    return block.end, {place: (runs.end_sequence, runs.end_offset) for place, runs in block.lists.items()}


def _list_after(before: Block | None, cut: Cut, start: int) -> RunList:
    """Return the list of a target partition in a new block, which begins at source offset `start` and at a cut.

    The target may hold records from after that offset already. They belong to the new block, under numbers of the old one.
    """
    if not cut.ahead:
        return RunList.at(cut)
    old = before.lists.get(cut.place) if before is not None else None
    ahead = [run for run in old.runs if run.source_end > start] if old is not None else []
    if ahead and ahead[0].source < start:
        known = start - ahead[0].source
        ahead[0] = Run(start, ahead[0].target + known, ahead[0].length - known)
    if sum(run.length for run in ahead) == cut.ahead and not any(run.skipped for run in ahead[1:]):
        ahead[0] = ahead[0]._replace(skipped=0)
        return RunList(ahead[0].target, cut.sequence, cut.offset, cut.sequence, ahead)
    known_ends = [run.target_end for run in old.runs if run.source_end <= start] if old is not None else []
    first = known_ends[-1] if known_ends else old.first_offset if old is not None else 0
    # A number that is missing before the next run says that records lie there at unknown places.
    return RunList(first, (cut.sequence - 1) % SEQUENCES, cut.offset, cut.sequence)
