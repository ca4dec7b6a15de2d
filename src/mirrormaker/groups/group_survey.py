"""Both sides at one moment: the chosen groups of the source, and what the target has of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from mirrormaker.errors import BadFrame, UnsupportedRequest
from mirrormaker.kafka_errors import error_code
from mirrormaker.model.group_sync import Presence
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import (
    SHARE,
    ListedGroup,
    fetch_offsets,
    fetch_share_offsets,
    list_groups,
)
from mirrormaker.wire.client.log_offsets import list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import GroupOffsets

Answers = Mapping[str, GroupOffsets | Exception]


@dataclass(frozen=True)
class Survey:
    """Groups and offsets of both clusters. Groups that the source no longer has are not in it."""

    source: dict[str, ListedGroup]
    target: dict[str, ListedGroup]
    source_offsets: Answers
    target_offsets: Answers

    def presence(self, name: str) -> Presence:
        """Return the state of a group on the target."""
        here, there = self.source.get(name), self.target.get(name)
        if there is None:
            return Presence.FREE
        if here is not None and here.is_share is not there.is_share:
            return Presence.OTHER_KIND
        return Presence.MEMBERS if there.is_active else Presence.FREE

    @property
    def is_moving(self) -> bool:
        """Return True if the offsets of a group could not be read, and may be read in a moment."""
        return any(map(_may_pass, [*self.source_offsets.values(), *self.target_offsets.values()]))

    def readable(self) -> Survey:
        """Return the same with an error in place of each group whose offsets cannot be understood."""
        return replace(
            self, source_offsets=_readable(self.source_offsets), target_offsets=_readable(self.target_offsets)
        )


def errors_in(answers: Answers) -> Iterable[tuple[str, GroupOffsets | Exception]]:
    """Yield the groups whose offsets a cluster does not tell."""
    for name, answer in answers.items():
        if isinstance(answer, Exception) or answer.error:
            yield name, answer


def _may_pass(answer: GroupOffsets | Exception) -> bool:
    if isinstance(answer, Exception):
        return not isinstance(answer, BadFrame | UnsupportedRequest)
    return bool(answer.error) and error_code(answer.error).retriable


def _readable(answers: Answers) -> Answers:
    found = dict(answers)
    for name, answer in answers.items():
        try:
            for part in [] if isinstance(answer, Exception) else answer.topics.values():
                part.rows()
        except BadFrame as error:
            found[name] = error
    return found


def as_remembered(name: str, is_share: bool | None, there: ListedGroup | None) -> ListedGroup:
    """Return a group of a source that is gone; where its type is not known, that on the target counts, or it is of consumers."""
    if is_share is None:
        return there or ListedGroup(name, -1)
    return ListedGroup(name, -1, type=SHARE if is_share else "")


async def look(
    source: Cluster, target: Cluster, is_chosen: Callable[[str], bool], remembered: Container[str] = ()
) -> Survey:
    """Read both sides. Raise an error if a broker of either cluster cannot list its groups.

    The target is read first: an offset that the source commits meanwhile is seen in the next round. `remembered` are groups
    to read there even if the source no longer has them.
    """
    here, there = await asyncio.gather(list_groups(source), list_groups(target))
    here = {name: group for name, group in here.items() if is_chosen(name)}
    there = {name: group for name, group in there.items() if name in here or name in remembered}
    target_offsets = await offsets_of(target, there, stable=False)
    source_offsets = await offsets_of(source, here, stable=True)
    return Survey(here, there, source_offsets, target_offsets)


async def offsets_of(
    cluster: Cluster, groups: Mapping[str, ListedGroup], *, stable: bool
) -> dict[str, GroupOffsets | Exception]:
    """Return what groups of any type have committed, or the error of the coordinator."""
    shared = {name: group.node for name, group in groups.items() if group.is_share}
    others = {name: group.node for name, group in groups.items() if not group.is_share}
    found = await fetch_offsets(cluster, others, stable=stable)
    return found | (await fetch_share_offsets(cluster, shared) if shared else {})


async def known_offsets(cluster: Cluster, keys: Collection[TopicPartition], when: int) -> dict[TopicPartition, int]:
    """Return the offsets that leaders tell; partitions without an answer are left out."""
    if not keys:
        return {}
    found = await list_offsets(cluster, keys, when)
    return {key: offset for key, offset in found.items() if isinstance(offset, int)}
