"""Who of a group mirrors what: by weight, and moving only what must move.

The group agrees on the assignor `range`, which every client knows, so a Java MirrorMaker may sit beside us. Whoever leads the
group decides; a Java leader splits each topic by range, ours does better with what our members tell in their subscriptions:
how many streams they have, and what they hold.

A partition moves between two of ours in two rounds. In the first its holder no longer finds it in its share, finishes it,
commits, and joins again; in the second it belongs to nobody and is given away. So its new holder starts where the old one
ended, and never beside it.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Key = tuple[str, int]

_CARD = struct.Struct(">4sBii")  # the mark of our own members, a version, streams, the generation of what is held
_MARK, _VERSION = b"mrrr", 1
AGAIN = b"again"  # what a leader of ours writes into a share: whoever lost something joins again when it has let go


@dataclass(frozen=True)
class Member:
    """One member of the group, as far as sharing is concerned."""

    topics: frozenset[str]
    streams: int = (
        1  # 0: it has only just started, and gets nothing as long as there are others; -1: it has waited too long
    )
    held: frozenset[Key] = field(default_factory=frozenset)
    generation: int = -1  # in which it was given what it holds


def card(streams: int, generation: int) -> bytes:
    """What our members add to their subscription."""
    return _CARD.pack(_MARK, _VERSION, streams, generation)


def read_card(data: bytes) -> tuple[int, int]:
    """(streams, generation): of a Java member, which is one stream and has let go of everything, (1, -1)."""
    if len(data) < _CARD.size:
        return 1, -1
    mark, _, streams, generation = _CARD.unpack_from(data)
    return (max(-1, streams), generation) if mark == _MARK else (1, -1)


def share(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[str, set[Key]]:
    """What each member has from now on. What has to move between two of them is in nobody's share yet."""
    held = _holders(members, counts)
    if not any(member.streams > 0 for member in members.values()):
        members = {name: replace(member, streams=1) for name, member in members.items()}
    piles = {name: _Pile(member) for name, member in members.items()}
    for key, name in held.items():
        piles[name].add(key)
    for topic in sorted(counts):
        wanting = [pile for _, pile in sorted(piles.items()) if topic in pile.topics]
        for partition in range(counts[topic]):
            if (topic, partition) not in held and wanting:
                min(wanting, key=lambda pile: pile.load(1)).add((topic, partition))
    while _move_one(list(piles.values())):
        pass
    return {name: {key for key in pile.all() if held.get(key, name) == name} for name, pile in piles.items()}


def _holders(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[Key, str]:
    """Who holds what. Of two that claim it, the one that was given it later is right; the other was away."""
    claims: dict[Key, list[tuple[int, str]]] = defaultdict(list)
    for name, member in members.items():
        for topic, partition in member.held:
            if topic in member.topics and partition < counts.get(topic, 0):
                claims[topic, partition].append((member.generation, name))
    return {key: max(found)[1] for key, found in claims.items()}


class _Pile:
    """One member's partitions, by topic."""

    def __init__(self, member: Member) -> None:
        self.topics, self.streams = member.topics, member.streams
        self.size = 0
        self.by_topic: dict[str, set[int]] = defaultdict(set)
        self._largest: list[tuple[int, str]] = []  # a heap of (-partitions, topic), with outdated entries among them

    def load(self, more: int = 0) -> float:
        """Partitions per stream. Without streams one takes nothing more; what it has, it keeps for a while."""
        if self.streams <= 0:
            return math.inf if more or (self.streams < 0 and self.size) else 0.0
        return (self.size + more) / self.streams

    def add(self, key: Key) -> None:
        self.by_topic[key[0]].add(key[1])
        heapq.heappush(self._largest, (-len(self.by_topic[key[0]]), key[0]))
        self.size += 1

    def all(self) -> list[Key]:
        return [(topic, partition) for topic, partitions in self.by_topic.items() for partition in partitions]

    def pick(self, taker: _Pile) -> Key | None:
        """Of the topic that the taker wants and of which we have most, the last partition."""
        passed_over = []
        while self._largest and (entry := heapq.heappop(self._largest)):
            left, topic = self.by_topic[entry[1]], entry[1]
            if len(left) != -entry[0]:
                continue  # it has been more or less since
            if left and topic in taker.topics:
                last = max(left)
                left.remove(last)
                self.size -= 1
                passed_over.append((-len(left), topic))
                break
            passed_over.append(entry)
        else:
            topic, last = "", -1
        for entry in passed_over:
            heapq.heappush(self._largest, entry)
        return (topic, last) if topic else None


def _move_one(piles: list[_Pile]) -> bool:
    """From the one with most per stream to the one with least, if that leaves the two closer."""
    for giver in sorted(piles, key=_Pile.load, reverse=True):
        for taker in sorted(piles, key=lambda pile: pile.load(1)):
            if taker.load(1) >= giver.load():
                break
            if taker is not giver and (key := giver.pick(taker)):
                taker.add(key)
                return True
    return False
