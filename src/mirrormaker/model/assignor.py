"""The group leader's assignment: partitions by streams, with as few moves as possible.

The group agrees on the assignor `range`, which every client knows, so a Java MirrorMaker can be a member too. The
group's leader computes the assignment. A Java leader splits each topic by range. A leader of ours does better with what
our members put into their subscriptions: how many streams they have, and which partitions they own.

A partition moves between two of our members in two rounds. In the first round its owner no longer finds it in its
assignment, finishes it, commits, and joins again. In the second round nobody owns it, and it is assigned to its new
owner. So the new owner starts where the old one ended, and the two never mirror it at the same time.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mirrormaker.wire.protocol.codec import TopicPartition

# The user data of a subscription of ours: a marker, a version, streams, the generation of the owned partitions.
_USER_DATA = struct.Struct(">4sBii")
_MARKER, _VERSION = b"mrrr", 1
# A leader of ours puts this into each assignment. It tells a member that lost partitions to release them and join
# again.
REJOIN = b"again"


@dataclass(frozen=True)
class Member:
    """One member of the consumer group, as the assignor sees it."""

    topics: frozenset[str]
    # 0: the streams are still starting, and the member gets nothing while others have streams. -1: they are overdue,
    # and the member loses its partitions to the others.
    streams: int = 1
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)
    generation: int = -1  # the one that assigned `owned`


def encode_user_data(streams: int, generation: int) -> bytes:
    """Return the user data that a member of ours adds to its subscription."""
    return _USER_DATA.pack(_MARKER, _VERSION, streams, generation)


def decode_user_data(data: bytes) -> tuple[int, int]:
    """Return (streams, generation) from a member's user data.

    A Java member counts as one stream that owns nothing: (1, -1).
    """
    if len(data) < _USER_DATA.size:
        return 1, -1
    marker, _, streams, generation = _USER_DATA.unpack_from(data)
    return (max(-1, streams), generation) if marker == _MARKER else (1, -1)


def assign(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """Return the partitions of each member; a partition that has to move between two of them is in nobody's set yet.

    `counts` are the partitions of each topic.
    """
    owners = _owners(members, counts)
    if not any(member.streams > 0 for member in members.values()):
        members = {name: replace(member, streams=1) for name, member in members.items()}
    assignments = {name: _Assignment(member) for name, member in members.items()}
    for key, name in owners.items():
        assignments[name].add(key)
    for topic in sorted(counts):
        subscribed = [assignment for _, assignment in sorted(assignments.items()) if topic in assignment.topics]
        for partition in range(counts[topic]):
            if (topic, partition) not in owners and subscribed:
                min(subscribed, key=lambda assignment: assignment.load(1)).add((topic, partition))
    while _move_one(list(assignments.values())):
        pass
    return {
        name: {key for key in assignment.all() if owners.get(key, name) == name}
        for name, assignment in assignments.items()
    }


def _owners(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Return the owner of each partition.

    If two members claim a partition, the claim of the later generation is right: the other member was away.
    """
    claims: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for name, member in members.items():
        for topic, partition in member.owned:
            if topic in member.topics and 0 <= partition < counts.get(topic, 0):
                claims[topic, partition].append((member.generation, name))
    return {key: max(claimed)[1] for key, claimed in claims.items()}


class _Assignment:
    """One member's partitions, by topic."""

    def __init__(self, member: Member) -> None:
        self.topics, self.streams = member.topics, member.streams
        self.size = 0
        self.by_topic: dict[str, set[int]] = defaultdict(set)
        # A heap of (-partitions, topic). Entries whose number has changed since stay in it, and `pick` drops them.
        self._largest: list[tuple[int, str]] = []

    def load(self, more: int = 0) -> float:
        """Return the partitions per stream, with `more` added.

        A member without streams takes nothing more; it keeps its partitions until its streams are overdue.
        """
        if self.streams <= 0:
            return math.inf if more or (self.streams < 0 and self.size) else 0.0
        return (self.size + more) / self.streams

    def add(self, key: TopicPartition) -> None:
        self.by_topic[key[0]].add(key[1])
        heapq.heappush(self._largest, (-len(self.by_topic[key[0]]), key[0]))
        self.size += 1

    def all(self) -> list[TopicPartition]:
        return [(topic, partition) for topic, partitions in self.by_topic.items() for partition in partitions]

    def pick(self, taker: _Assignment) -> TopicPartition | None:
        """Remove and return a partition for `taker`: the last one of the largest topic that it is subscribed to."""
        passed_over = []
        while self._largest and (entry := heapq.heappop(self._largest)):
            left, topic = self.by_topic[entry[1]], entry[1]
            if len(left) != -entry[0]:
                continue
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


def _move_one(assignments: list[_Assignment]) -> bool:
    """Move a partition from the member with the most per stream to the one with the least, if that evens them out."""
    for giver in sorted(assignments, key=_Assignment.load, reverse=True):
        for taker in sorted(assignments, key=lambda assignment: assignment.load(1)):
            if taker.load(1) >= giver.load():
                break
            if taker is not giver and (key := giver.pick(taker)):
                taker.add(key)
                return True
    return False
