"""Where a consumer group of the source belongs on the target, and whether its offset there may be written.

Two questions, one function each. `aim` says where a reader of the target goes on that has read the source up to the group's
committed offsets. `decide` says what to do about it: an offset on the target is written only while nobody else has
changed it. This module does no input or output.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class State(Enum):
    """The state of a group in one target partition."""

    SYNCED = "synced"
    AHEAD = "ahead of the mirror"
    BEHIND = "behind the source's log"
    BEFORE_MAP = "before the offset map"
    TRIMMED = "behind the target's log"
    TARGET_SHORT = "the target lost records"
    UNSTABLE = "held by a transaction"
    UNMAPPED = "not mapped yet"
    DELETED = "deleted on the source"
    OWNED = "owned by the target"
    ACTIVE = "active on the target"
    UNMOVABLE = "type not movable"
    NO_RIGHTS = "no rights"
    REFUSED = "refused by the target"
    PENDING = "not written yet"

    @property
    def is_ready(self) -> bool:
        """Return True if consumers could go on at the target now: the offset there is the best that there can be."""
        return self in (State.SYNCED, State.AHEAD, State.BEHIND, State.BEFORE_MAP, State.TRIMMED)

    @property
    def is_followed(self) -> bool:
        """Return True if the offset on the target is written as the source's changes."""
        return self.is_ready or self in (State.PENDING, State.TARGET_SHORT)


class Part(NamedTuple):
    """A group's offset in one source partition, and where the map says that it is in the target partition."""

    committed: int
    offset: int  # the earliest target offset at which the reader may have to go on
    latest: int  # the latest one; both are equal where the map is exact
    first: int  # the source offset at which the map begins
    end: int  # everything before this source offset is mirrored
    source_start: int = 0  # the source's log start offset
    # The map knows no record there that the reader still needs: what comes can only lie at or after this target offset.
    # -1 if that is not known, or if there is such a record.
    horizon: int = -1
    # There is no such record, and no horizon either: the place may be as late as the end of the target's log.
    is_open: bool = False


class Log(NamedTuple):
    """The offsets that the target partition has: its log start offset, and its high watermark."""

    start: int
    end: int


class Aim(NamedTuple):
    """Where the group belongs in a target partition."""

    offset: int
    state: State
    again: int = 0  # so many records at most are read a second time
    missing: int = 0  # so many records at most can no longer be read
    # The place without horizons; -1: it is `offset`.
    floor: int = -1
    # The place may be as late as this, because the map is not exact, or parts are open; -1: it is `offset`.
    most: int = -1
    is_open: bool = False


def aim(parts: Collection[Part], log: Log) -> Aim:
    """Return where a group belongs in a target partition, which has records of these source partitions.

    Where several source partitions share it, the group begins at the earliest of their places and reads records of the
    others again.
    """
    floors: list[int] = []
    places: list[int] = []
    certain: list[int] = []  # the places of parts that are not open
    mosts: list[int] = []
    needed: list[int] = []  # where records begin that the map names, and that the reader still needs
    latest, gone = 0, 0
    is_behind, is_before, is_ahead = False, False, False
    for part in parts:
        floor, place, is_open = part.offset, max(part.offset, part.horizon), part.is_open
        if part.committed < part.first:
            # Records from before the map may be on the target all the same, before everything that the map knows.
            floor = place = min(part.offset, log.start)
            gone += max(0, min(part.first, part.source_start) - part.committed)
            is_behind = is_behind or part.committed < part.source_start
            is_before, is_open = True, False
            needed.append(part.latest)
        elif part.horizon < 0 and not is_open:
            needed.append(part.offset)
        is_ahead = is_ahead or part.committed > part.end
        floors.append(floor)
        places.append(place)
        if not is_open:
            certain.append(place)
        mosts.append(log.end if is_open else max(place, part.latest))
        latest = max(latest, part.latest)
    assert floors, "a target partition has at least one source partition"
    earliest = min(places)
    if earliest > log.end:
        return Aim(log.end, State.TARGET_SHORT, missing=earliest - log.end)
    offset = max(earliest, log.start)
    again = max(0, latest - offset)
    trimmed = log.start - min(needed, default=log.start)
    states = (
        (State.TRIMMED, trimmed > 0), (State.BEHIND, is_behind), (State.BEFORE_MAP, is_before), (State.AHEAD, is_ahead),
    )  # fmt: skip
    state = next((state for state, is_so in states if is_so), State.SYNCED)
    floor, most = (min(max(min(bounds), log.start), log.end) for bounds in (floors, mosts))
    is_open = min(certain, default=log.end + 1) > earliest
    missing = gone + max(0, trimmed)
    return Aim(offset, state, again, missing, -1 if floor == offset else floor, -1 if most == offset else most, is_open)


