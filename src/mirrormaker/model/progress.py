"""How far a source partition is mirrored, as one cut that holds for all of its target partitions at the same time.

Fetched records travel in units: a unit is a range of source offsets, and the batches that it became, perhaps for many
target partitions. Acknowledgements come in any order. A unit counts as mirrored when all of its batches are
acknowledged and all units before it count. At that moment the offset after the unit and the numbers that its batches
ended with belong together, and only such pairs are ever reported. So a successor that goes on from a reported position
gives every record the number that it had before.

This module does no input or output: the same class runs in streams, and against a simulated target in the tests.
"""

from __future__ import annotations

from itertools import takewhile

from mirrormaker.model.position import Cut, Place, Position


class Unit:
    """A range of source offsets on its way to the target."""

    __slots__ = ("begun", "counts", "cuts", "end", "epoch", "pending", "single")

    def __init__(self, end: int, epoch: int, pending: int = 0) -> None:
        """`end` and `epoch` are the source offset after the unit, and the leader epoch of the record before it."""
        self.end, self.epoch = end, epoch
        self.pending = pending  # batches that are not acknowledged yet
        self.begun = False  # True once one of its batches was sent
        self.single = False  # True if the whole unit comes from one source record
        self.cuts: dict[Place, Cut] = {}
        # Records of the unit by target partition; empty if the batch was forwarded unchanged.
        self.counts: dict[Place, int] = {}


class Progress:
    """The units of one source partition that are on their way, and the position that all before them add up to."""

    def __init__(self, position: Position) -> None:
        """Start at a position, with nothing on its way."""
        self.offset, self.epoch = position.offset, position.leader_epoch
        self.cuts = {cut.place: cut for cut in position.cuts}
        self.units: list[Unit] = []
        # The state before records that are skipped, until the last of them proves that they are those on the target.
        self._before_skipped: tuple[int, int, list[Cut]] | None = None

    @property
    def proved(self) -> tuple[int, int, list[Cut]]:
        """Return the offset, the epoch and the cuts up to which everything is certainly on the target.

        A source that was compacted has fewer records than the target: then some that are skipped were never mirrored.
        """
        return self._before_skipped or (self.offset, self.epoch, list(self.cuts.values()))

    @property
    def is_doubted(self) -> bool:
        """Return True while records are skipped that nothing has proved to be those on the target."""
        return self._before_skipped is not None

    def doubt(self, is_skipping: bool) -> None:
        """Note whether records are skipped from here on, or still are."""
        self._before_skipped = self.proved if is_skipping else None

    def add(self, unit: Unit) -> None:
        """Append a unit, which follows all earlier ones at the source."""
        self.units.append(unit)
        if not unit.pending:
            self._advance()

    def acknowledged(self, unit: Unit, cut: Cut) -> None:
        """Count one of the unit's batches as appended; `cut` lies right after it."""
        unit.cuts[cut.topic, cut.partition] = cut
        unit.pending -= 1
        if not unit.pending:
            self._advance()

    def pass_over(self, end: int, epoch: int) -> None:
        """Count offsets up to `end` that have nothing to send, as soon as all before them count."""
        if self.units:
            last = self.units[-1]
            last.end, last.epoch = end, epoch
        else:
            self.offset, self.epoch = end, epoch

    def begun_units(self) -> set[Unit]:
        """Return the units up to the last one of which a batch was sent; a clean release has to finish all of them."""
        last = max((number for number, unit in enumerate(self.units) if unit.begun), default=-1)
        return {unit for number, unit in enumerate(self.units) if number <= last}

    def units_until(self, unit: Unit | None) -> set[Unit]:
        """Return the units up to this one, which counts too; all of them without one."""
        return {*takewhile(lambda other: other is not unit, self.units), *([] if unit is None else [unit])}

    @property
    def end(self) -> int:
        """Return the source offset after the last unit."""
        return self.units[-1].end if self.units else self.offset

    def _advance(self) -> None:
        units = self.units
        while units and not units[0].pending:
            unit = units.pop(0)
            self.cuts.update(unit.cuts)
            self.offset, self.epoch = unit.end, unit.epoch
