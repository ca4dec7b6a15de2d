"""How far a source partition is mirrored, as one cut that is true for all its target partitions at once.

What is fetched goes on in units: a range of source offsets, and the batches that it became, perhaps for many target partitions.
Acknowledgements come in any order; a unit counts when all of its own are in and all before it counts. Then the offset behind it
and the numbers that its batches ended with belong together, and only such a pair is ever reported. So whoever goes on from there
gives every record the number that it had.

No input or output here: the same class runs in streams and against a simulated target in the tests.
"""

from __future__ import annotations

from collections import deque

from mirrormaker.model.position import Cut, Place, Position


class Unit:
    """A range of source offsets on its way."""

    __slots__ = ("begun", "counts", "cuts", "end", "epoch", "left", "single")

    def __init__(self, end: int, epoch: int, left: int = 0) -> None:
        self.end, self.epoch = end, epoch  # where the source stands behind it
        self.left = left  # batches that are not yet acknowledged
        self.begun = False  # one of them has been sent
        self.single = False  # all of them come from one record
        self.cuts: dict[Place, Cut] = {}
        self.counts: dict[Place, int] = {}  # records of it, where it goes to several places


class Progress:
    def __init__(self, position: Position) -> None:
        self.offset, self.epoch = position.offset, position.leader_epoch
        self.cuts = {cut.place: cut for cut in position.cuts}
        self.units: deque[Unit] = deque()

    def add(self, unit: Unit) -> None:
        self.units.append(unit)
        if not unit.left:
            self._advance()

    def acknowledged(self, unit: Unit, cut: Cut) -> None:
        """One of the unit's batches is on the target; the cut is behind it."""
        unit.cuts[cut.topic, cut.partition] = cut
        unit.left -= 1
        if not unit.left:
            self._advance()

    def pass_over(self, end: int, epoch: int) -> None:
        """Nothing to send for these offsets: they count as soon as all before them does."""
        if self.units:
            last = self.units[-1]
            last.end, last.epoch = end, epoch
        else:
            self.offset, self.epoch = end, epoch

    def begun(self) -> set[Unit]:
        """The units up to the last one of which something has been sent: to let go in order, all of them must be through."""
        last = max((number for number, unit in enumerate(self.units) if unit.begun), default=-1)
        return {unit for number, unit in enumerate(self.units) if number <= last}

    def _advance(self) -> None:
        units = self.units
        while units and not units[0].left:
            unit = units.popleft()
            self.cuts.update(unit.cuts)
            self.offset, self.epoch = unit.end, unit.epoch
