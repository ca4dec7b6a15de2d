"""What follows from a commit that the target refuses: for the topic that it concerns, and no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from mirrormaker.groups import offset_writer
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.offset_writer import OffsetWriter
from mirrormaker.groups.planning import Entry
from mirrormaker.model.group_sync import Decision, State
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow

Answer = dict[TopicPartition, int]


class Target:
    """A coordinator that answers commits with error codes, by topic."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.asked: list[list[str]] = []  # the topics of each commit

    async def commit(
        self, _: object, commits: Mapping[str, Sequence[CommitRow]], __: Mapping[str, int]
    ) -> dict[str, Answer]:
        self.asked += [[row.topic for row in rows] for rows in commits.values()]
        return {
            group: {(row.topic, row.partition): self.codes.get(row.topic, 0) for row in rows}
            for group, rows in commits.items()
        }


def written_checkpoints() -> Any:
    checkpoints = mock.AsyncMock()
    checkpoints.note_failed = mock.Mock()
    return checkpoints


def write(writer: OffsetWriter, target: Target) -> dict[str, Entry]:
    """Write an offset of a group in each of two topics, which begins anew on the target."""
    entries = {}
    for topic in ("orders", "refunds"):
        entries[topic] = Entry(decisions={0: Decision(State.SYNCED, 7, offset=7)}, offsets={0: (5, None)})
    listed = {"billing": ListedGroup("billing", 1)}
    survey = Survey(listed, listed, {}, {})
    checkpoints = written_checkpoints()
    with mock.patch.object(offset_writer, "commit_offsets", target.commit):
        changed = [("billing", topic, entry) for topic, entry in entries.items()]
        with mock.patch.object(offset_writer, "find_coordinators", mock.AsyncMock(return_value={})):
            asyncio.run(writer.write(survey, checkpoints, changed))
    return entries


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        (29, State.NO_RIGHTS, "TOPIC_AUTHORIZATION_FAILED (29)"),
        (12, State.REFUSED, "OFFSET_METADATA_TOO_LARGE (12)"),
        (25, State.ACTIVE, "UNKNOWN_MEMBER_ID (25)"),
    ],
)
def test_a_topic_that_is_refused_leaves_the_others_of_the_group_alone(code: int, state: State, reason: str) -> None:
    nothing: Any = None
    writer, target = OffsetWriter(nothing, commits=True), Target(refunds=code)
    for _ in range(2):
        entries = write(writer, target)
        assert entries["orders"].state is State.SYNCED
        assert entries["orders"].synced_at > 0
        assert (entries["refunds"].state, entries["refunds"].synced_at) == (state, 0.0)
        assert writer.reason("billing", "refunds").startswith(reason)
        assert not writer.reason("billing", "orders")
    # It is tried again after a while, and the other one at once.
    assert target.asked == [["orders", "refunds"], ["orders"]]


@pytest.mark.parametrize("kind", ["share", "classic"])
def test_the_type_of_a_group_is_remembered_with_its_offset(kind: str) -> None:
    nothing: Any = None
    listed = {"billing": ListedGroup("billing", 1, type=kind)}
    checkpoints = written_checkpoints()
    entry = Entry(decisions={0: Decision(State.SYNCED, 7, offset=7)}, offsets={0: (5, None)})
    writer = OffsetWriter(nothing, commits=False)
    asyncio.run(writer.write(Survey(listed, {}, {}, {}), checkpoints, [("billing", "orders", entry)]))
    ((row,),) = checkpoints.write.await_args.args
    assert row.is_share is (kind == "share")


def test_an_error_that_may_pass_is_tried_again_at_once() -> None:
    nothing: Any = None
    writer, target = OffsetWriter(nothing, commits=True), Target(refunds=14)
    assert write(writer, target)["refunds"].state is State.PENDING
    target.codes.clear()
    assert write(writer, target)["refunds"].state is State.SYNCED
    assert target.asked == [["orders", "refunds"]] * 2


@pytest.mark.parametrize(("hidden", "state"), [({"billing"}, State.NO_RIGHTS), (set(), State.PENDING)])
def test_a_group_whose_coordinator_is_not_told_may_lack_a_right(hidden: set[str], state: State) -> None:
    """A group that this client may not see does not seem to exist."""
    nothing: Any = None
    survey = Survey({"billing": ListedGroup("billing", 1)}, {}, {}, {})
    entry = Entry(decisions={0: Decision(State.SYNCED, 7, offset=7)}, offsets={0: (5, None)})
    writer, none_known = OffsetWriter(nothing, commits=True), mock.AsyncMock(return_value={})
    with (
        mock.patch.object(offset_writer, "commit_offsets", none_known),
        mock.patch.object(offset_writer, "find_coordinators", none_known),
        mock.patch.object(offset_writer, "may_not_read_groups", mock.AsyncMock(return_value=hidden)),
    ):
        asyncio.run(writer.write(survey, written_checkpoints(), [("billing", "orders", entry)]))
    assert entry.state is state
    assert bool(writer.reason("billing", "orders")) is bool(hidden)


@pytest.mark.parametrize("commits", [True, False])
def test_metadata_that_no_checkpoint_can_hold_is_refused_alone(commits: bool) -> None:
    nothing: Any = None
    writer, target = OffsetWriter(nothing, commits=commits), Target()
    listed = {name: ListedGroup(name, 1) for name in ("billing", "large")}
    entries = {
        name: Entry(decisions={0: Decision(State.SYNCED, 7, offset=7)}, offsets={0: (5, None)}) for name in listed
    }
    # Bytes count, not characters.
    entries["billing"].metadata[0], entries["large"].metadata[0] = "x" * 32_767, "ö" * 16_384
    checkpoints = written_checkpoints()
    with mock.patch.object(offset_writer, "commit_offsets", target.commit):
        changed = [(name, "orders", entry) for name, entry in entries.items()]
        asyncio.run(writer.write(Survey(listed, listed, {}, {}), checkpoints, changed))
    ((row,),) = checkpoints.write.await_args.args
    assert row.group == "billing" and row.encode()
    assert target.asked == ([["orders"]] if commits else [])
    assert entries["billing"].state is State.SYNCED and entries["large"].state is State.REFUSED
    assert writer.reason("large", "orders").startswith("OFFSET_METADATA_TOO_LARGE (12)")
