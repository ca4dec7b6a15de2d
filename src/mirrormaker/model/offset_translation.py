"""One offset on both sides: the result of a translation by the offset map."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def is_exact(self) -> bool:
        """True if a reader that goes on at `to_offset` reads nothing again."""
        return self.to_offset == self.latest
