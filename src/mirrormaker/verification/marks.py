"""Up to where both sides are compared while a mirror may be at work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirrormaker.model.position import Position
from mirrormaker.verification.plan import Part


class Marks:
    """Up to where each target partition is compared, as far as positions tell."""

    def __init__(self) -> None:
        self._reached: dict[int, int] = {}
        self._late: set[int] = set()  # something of theirs is not mirrored yet, and may come while we look
        self._vague: set[int] = set()  # and nobody has written down where that would begin
        self.limits: dict[tuple[int, int], int] = {}

    def note(self, part: Part, places: Sequence[int], known: tuple[int, Position | None] | None) -> Part:
        """What is compared of a source partition, and what that says of the target's."""
        offset, position = known or (0, None)
        caught_up = offset >= part.end
        ahead = position is not None and any(cut.ahead for cut in position.cuts if not cut.topic)
        if not caught_up:
            self._late |= set(places)
        producer = position.identity.producer_id if position is not None else -1
        if position is None or ahead or producer < 0:  # old targets do not tell producers apart
            self._vague |= set(places)
        for cut in [position.cut(place) for place in places] if position is not None else []:
            self._reached[cut.partition] = max(self._reached.get(cut.partition, 0), cut.offset)
            if not caught_up:
                self.limits[cut.partition, producer] = cut.offset
        if caught_up:
            return replace(part, producer=producer)
        if known is None or ahead:
            return replace(part, producer=producer, open_end=True)
        return replace(part, producer=producer, until=max(part.start, offset))

    def by_cuts(self, place: int) -> bool:
        return place in self._late and place not in self._vague

    def ended(self, part: Part) -> Part:
        """All of it, if nothing can come; else up to where the positions reach, which an open transaction may hide."""
        reached = self._reached.get(part.partition, 0)
        if part.partition not in self._late:
            return replace(part, open_end=part.end < reached)
        if part.partition in self._vague:
            return replace(part, open_end=True)
        return replace(part, until=max(part.start, min(part.end, reached)), open_end=part.end < reached)
