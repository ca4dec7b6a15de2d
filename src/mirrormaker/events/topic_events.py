"""Events of topics: created, grown, left out, gone."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.events.event import Event, Kind


@dataclass(frozen=True)
class TopicCreated(Event, kind=Kind.TOPIC, words="created {topic} on the target with {partitions} partitions"):
    """A topic was created on the target."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class TopicRequested(
    Event, kind=Kind.TOPIC, words="asked for {topic} on the target, which creates it with its own default settings"
):
    """An old target creates the topic when it is asked for it."""

    topic: str


@dataclass(frozen=True)
class TopicGrown(Event, kind=Kind.TOPIC, words="grew {topic} on the target from {before} to {after} partitions"):
    """A target topic got more partitions, like its source."""

    topic: str
    before: int
    after: int


@dataclass(frozen=True)
class TopicSettingsUnknown(Event, kind=Kind.TOPIC, words="{topic} is created with the target's own settings: {reason}"):
    """A target topic is created without its source's settings."""

    topic: str
    reason: str


@dataclass(frozen=True)
class SourceHidesSettings(
    Event,
    kind=Kind.TOPIC,
    words=(
        "{source} cannot describe its topics' settings (Kafka before 0.11), so new topics get the target's"
        " own; zookeeper.connect would make its ZooKeeper tell them"
    ),
):
    """The source is too old to describe its topics' settings."""

    source: str


@dataclass(frozen=True)
class SettingsDropped(
    Event, kind=Kind.TOPIC, words="{topic}: the target refuses {settings} as set on the source; created without"
):
    """The target refuses some of a source topic's settings."""

    topic: str
    settings: str


@dataclass(frozen=True)
class TopicLeftOut(Event, kind=Kind.STOPPED, words="{topic} is left out: {reason}"):
    """A chosen topic may not be mirrored."""

    topic: str
    reason: str


@dataclass(frozen=True)
class TopicGone(
    Event, kind=Kind.TOPIC, words="{source} no longer has {topic}: it is mirrored again when it is there again"
):
    """A topic that was mirrored is not on the source any more."""

    topic: str
    source: str


@dataclass(frozen=True)
class TopicTakenUp(Event, kind=Kind.RECOVERED, words="{topic} can be mirrored now"):
    """A topic that was left out can be mirrored."""

    topic: str


@dataclass(frozen=True)
class TopicsFailed(Event, kind=Kind.STOPPED, words="{reason}"):
    """Topics on the target cannot be prepared for now."""

    reason: str
