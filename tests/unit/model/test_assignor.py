"""Assigning a group's partitions: all of them, evenly by streams, and with as few moves as possible."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.model.assignor import Member, assign, decode_user_data, encode_user_data
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.loop_steps import calls_of

NAMES = ["audit", "orders", "payments", "refunds"]
Group = dict[str, Member]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Group, dict[str, int]]:
    """Members that hold nothing yet, and the partitions of each topic that someone wishes for."""
    count = draw(st.integers(1, 5))
    wishes = st.frozensets(st.sampled_from(NAMES), min_size=1)
    same = draw(wishes)
    members = {f"m{n}": Member(same if alike else draw(wishes), streams=draw(st.integers(1, 4))) for n in range(count)}
    topics = sorted({topic for member in members.values() for topic in member.topics})
    return members, {topic: draw(st.integers(0, 12)) for topic in topics}


def settled(members: Group, counts: dict[str, int], generation: int = 0) -> Group:
    """Members after as many rounds as it takes: each holds its share."""
    for round_ in range(3):
        assigned = assign(members, counts)
        after = {
            n: replace(m, owned=frozenset(assigned[n]), generation=generation + round_) for n, m in members.items()
        }
        if all(after[n].owned == m.owned for n, m in members.items()):
            return after
        members = after
    raise AssertionError("the group does not come to rest")


def everything(counts: dict[str, int]) -> set[TopicPartition]:
    return {(topic, partition) for topic, count in counts.items() for partition in range(count)}


@given(groups())
def test_each_partition_has_exactly_one_member_that_wants_it(group: tuple[Group, dict[str, int]]) -> None:
    members, counts = group
    after = settled(members, counts)
    keys = [key for member in after.values() for key in member.owned]
    assert len(keys) == len(set(keys))
    assert set(keys) == everything(counts)
    assert all(topic in member.topics for member in after.values() for topic, _ in member.owned)


@given(groups(alike=True))
def test_shares_go_by_streams(group: tuple[Group, dict[str, int]]) -> None:
    after = settled(*group)
    for one in after.values():
        for other in after.values():
            assert len(one.owned) / one.streams <= (len(other.owned) + 1) / other.streams


@given(groups(alike=True), st.integers(1, 4))
def test_a_member_that_joins_gets_its_share_in_two_rounds_and_nothing_else_moves(
    group: tuple[Group, dict[str, int]], streams: int
) -> None:
    members, counts = group
    before = settled(members, counts)
    topics = next(iter(members.values())).topics
    joined = {**before, "new": Member(topics, streams)}
    first = assign(joined, counts)
    for name, member in before.items():
        assert first[name] <= member.owned, "a partition moved between members that were there"
        assert first["new"].isdisjoint(member.owned), "given away while its holder still has it"
    after = settled(joined, counts, 10)
    gained = [key for name in before for key in after[name].owned - before[name].owned]
    assert not gained


@given(groups(alike=True), st.data())
def test_only_what_a_dead_member_had_moves(group: tuple[Group, dict[str, int]], data: st.DataObject) -> None:
    members, counts = group
    before = settled(members, counts)
    dead = data.draw(st.sampled_from(sorted(before)))
    left = {name: member for name, member in before.items() if name != dead}
    if left:
        first = assign(left, counts)
        assert set().union(*first.values()) == everything(counts), "all at once: nobody has to let go"
        assert all(before[name].owned <= first[name] for name in left)


@given(groups(alike=True), st.data())
def test_one_that_was_away_loses_what_others_were_given_since(
    group: tuple[Group, dict[str, int]], data: st.DataObject
) -> None:
    members, counts = group
    before = settled(members, counts)
    away = data.draw(st.sampled_from(sorted(before)))
    others = {name: member for name, member in before.items() if name != away}
    if others:
        back = {**settled(others, counts, 10), away: before[away]}
        first = assign(back, counts)
        held = set().union(*(back[name].owned for name in others))
        assert first[away].isdisjoint(held)


def test_what_a_member_tells() -> None:
    assert decode_user_data(encode_user_data(8, 41)) == (8, 41)
    assert decode_user_data(b"") == (1, -1)
    assert decode_user_data(b"some other client's own data") == (1, -1)


@pytest.mark.parametrize("topics", [250, 1000])
def test_ten_thousand_partitions_are_shared_with_a_bounded_number_of_calls(topics: int) -> None:
    """The cost of a partition does not grow with their number: about 21 calls if half of them move."""
    counts = {f"topic-{n}": 10 for n in range(topics)}
    names = frozenset(counts)
    alone = Member(names, 4, frozenset(everything(counts)), 1)
    shares: dict[str, set[TopicPartition]] = {}
    calls = calls_of(lambda: shares.update(assign({"old": alone, "new": Member(names, 4)}, counts)))
    assert len(shares["old"]) == 5 * topics
    assert not shares["new"]
    assert calls < 30 * 10 * topics


@given(groups(alike=True))
def test_one_that_has_only_just_started_gets_nothing_while_there_are_others(
    group: tuple[Group, dict[str, int]],
) -> None:
    members, counts = group
    before = settled(members, counts)
    topics = next(iter(members.values())).topics
    first = assign({**before, "new": Member(topics, 0)}, counts)
    assert not first.pop("new")
    assert first == {name: set(member.owned) for name, member in before.items()}


def test_those_who_have_all_just_started_share_at_once() -> None:
    topics = frozenset({"orders"})
    shares = assign({"a": Member(topics, 0), "b": Member(topics, 0)}, {"orders": 4})
    assert sorted(map(len, shares.values())) == [2, 2]


@given(groups(alike=True), st.data())
def test_one_that_has_waited_too_long_for_its_streams_loses_all_to_others(
    group: tuple[Group, dict[str, int]], data: st.DataObject
) -> None:
    members, counts = group
    before = settled(members, counts)
    late = data.draw(st.sampled_from(sorted(before)))
    if len(before) > 1:
        after = settled({**before, late: replace(before[late], streams=-1)}, counts, 10)
        assert not after[late].owned
        assert set().union(*(member.owned for member in after.values())) == everything(counts)
