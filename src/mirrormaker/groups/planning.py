"""A plan for each group and topic: the survey of both sides, the offset map and the memory, put together.

A group whose bytes are the same as in the last round on both sides costs two comparisons, so thousands of groups are looked
at every few seconds.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.routes import Maps, Route, Routes
from mirrormaker.kafka_errors import (
    GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    UNSTABLE_OFFSET_COMMIT,
)
from mirrormaker.model.group_sync import Aim, Decision, Log, Memory, Part, Presence, State, aim, decide, worst
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets

_NOTHING = TopicOffsets(b"", 0, True)
# Errors of a partition whose offset the source does not tell. After any other one it is asked again in the next round.
_UNTOLD = {
    UNSTABLE_OFFSET_COMMIT: State.UNSTABLE,
    GROUP_AUTHORIZATION_FAILED: State.NO_RIGHTS,
    TOPIC_AUTHORIZATION_FAILED: State.NO_RIGHTS,
}


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
    def mark(self) -> int:
        """Return a number that stands for the group's offsets on the source; never 0."""
        return zlib.crc32(b"".join(self.source)) or 1

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


class Look:
    """Both clusters and the maps in one round, for all groups."""

    def __init__(
        self,
        maps: Maps,
        logs: Mapping[TopicPartition, Log],
        source_starts: Mapping[TopicPartition, int],
        horizons: Horizons,
    ) -> None:
        """`logs` are those of the target, `source_starts` the log start offsets of the source."""
        self.logs = logs
        self._maps, self._source_starts, self._horizons = maps, source_starts, horizons
        # Of each place that source partitions share, all at one moment, because maps grow meanwhile: the end, True if it has no
        # record of this partition at all, and the end of the map.
        self._ends: dict[tuple[TopicPartition, Place], tuple[int, bool, int]] = {}

    def part(self, key: TopicPartition, place: Place, committed: int, *, is_shared: bool) -> Part:
        """Return where a reader goes on that has read a source partition up to an offset."""
        known = self._maps[key]
        start = self._source_starts.get(key, 0)
        if not is_shared:
            found = known.translate(place, committed)
            return Part(committed, found.offset, found.latest, known.first, known.end, start)
        end, is_empty, known_to = self._end(key, place)
        found = Translated(end, end) if is_empty else known.translate(place, committed)
        horizon, is_open = -1, False
        if found.offset >= end:
            horizon = self._horizons.find(key, known_to, (place[0] or key[0], place[1]))
            is_open = horizon < 0
        return Part(committed, found.offset, found.latest, known.first, known.end, start, horizon, is_open)

    def _end(self, key: TopicPartition, place: Place) -> tuple[int, bool, int]:
        if (key, place) not in self._ends:
            known = self._maps[key]
            end = known.translate(place, known.end).offset
            self._ends[key, place] = end, known.translate(place, known.first).offset >= end, known.end
        return self._ends[key, place]


# Work between two turns of an event loop, in source partitions of a group: one takes 10 to 20 microseconds.
_WORK_IN_ONE_TURN = 300
# In target partitions that others write to, the best place of a group moves on although the group does not. So many entries
# follow it in one round, and all of them when everything is looked at.
_MOST_LIFTED = 100
_UNCHANGED = 1 / 5  # the work of an entry whose bytes are the same, likewise


