"""Writes the offsets of groups on the target: first the memory (`checkpoints`), then the commits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.planning import Entry
from mirrormaker.kafka_errors import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    error_code,
)
from mirrormaker.model.group_sync import State
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import alter_share_offsets, commit_offsets, find_coordinators
from mirrormaker.wire.client.group_rights import may_not_read_groups
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow
from mirrormaker.wire.transport.turns import give_way

_AGAIN_AFTER = 30.0  # seconds after which a group that was refused is tried again
_HAS_MEMBERS = frozenset({UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP})
_NO_RIGHTS = frozenset({GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED})
_OFFSETS_AT_ONCE = 1000  # in one write of the memory, and the commits after it

GroupTopic = tuple[str, str]  # a group, and a topic of the target
Changed = tuple[str, str, Entry]  # the same, and what was decided
Committed = dict[TopicPartition, int]  # error codes


class _Refusal(NamedTuple):
    """An answer of the target, and the state that follows from it until the next attempt."""

    state: State
    code: int
    ends_at: float  # on the monotonic clock


class OffsetWriter:
    """Remembers what the target has refused, by group and topic, and who coordinates the groups."""

    def __init__(self, target: Cluster, *, commits: bool) -> None:
        """`commits` False: only the memory is written."""
        self._target, self._commits = target, commits
        self._refused: dict[GroupTopic, _Refusal] = {}
        self._nodes: dict[str, int] = {}  # coordinators on the target

    def reason(self, group: str, topic: str) -> str:
        """Return why the target refused the offsets of a group in a topic; empty if it did not."""
        refusal = self._refused.get((group, topic))
        return "" if refusal is None or not refusal.code else str(BrokerError(refusal.code))

    async def write(self, survey: Survey, checkpoints: Checkpoints, changed: list[Changed]) -> None:
        """Write the memory, then commit; a decision that the target refuses gets the state that follows.

        Some thousand offsets are written at a time: the rest of an event loop has its turn in between.
        """
        now = time.monotonic()
        self._refused = {key: refusal for key, refusal in self._refused.items() if refusal.ends_at > now}
        for part in _parts(changed):
            await self._write_part(survey, checkpoints, part, now)
            await give_way()

    async def _write_part(self, survey: Survey, checkpoints: Checkpoints, changed: list[Changed], now: float) -> None:
        commits: dict[str, list[CommitRow]] = {}
        too_large: dict[str, Committed] = {}  # offsets that are not written, because they could not be remembered
        rows: list[Checkpoint] = []
        for group, topic, entry in changed:
            if (group, topic) in self._refused:
                continue
            for partition, decision in entry.decisions.items():
                if decision.commit is None:
                    continue
                upstream, there = entry.offsets[partition]
                metadata = entry.metadata.get(partition, "")
                before = -1 if there is None else there
                is_share = survey.source[group].is_share
                row = Checkpoint(
                    group, topic, partition, upstream, decision.commit, metadata, before, entry.mark, is_share
                )
                if not row.fits:
                    too_large.setdefault(group, {})[topic, partition] = OFFSET_METADATA_TOO_LARGE
                    continue
                rows.append(row)
                commits.setdefault(group, []).append(CommitRow(topic, partition, decision.commit, metadata))
        if rows:
            await checkpoints.write(rows)
        results = await self._commit(survey, commits)
        for group, codes in too_large.items():
            known = results.get(group)
            results[group] = {**known, **codes} if isinstance(known, dict) else codes
        tried = [(group, topic) for group, topic, _ in changed if (group, topic) not in self._refused]
        states = {key: self._failed_state(*key, results.get(key[0]), now) for key in tried}
        for key, state in states.items():
            if state is not None:
                checkpoints.note_failed(*key)
        self._note_written(changed, states)

    async def _commit(self, survey: Survey, commits: Mapping[str, list[CommitRow]]) -> dict[str, Committed | Exception]:
        if not self._commits:
            return {group: {(row.topic, row.partition): 0 for row in part} for group, part in commits.items()}
        if not commits:
            return {}
        nodes = {group: survey.target[group].node for group in commits if group in survey.target}
        unknown = commits.keys() - nodes.keys() - self._nodes.keys()
        self._nodes |= await find_coordinators(self._target, unknown)
        nodes = {**{group: self._nodes[group] for group in commits if group in self._nodes}, **nodes}
        shared = {group: part for group, part in commits.items() if survey.source[group].is_share}
        others = {group: part for group, part in commits.items() if group not in shared}
        results = await commit_offsets(self._target, others, nodes)
        if shared:
            results |= await alter_share_offsets(self._target, shared, nodes)
        # Nobody tells the coordinator of a group that this client may not see.
        hidden = await may_not_read_groups(self._target, dict.fromkeys(unknown - self._nodes.keys()))
        results |= {
            group: {(row.topic, row.partition): GROUP_AUTHORIZATION_FAILED for row in commits[group]}
            for group in hidden
        }
        return results

    def _failed_state(self, group: str, topic: str, result: Committed | Exception | None, now: float) -> State | None:
        """Return the state of a group in a topic if its commit failed there; None if all of it was committed."""
        found = result if isinstance(result, dict) else {}
        codes = {code for key, code in found.items() if key[0] == topic}
        if codes == {0}:
            return None
        self._nodes.pop(group, None)
        final = min((code for code in codes - {0} if not error_code(code).retriable), default=0)
        state: State | None = None
        if codes & _HAS_MEMBERS:
            state = State.ACTIVE
        elif codes & _NO_RIGHTS:
            state = State.NO_RIGHTS
        elif GROUP_ID_NOT_FOUND in codes:
            state = State.UNMOVABLE
        elif final:
            state = State.REFUSED
        elif isinstance(result, ClusterError):
            state = State.UNMOVABLE
        if state is not None:
            self._refused[group, topic] = _Refusal(state, final, now + _AGAIN_AFTER)
        # A coordinator that is not known yet, or moves, is asked again in the next round.
        return state or State.PENDING

    def _note_written(self, changed: list[Changed], states: Mapping[GroupTopic, State | None]) -> None:
        """Note what was written. The next round reads it back."""
        for group, topic, entry in changed:
            key = group, topic
            failed = states[key] if key in states else self._refused[key].state
            if failed is None:
                entry.synced_at = time.time()
                continue
            for partition, decision in entry.decisions.items():
                if decision.commit is not None:
                    entry.decisions[partition] = decision._replace(state=failed)


def _parts(changed: list[Changed]) -> Iterator[list[Changed]]:
    """Yield the entries in parts of some thousand offsets. All entries of a group are in one part: each commit is a request."""
    part: list[Changed] = []
    size = 0
    for row in changed:
        if size >= _OFFSETS_AT_ONCE and row[0] != part[-1][0]:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[2].decisions)
    if part:
        yield part
