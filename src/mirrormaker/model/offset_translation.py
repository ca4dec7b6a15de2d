"""One offset on both sides: the result of a translation by the offset map."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Translation:
    """An offset, and its place on the other cluster: between `to_offset` and `latest`, which are equal if it is exact."""

    topic: str
    partition: int
    offset: int
    to_topic: str
    to_partition: int
    to_offset: int
    latest: int
    # So many offsets at most lie between the place and the log: its start is later, because of retention, or its end is earlier.
    trimmed: int = 0
    ahead: int = 0

    @property
    def is_exact(self) -> bool:
        """True if a reader that goes on at `to_offset` reads nothing again, and if that is its place."""
        return self.to_offset == self.latest and not self.trimmed and not self.ahead

    def held(self, start: int, end: int) -> Translation:
        """Return the translation with places in a log that begins and ends at these offsets."""
        first, last = (min(max(offset, start), end) for offset in (self.to_offset, self.latest))
        trimmed, ahead = max(0, start - self.to_offset), max(0, self.latest - end)
        return replace(self, to_offset=first, latest=last, trimmed=trimmed, ahead=ahead)
