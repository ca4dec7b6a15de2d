"""Writes the offsets of groups on the target: first the memory (`checkpoints`), then the commits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mirrormaker.errors import ClusterError
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.planning import Entry
from mirrormaker.kafka_errors import (
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    REBALANCE_IN_PROGRESS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    error_code,
)
from mirrormaker.model.group_sync import State
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import alter_share_offsets, commit_offsets, find_coordinators
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow

_AGAIN_AFTER = 30.0  # seconds after which a group that was refused is tried again
_HAS_MEMBERS = frozenset({UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NON_EMPTY_GROUP})
_NO_RIGHTS = frozenset({GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED})


class OffsetWriter:
    """Remembers which groups the target has refused, and who coordinates the others."""

    def __init__(self, target: Cluster, *, commits: bool) -> None:
        """`commits` False: only the memory is written."""
        self._target, self._commits = target, commits
        # Groups that the target refused: the state that follows, and when they are tried again.
        self._refused: dict[str, tuple[State, float]] = {}
        self._nodes: dict[str, int] = {}  # coordinators on the target

    async def write(self, survey: Survey, checkpoints: Checkpoints, changed: list[tuple[str, str, Entry]]) -> None:
        """Write the memory, then commit; a decision that the target refuses gets the state that follows."""
        now = time.monotonic()
        self._refused = {group: row for group, row in self._refused.items() if row[1] > now}
        commits: dict[str, list[CommitRow]] = {}
        rows: list[Checkpoint] = []
        for group, topic, entry in changed:
            if group in self._refused:
                continue
            for partition, decision in entry.decisions.items():
                if decision.commit is None:
                    continue
                upstream, before = entry.offsets[partition]
                metadata = entry.metadata.get(partition, "")
                rows.append(
                    Checkpoint(
                        group, topic, partition, upstream, decision.commit, metadata, -1 if before is None else before
                    )
                )
                commits.setdefault(group, []).append(CommitRow(topic, partition, decision.commit, metadata))
        if rows:
            await checkpoints.write(rows)
        if not self._commits:
            return
        if not commits:
            self._note_written(changed, {})
            return
        nodes = {group: survey.target[group].node for group in commits if group in survey.target}
        unknown = commits.keys() - nodes.keys() - self._nodes.keys()
        self._nodes |= await find_coordinators(self._target, unknown)
        nodes = {**{group: self._nodes[group] for group in commits if group in self._nodes}, **nodes}
        shared = {group: part for group, part in commits.items() if survey.source[group].is_share}
        others = {group: part for group, part in commits.items() if group not in shared}
        results = await commit_offsets(self._target, others, nodes)
        if shared:
            results |= await alter_share_offsets(self._target, shared, nodes)
        states = {group: self._failed_state(group, results.get(group), now) for group in commits}
        self._note_written(changed, states)

    def _failed_state(
        self, group: str, result: dict[TopicPartition, int] | Exception | None, now: float
    ) -> State | None:
        """Return the state of a group whose commit failed; None if all of it was committed."""
        codes = set(result.values()) if isinstance(result, dict) else set()
        if codes == {0}:
            return None
        self._nodes.pop(group, None)
        state: State | None = None
        if codes & _HAS_MEMBERS:
            state = State.ACTIVE
        elif codes & _NO_RIGHTS:
            state = State.NO_RIGHTS
        elif GROUP_ID_NOT_FOUND in codes:
            state = State.UNMOVABLE
        elif any(not error_code(code).retriable for code in codes - {0}):
            state = State.REFUSED
        elif isinstance(result, ClusterError):
            state = State.UNMOVABLE
        if state is not None:
            self._refused[group] = (state, now + _AGAIN_AFTER)
        # A coordinator that is not known yet, or moves, is asked again in the next round.
        return state or State.PENDING

    def _note_written(self, changed: list[tuple[str, str, Entry]], states: Mapping[str, State | None]) -> None:
        """Note what was written. The next round reads it back."""
        for group, _, entry in changed:
            failed = states[group] if group in states else self._refused[group][0]
            if failed is None:
                entry.synced_at = time.time()
                continue
            for partition, decision in entry.decisions.items():
                if decision.commit is not None:
                    entry.decisions[partition] = decision._replace(state=failed)
