"""A plan for each group and topic: the survey of both sides, the offset map and the memory, put together.

A group whose bytes are the same as in the last round on both sides costs two comparisons, so thousands of groups are looked
at every few seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mirrormaker.groups.group_survey import Survey
from mirrormaker.kafka_errors import UNSTABLE_OFFSET_COMMIT
from mirrormaker.model.group_sync import Aim, Decision, Log, Memory, Part, Presence, State, aim, decide, worst
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets


class Map(Protocol):
    """The offset map of one source partition."""

    @property
    def first(self) -> int:
        """Return the source offset at which the map begins."""

    @property
    def end(self) -> int:
        """Return the source offset up to which everything is mirrored."""

    @property
    def places(self) -> list[Place]:
        """Return the target partitions that have records of this partition."""

    def translate(self, place: Place, source: int) -> Translated:
        """Return where a reader goes on."""


Logs = Mapping[TopicPartition, Log]
_NOTHING = TopicOffsets(b"", 0, True)


@dataclass(slots=True)
class Entry:
    """A group in one target topic: the last look at it, and what came of it."""

    source: tuple[bytes, ...] = ()
    target: bytes = b""
    presence: Presence = Presence.FREE
    decisions: dict[int, Decision] = field(default_factory=dict)
    # The offsets on both sides, by target partition; on the source the smallest one, if several partitions lead there.
    offsets: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    metadata: dict[int, str] = field(default_factory=dict)
    # True if nothing can change before the bytes of either side do.
    is_settled: bool = False
    # When the target was last seen to have what we wrote, in seconds since 1970.
    synced_at: float = 0.0

    @property
    def again(self) -> int:
        """Return how many records are read again at most."""
        return sum(decision.again for decision in self.decisions.values())

    @property
    def missing(self) -> int:
        """Return how many records can no longer be read."""
        return sum(decision.missing for decision in self.decisions.values())

    @property
    def state(self) -> State:
        """Return the state that users must hear of first."""
        return worst(decision.state for decision in self.decisions.values())


@dataclass(frozen=True)
class Route:
    """The source partitions that write to one target topic, and the place in each one's map, by target partition."""

    sources: Mapping[int, list[tuple[TopicPartition, Place]]]
    topics: tuple[str, ...]  # of the source


def routes(maps: Mapping[TopicPartition, Map]) -> dict[str, Route]:
    """Return the ways from source partitions to target topics."""
    found: dict[str, dict[int, list[tuple[TopicPartition, Place]]]] = {}
    for key, known in maps.items():
        for place in known.places:
            found.setdefault(place[0] or key[0], {}).setdefault(place[1], []).append((key, place))
    return {
        topic: Route(parts, tuple(sorted({key[0] for rows in parts.values() for key, _ in rows})))
        for topic, parts in found.items()
    }


_GROUPS_IN_ONE_TURN = 200


