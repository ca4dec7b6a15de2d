"""Sharing a group's partitions: the range assignor, with kafka-python's as the witness."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from mirrormaker.flow.membership import share_by_range

Member = namedtuple("Member", ["member_id", "group_instance_id", "metadata"])
names = st.sampled_from(["orders", "payments", "refunds", "audit"])


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, str | None], dict[str, int]]:
    """Wishes and instance ids of members, and the partitions of each topic that someone wishes for."""
    members = draw(st.lists(st.text("abcXYZ-12", min_size=1, max_size=6), min_size=1, max_size=6, unique=True))
    wishes = {member: draw(st.lists(names, unique=True)) for member in members}
    instances: dict[str, str | None] = {
        member: f"host-{draw(st.integers(0, 3))}-{number}" if draw(st.booleans()) else None
        for number, member in enumerate(members)
    }
    wanted = sorted({topic for wish in wishes.values() for topic in wish})
    return wishes, instances, {topic: draw(st.integers(0, 12)) for topic in wanted}


def their_shares(
    wishes: dict[str, list[str]], instances: dict[str, str | None], counts: dict[str, int]
) -> dict[str, dict[str, list[int]]]:
    class Cluster:
        def partitions_for_topic(self, topic: str) -> set[int]:
            return set(range(counts[topic]))

    # kafka-python groups members with itertools.groupby without sorting them first: it gets mixed lists right only
    # if static members come before dynamic ones.
    ordered = sorted(wishes, key=lambda member: instances[member] is None)
    members = [Member(m, instances[m], RangePartitionAssignor.metadata(wishes[m])) for m in ordered]
    answer: dict[str, Any] = RangePartitionAssignor.assign(Cluster(), members)
    return {
        member: {topic: list(partitions) for topic, partitions in share.assigned_partitions if partitions}
        for member, share in answer.items()
    }


@given(groups())
def test_shares_are_those_of_every_other_member_of_the_group(
    group: tuple[dict[str, list[str]], dict[str, str | None], dict[str, int]],
) -> None:
    """Whoever leads the group decides: a Java MirrorMaker, another of ours, or we. All must decide the same."""
    ours = share_by_range(*group)
    assert {member: ours[member] for member in group[0]} == their_shares(*group)


@given(groups())
def test_every_partition_has_one_owner_who_asked_for_it(
    group: tuple[dict[str, list[str]], dict[str, str | None], dict[str, int]],
) -> None:
    wishes, _, counts = group
    shares = share_by_range(*group)
    owned = sorted((t, p) for share in shares.values() for t, partitions in share.items() for p in partitions)
    assert owned == sorted((topic, p) for topic, count in counts.items() for p in range(count))
    assert all(topic in wishes[member] for member, share in shares.items() for topic in share)


def test_the_first_members_get_one_more() -> None:
    shares = share_by_range({"a": ["t"], "b": ["t"], "c": ["t"]}, {}, {"t": 7})
    assert shares == {"a": {"t": [0, 1, 2]}, "b": {"t": [3, 4]}, "c": {"t": [5, 6]}}


def test_static_members_come_first_and_by_their_instance_id() -> None:
    """So that a restart, which brings a new member id, moves nothing."""
    wishes = {"id-1": ["t"], "id-2": ["t"], "id-3": ["t"]}
    before = share_by_range(wishes, {"id-1": None, "id-2": "host-b", "id-3": "host-a"}, {"t": 3})
    assert before == {"id-3": {"t": [0]}, "id-2": {"t": [1]}, "id-1": {"t": [2]}}


def test_more_members_than_partitions_leave_some_without() -> None:
    shares = share_by_range({"a": ["t"], "b": ["t"], "c": ["t"]}, {}, {"t": 2})
    assert shares["c"] == {}
