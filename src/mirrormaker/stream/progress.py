"""How far a source partition is mirrored, as one cut that is true for all its target partitions at once.

What is fetched goes on in units: a range of source offsets, and the batches that it became, perhaps for many target partitions.
Acknowledgements come in any order; a unit counts when all of its own are in and all before it counts. Then the offset behind it
and the numbers that its batches ended with belong together, and only such a pair is ever reported. So whoever goes on from there
gives every record the number that it had.

No input or output here: the same class runs in streams and against a simulated target in the tests.
"""

from __future__ import annotations

from collections import deque

from mirrormaker.stream.position import Cut, Place, Position


class Unit:
    """A range of source offsets on its way."""

    __slots__ = ("cuts", "end", "epoch", "left", "settled")

    def __init__(self, end: int, epoch: int, left: int, settled: bool) -> None:
        self.end, self.epoch = end, epoch  # where the source stands behind it
        self.left = left  # batches that are not yet acknowledged
        self.settled = settled  # behind it, nothing on the target lies ahead of the source
        self.cuts: dict[Place, Cut] = {}


class Progress:
    def __init__(self, position: Position) -> None:
        self.offset, self.epoch = position.offset, position.leader_epoch
        self.cuts = {cut.place: cut for cut in position.cuts}
        self._staged = dict(self.cuts)
        self._units: deque[Unit] = deque()

    def start_over(self) -> None:
        """Forget what is under way: all of it will be fetched again."""
        self._units.clear()
        self._staged = dict(self.cuts)

    def add(self, unit: Unit) -> None:
        self._units.append(unit)
        if not unit.left:
            self._advance()

    def acknowledged(self, unit: Unit, cut: Cut) -> None:
        """One of the unit's batches is on the target; the cut is behind it."""
        unit.cuts[cut.topic, cut.partition] = cut
        unit.left -= 1
        if not unit.left:
            self._advance()

    def pass_over(self, end: int, epoch: int, settled: bool) -> None:
        """Nothing to send for these offsets: they count as soon as all before them does."""
        if self._units:
            last = self._units[-1]
            last.end, last.epoch = end, epoch
        elif settled:
            self.offset, self.epoch = end, epoch
            self.cuts = dict(self._staged)

    def _advance(self) -> None:
        units = self._units
        while units and not units[0].left:
            unit = units.popleft()
            self._staged.update(unit.cuts)
            if unit.settled:  # before that, a target partition's number would belong to a record behind the offset
                self.offset, self.epoch = unit.end, unit.epoch
                self.cuts.update(self._staged)