class Presence(Enum):
    """The group on the target, as its coordinator describes it."""

    FREE = "absent or without members"
    MEMBERS = "with members"
    OTHER_KIND = "a share group here and another one there"


@dataclass(frozen=True, slots=True)
class Memory:
    """The commits of this mirror in a target partition: the last offset, and the one that was there before it.

    The memory is written before the commit. A process that dies in between leaves the offset before on the target. While a
    partition moves to another process, the commit of the former one may land last: `older` is the offset of its row.
    `mark` stands for the group's offsets on the source at that time; 0 if it is not known.
    """

    last: int
    before: int = -1
    older: int = -1
    mark: int = 0
    # The time of the row, in seconds since 1970. The commit came right after it.
    written_at: float = field(default=0.0, compare=False)

    def is_ours(self, offset: int) -> bool:
        """Return True if this offset on the target was committed by us."""
        return offset in (self.last, self.before, self.older)


class Decision(NamedTuple):
    """The offset to commit in one target partition, and the state for users."""

    state: State
    commit: int | None = None
    again: int = 0
    missing: int = 0
    # Where the group belongs; -1 if that is not known.
    offset: int = -1
    # As in `Aim`.
    floor: int = -1
    most: int = -1
    is_open: bool = False


def decide(
    found: Aim | State,
    target: int | None,
    memory: Memory | None,
    presence: Presence,
    *,
    lifts: bool = True,
    keeps: bool = False,
    renews: bool = False,
) -> Decision:
    """Return the offset to commit, None to leave the target as it is, and the state.

    `found` is where the group belongs, or why that is not known. `target` is the group's offset on the target, None if it
    has none: an offset that is gone has expired, or was deleted so that we write it again.

    An offset of ours that is not the best one is left as it is in these cases, if it may be right:
    `lifts` False: an earlier one. In a target partition that others write to, the best one moves on for ever.
    `keeps` True: a later one. It was written when the group was where it is now, and more was known of its place.
    `renews` True: an offset of ours that stays is committed again, because brokers forget old ones.
    """
    if presence is Presence.OTHER_KIND:
        return Decision(State.UNMOVABLE)
    is_foreign = target is not None and (memory is None or not memory.is_ours(target))
    if isinstance(found, State):
        # Users of the target count first: the way out of another state may delete their offsets.
        used = State.ACTIVE if presence is Presence.MEMBERS else State.OWNED if is_foreign else found
        return Decision(min(used, found, key=severity))
    is_kept = keeps and target is not None and target <= found.most
    # Before the map the place may be anywhere. That says nothing of an offset that was written for another place.
    most = -1 if found.state in (State.BEHIND, State.BEFORE_MAP) and not is_kept else found.most
    place = (found.again, found.missing, found.offset, found.floor, most, found.is_open)
    if presence is Presence.MEMBERS:
        return Decision(State.ACTIVE, None, *place)
    if is_foreign:
        return Decision(State.OWNED, None, *place)
    stays = target == found.offset
    if target is not None and target < found.offset:
        stays = not lifts and 0 <= found.floor <= target
    elif target is not None and target > found.offset:
        stays = is_kept
    kept = target if renews else None
    return Decision(found.state, kept if stays else found.offset, *place)