class Planner:
    """Remembers the last look at each group and topic."""

    def __init__(self, *, is_writing: bool = True) -> None:
        """`is_writing` False: nothing is committed on the target, so only the memory counts."""
        self._is_writing = is_writing
        self.entries: dict[tuple[str, str], Entry] = {}
        # Groups about which the last round could not decide. What was known of them before stays.
        self.troubles: dict[str, Exception] = {}
        self._lifted = 0

    def plan(
        self,
        survey: Survey,
        ways: Routes,
        look: Look,
        memory: Mapping[tuple[str, str], Mapping[int, Memory]],
        *,
        everything: bool = False,
        renewed_before: float = 0.0,
    ) -> Iterator[tuple[str, str, Entry] | None]:
        """Yield each group and target topic that was looked at again; others are as they were.

        Now and then it yields None: then the rest of an event loop can have its turn. `everything`: look at those too whose
        bytes have not changed. Offsets that were written before `renewed_before`, in seconds since 1970, are written again.
        """
        work = 0.0
        for step in self._steps(survey, ways, look, memory, everything, renewed_before):
            if isinstance(step, tuple):
                yield step
                continue
            work += step
            if work >= _WORK_IN_ONE_TURN:
                work = 0.0
                yield None

    def _steps(
        self,
        survey: Survey,
        ways: Routes,
        look: Look,
        memory: Mapping[tuple[str, str], Mapping[int, Memory]],
        everything: bool,
        renewed_before: float,
    ) -> Iterator[tuple[str, str, Entry] | float]:
        """Yield what `plan` yields, and between that how much work was done."""
        are_plain = all(way.topics == (topic,) for topic, way in ways.items())
        known: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key in self.entries:
            known[key[0]].append(key)
        seen: set[tuple[str, str]] = set()
        self.troubles, self._lifted = {}, 0
        for group, offsets in survey.source_offsets.items():
            there = survey.target_offsets.get(group)
            if any(isinstance(side, Exception) or (side is not None and side.error) for side in (offsets, there)):
                # The coordinator is moving, or refuses; what was known of the group stays.
                seen.update(known[group])
                continue
            assert not isinstance(offsets, Exception) and not isinstance(there, Exception)
            presence = survey.presence(group) if self._is_writing else Presence.FREE
            # Rows of the memory and the start offsets of share groups do not expire.
            before = renewed_before if self._is_writing and not survey.source[group].is_share else 0.0
            try:
                for topic in _target_topics(offsets, ways, are_plain):
                    yield _UNCHANGED
                    seen.add((group, topic))
                    yield from self._steps_in(
                        topic, group, offsets, there, presence, ways, look, memory, everything, before
                    )
            except Exception as error:  # whatever it is, it is the trouble of this group alone
                self._note_trouble(group, error)
                seen.update(known[group])
        for key in self.entries.keys() - seen:
            del self.entries[key]

    def _note_trouble(self, group: str, error: Exception) -> None:
        self.troubles[group] = error

    def _steps_in(
        self,
        topic: str,
        group: str,
        offsets: GroupOffsets,
        there: GroupOffsets | None,
        presence: Presence,
        ways: Routes,
        look: Look,
        memory: Mapping[tuple[str, str], Mapping[int, Memory]],
        everything: bool,
        renewed_before: float,
    ) -> Iterator[tuple[str, str, Entry] | float]:
        way = ways[topic]
        entry = self.entries.setdefault((group, topic), Entry())
        raw = tuple(offsets.topics.get(name, _NOTHING).raw for name in way.topics)
        on_target = there.topics.get(topic, _NOTHING) if there is not None else _NOTHING
        has_moved = entry.source != raw
        is_same = not has_moved and entry.target == on_target.raw and entry.presence is presence
        if is_same and entry.is_settled and not everything:
            return
        committed = {name: offsets.topics[name].rows() for name in way.topics if name in offsets.topics}
        remembered = memory.get((group, topic), {})
        rows = on_target.rows()
        entry.source, entry.target, entry.presence, entry.is_settled = raw, on_target.raw, presence, False
        if not self._is_writing:
            rows = {partition: CommittedRow(known.last, "") for partition, known in remembered.items()}
        has_moved = has_moved or everything
        lifts = has_moved or self._lifted < _MOST_LIFTED
        yield from _decide(entry, topic, way, committed, rows, look, remembered, renewed_before, lifts=lifts)
        if not has_moved and any(decision.commit is not None for decision in entry.decisions.values()):
            self._lifted += 1
        yield group, topic, entry


def _target_topics(offsets: GroupOffsets, ways: Routes, are_plain: bool) -> Iterable[str]:
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
    look: Look,
    memory: Mapping[int, Memory],
    renewed_before: float,
    *,
    lifts: bool,
) -> Iterator[float]:
    """Decide about each partition of an entry; yield how much work was done."""
    decisions = dict[int, Decision]()
    offsets = dict[int, tuple[int, int | None]]()
    metadata = dict[int, str]()
    is_settled, mark = True, entry.mark
    for partition, sources in way.sources.items():
        yield len(sources)
        parts: list[Part] = []
        found: Aim | State | None = None
        for key, place in sources:
            row = committed.get(key[0], {}).get(key[1])
            if row is None or (row.offset < 0 and not row.error):
                continue
            if row.error:
                found = _UNTOLD.get(row.error, State.PENDING)
                continue
            parts.append(look.part(key, place, row.offset, is_shared=len(sources) > 1))
            metadata[partition] = row.metadata
        there = target.get(partition)
        on_target = there.offset if there is not None and there.offset >= 0 else None
        remembered = memory.get(partition)
        if not parts and found is None:
            if remembered is None or on_target is None:
                continue
            found = State.DELETED
        log = look.logs.get((topic, partition))
        if found is None:
            found = aim(parts, log) if log is not None else State.UNMAPPED
        keeps = remembered is not None and (remembered.last, remembered.mark) == (on_target, mark)
        renews = remembered is not None and remembered.written_at < renewed_before
        decision = decide(found, on_target, remembered, entry.presence, lifts=lifts, keeps=keeps, renews=renews)
        decisions[partition] = decision
        offsets[partition] = (min((part.committed for part in parts), default=-1), on_target)
        is_done = decision.commit is None and decision.again == 0 and decision.state in _LASTING
        is_settled = is_settled and is_done and not decision.is_open
    entry.decisions, entry.offsets, entry.metadata, entry.is_settled = decisions, offsets, metadata, is_settled


_LASTING = frozenset(
    {State.SYNCED, State.OWNED, State.ACTIVE, State.UNMOVABLE, State.DELETED, State.BEHIND, State.BEFORE_MAP}
)
