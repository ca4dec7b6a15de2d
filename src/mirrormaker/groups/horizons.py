"""From which target offset on records of a source partition can still come, in target partitions that it shares with others.

The map names the place of every mirrored record. Where there is none that a reader still needs, the end of the map's last run
says little: others have written to the target partition since. So the ends of the target's logs are remembered, and after them
the ends of the source's logs are read. Records after those ends did not exist when the target's ends were read: they come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mirrormaker.wire.protocol.codec import TopicPartition

_MOST_ROUNDS = 1024  # an hour and a half, if one comes every 5 s


@dataclass(frozen=True, slots=True)
class _Look:
    number: int
    source: Mapping[TopicPartition, int]
    target: Mapping[TopicPartition, int]


class Horizons:
    """The ends of both sides, of now and of earlier rounds: two looks are kept of each power of two of rounds."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []  # the newest one first

    def note(self, target: Mapping[TopicPartition, int], source: Mapping[TopicPartition, int]) -> None:
        """Remember the ends of target logs, and those of source logs that were read after them."""
        number = self._looks[0].number + 1 if self._looks else 0
        kept = [look for look in self._looks if _is_kept(look.number, number - look.number)]
        self._looks = [_Look(number, source, target), *kept]

    def find(self, key: TopicPartition, end: int, place: TopicPartition) -> int:
        """Return the target offset; -1 if it is not known.

        Everything before `end` is in the map of the source partition, and none of what a reader still needs is in that place.
        """
        for look in self._looks:
            if look.source.get(key, end + 1) <= end and place in look.target:
                return look.target[place]
        return -1


def _is_kept(number: int, age: int) -> bool:
    return age < _MOST_ROUNDS and number % (1 << max(0, age.bit_length() - 2)) == 0