class Planner:
    """Remembers the last look at each group and topic."""

    def __init__(self, *, is_writing: bool = True) -> None:
        """`is_writing` False: nothing is committed on the target, so only the memory counts."""
        self._is_writing = is_writing
        self.entries: dict[tuple[str, str], Entry] = {}

    def plan(
        self,
        survey: Survey,
        maps: Mapping[TopicPartition, Map],
        logs: Logs,
        source_starts: Mapping[TopicPartition, int],
        memory: Mapping[tuple[str, str], Mapping[int, Memory]],
        *,
        everything: bool = False,
    ) -> Iterator[tuple[str, str, Entry] | None]:
        """Yield each group and target topic that was looked at again; others are as they were.

        Now and then it yields None: then the rest of an event loop can have its turn. `everything`: look at those too whose
        bytes have not changed.
        """
        ways = routes(maps)
        are_plain = all(way.topics == (topic,) for topic, way in ways.items())
        known: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key in self.entries:
            known[key[0]].append(key)
        seen: set[tuple[str, str]] = set()
        for number, (group, offsets) in enumerate(survey.source_offsets.items(), 1):
            if number % _GROUPS_IN_ONE_TURN == 0:
                yield None
            there = survey.target_offsets.get(group)
            if any(isinstance(side, Exception) or (side is not None and side.error) for side in (offsets, there)):
                # The coordinator is moving, or refuses; what was known of the group stays.
                seen.update(known[group])
                continue
            assert not isinstance(offsets, Exception) and not isinstance(there, Exception)
            presence = survey.presence(group) if self._is_writing else Presence.FREE
            for topic in _target_topics(offsets, ways, are_plain):
                way = ways[topic]
                seen.add((group, topic))
                entry = self.entries.setdefault((group, topic), Entry())
                raw = tuple(offsets.topics.get(name, _NOTHING).raw for name in way.topics)
                on_target = there.topics.get(topic, _NOTHING) if there is not None else _NOTHING
                is_same = entry.source == raw and entry.target == on_target.raw and entry.presence is presence
                if is_same and entry.is_settled and not everything:
                    continue
                entry.source, entry.target, entry.presence = raw, on_target.raw, presence
                committed = {name: offsets.topics[name].rows() for name in way.topics if name in offsets.topics}
                remembered = memory.get((group, topic), {})
                rows = on_target.rows()
                if not self._is_writing:
                    rows = {partition: CommittedRow(known.last, "") for partition, known in remembered.items()}
                _decide(entry, topic, way, committed, rows, maps, logs, source_starts, remembered)
                yield group, topic, entry
        for key in self.entries.keys() - seen:
            del self.entries[key]


def _target_topics(offsets: GroupOffsets, ways: Mapping[str, Route], are_plain: bool) -> Iterable[str]:
    """Return the target topics of a group; `are_plain`: no message handler sends records to topics of other names."""
    if are_plain:
        return [name for name in offsets.topics if name in ways]
    return [topic for topic, way in ways.items() if any(name in offsets.topics for name in way.topics)]


def _decide(
    entry: Entry,
    topic: str,
    way: Route,
    committed: Mapping[str, Mapping[int, CommittedRow]],
    target: Mapping[int, CommittedRow],
    maps: Mapping[TopicPartition, Map],
    logs: Logs,
    starts: Mapping[TopicPartition, int],
    memory: Mapping[int, Memory],
) -> None:
    entry.decisions, entry.offsets = {}, {}
    entry.metadata = {}
    entry.is_settled = True
    for partition, sources in way.sources.items():
        parts: list[Part] = []
        found: Aim | State | None = None
        for key, place in sources:
            row = committed.get(key[0], {}).get(key[1])
            if row is None or (row.offset < 0 and not row.error):
                continue
            if row.error:
                found = State.UNSTABLE if row.error == UNSTABLE_OFFSET_COMMIT else State.NO_RIGHTS
                continue
            known = maps[key]
            translated = known.translate(place, row.offset)
            parts.append(
                Part(row.offset, translated.offset, translated.latest, known.first, known.end, starts.get(key, 0))
            )
            entry.metadata[partition] = row.metadata
        there = target.get(partition)
        on_target = there.offset if there is not None and there.offset >= 0 else None
        remembered = memory.get(partition)
        if not parts and found is None:
            if remembered is None or on_target is None:
                continue
            found = State.DELETED
        log = logs.get((topic, partition))
        if found is None:
            found = aim(parts, log) if log is not None else State.UNMAPPED
        decision = decide(found, on_target, remembered, entry.presence)
        entry.decisions[partition] = decision
        entry.offsets[partition] = (min((part.committed for part in parts), default=-1), on_target)
        is_done = decision.commit is None and decision.again == 0 and decision.state in _LASTING
        entry.is_settled = entry.is_settled and is_done


_LASTING = frozenset({State.SYNCED, State.OWNED, State.ACTIVE, State.UNMOVABLE, State.DELETED, State.BEHIND})