class Cost(NamedTuple):
    """The state of a group in a target partition at this moment, and what a failover would cost it now."""

    state: State
    # Records at most; None if the consumers' auto.offset.reset decides, or nothing is known.
    again: int | None = None
    missing: int | None = None


def cost(decision: Decision, target: int | None, log: Log | None, age: float | None, patience: float) -> Cost:
    """Return what it would cost to fail over now, if nothing more is written on the target.

    `age` is the time in seconds since the group's offset was last written there, None if it never was. A group that moves on
    the source is always written a moment late: it counts as in step if that is not longer ago than `patience`.
    """
    if decision.offset < 0:
        return Cost(decision.state)
    if target is None:
        return Cost(decision.state if decision.commit is None else State.PENDING)
    begin = target if log is None else max(target, log.start)
    again = max(0, decision.offset + decision.again - begin)
    # The mirror that wrote a later offset knew of more records than the map that was stored by then; after the end of a log
    # that lost records there are none to pass over.
    at_end = decision.state in (State.AHEAD, State.TARGET_SHORT)
    passed = 0 if at_end else max(0, begin - max(decision.offset, decision.most))
    is_good = age is not None and 0 <= decision.floor <= target <= decision.offset
    is_good = is_good or (age is not None and decision.offset < target <= decision.most)
    is_late = decision.commit is not None and not is_good and (passed > 0 or age is None or age > patience)
    state = State.PENDING if is_late and decision.state.is_ready else decision.state
    return Cost(state, again, decision.missing + passed)


_WORST_FIRST = (
    State.NO_RIGHTS, State.REFUSED, State.UNMOVABLE, State.TARGET_SHORT, State.ACTIVE, State.OWNED, State.UNSTABLE,
    State.DELETED, State.UNMAPPED, State.PENDING, State.TRIMMED, State.BEHIND, State.BEFORE_MAP,
    State.AHEAD, State.SYNCED,
)  # fmt: skip
assert len(_WORST_FIRST) == len(State)


def severity(state: State) -> int:
    """Return the rank of a state: 0 is the one that users must hear of first."""
    return _WORST_FIRST.index(state)


def worst(states: Iterable[State]) -> State:
    """Return the state that users must hear of first."""
    return min(states, key=severity, default=State.UNMAPPED)


ADVICE = {
    State.AHEAD: "wait until the mirror has caught up",
    State.BEHIND: "nothing can be done: the records are gone from the source",
    State.BEFORE_MAP: "nothing need be done: the group misses no record, and may read records again",
    State.TRIMMED: "nothing can be done: the target's retention has deleted the records",
    State.TARGET_SHORT: "start the mirror; its log names the offset to set",
    State.UNSTABLE: "wait until the transaction ends",
    State.UNMAPPED: "wait until the topic is mirrored with an offset map",
    State.DELETED: "if nobody needs its offsets on the target, delete them too:"
    " kafka-consumer-groups --bootstrap-server TARGET --delete-offsets --group GROUP --topic TOPIC; or the whole group:"
    " kafka-consumer-groups --bootstrap-server TARGET --delete --group GROUP",
    State.OWNED: "delete the group's offsets on the target to let the mirror write them:"
    " kafka-consumer-groups --bootstrap-server TARGET --delete-offsets --group GROUP --topic TOPIC",
    State.ACTIVE: "stop the group's consumers on the target",
    State.UNMOVABLE: "delete the group of the other type on the target, or exclude it",
    State.NO_RIGHTS: "grant Read on the group and the topic on the target, and Describe on the group on the source",
    State.REFUSED: "the reason is in the log of the mirror",
    State.PENDING: "wait for the next round; if that does not help, the log of the mirror has the reason",
}


def advice(state: State, group: str, topic: str, target: object) -> str:
    """Return the way out of a state, with a command that can be copied; `target` is the address of the target cluster."""
    words = {"GROUP": group, "TOPIC": topic, "TARGET": str(target)}
    return re.sub("GROUP|TOPIC|TARGET", lambda found: shlex.quote(words[found[0]]), ADVICE.get(state, ""))
