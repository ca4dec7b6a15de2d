"""Events of consumer groups: those whose offsets are kept in step on the target."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.events.event import Event, Kind


@dataclass(frozen=True)
class GroupNotFollowed(Event, words="group {group} is not kept in step on the target: {topic}: {state}; {advice}"):
    """The offsets of a group on the target are left as they are."""

    group: str
    topic: str
    state: str
    advice: str


@dataclass(frozen=True)
class GroupsNotFollowed(
    Event, words="{groups} more groups are not kept in step on the target; `mirrormaker groups` lists them"
):
    """More groups than anybody wants to read lines about."""

    groups: int


@dataclass(frozen=True)
class GroupFollowed(Event, words="group {group} is kept in step on the target again"):
    """The offsets of a group on the target follow the source again."""

    group: str


@dataclass(frozen=True)
class GroupGone(
    Event,
    words=(
        "group {group} is gone from the source, or this mirror may no longer describe it; the target keeps its offsets. This"
        " deletes it there too: kafka-consumer-groups {options}"
    ),
):
    """The source no longer lists a group that was kept in step."""

    group: str
    options: str  # of the command that deletes it on the target


@dataclass(frozen=True)
class HeartbeatsFailed(Event, kind=Kind.WAITING, words="heartbeats are not written for now: {reason}"):
    """A heartbeat failed, and not because the target is away; the next one is tried."""

    reason: str


@dataclass(frozen=True)
class GroupSyncFailed(Event, kind=Kind.WAITING, words="offsets of groups are not kept in step for now: {reason}"):
    """A whole round failed; the next one tries again."""

    reason: str


@dataclass(frozen=True)
class CheckpointsNotCompacted(
    Event,
    words=(
        "topic {topic} on the target has cleanup.policy={policy}, so it loses what groups need; this repairs it:"
        " kafka-configs --bootstrap-server {target} --alter --topic {topic} --add-config cleanup.policy=compact"
    ),
):
    """Somebody else created the topic of checkpoints, with other settings."""

    topic: str
    policy: str
    target: str
