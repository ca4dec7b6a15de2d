"""Membership of the group: what a member claims, and whether it was in the group all the time. Coordinator answers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from mirrormaker.driver import membership as membership_module
from mirrormaker.driver.group_protocol import encode_subscription
from mirrormaker.driver.membership import Membership
from mirrormaker.errors import BrokerError, ClusterError, FencedError, NotMember, WireError
from mirrormaker.kafka_errors import CODES, FENCED_INSTANCE_ID
from mirrormaker.model.assignor import REJOIN, decode_user_data
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol import messages

KEYS = frozenset({("orders", 0), ("orders", 1)})


def assignment(*partitions: int, ours: bool = True) -> bytes:
    kind = ConsumerProtocolAssignment
    rows = [kind.TopicPartition(topic="orders", partitions=list(partitions))]
    return bytes(kind(version=1, assigned_partitions=rows, user_data=REJOIN if ours else b"").encode())


class Played(Membership):
    """A membership whose coordinator answers what a test has written down."""

    def __init__(self, *answers: Any) -> None:
        settings: Any = SimpleNamespace(group_id="g", session_timeout_ms=10_000, heartbeat_interval_ms=1000)
        super().__init__(Cluster(Endpoint((("127.0.0.1", 1),))), settings, None, 2, lambda: self.generation.assigned)
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def _ask(self, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        return self.answers.pop(0)


def joined(generation: int, leader: str = "other", member: str = "us") -> Any:
    return SimpleNamespace(
        error_code=0, member_id=member, generation_id=generation, leader=leader, skip_assignment=False
    )


def synced(*partitions: int, ours: bool = True, error: int = 0) -> Any:
    return SimpleNamespace(error_code=error, assignment=assignment(*partitions, ours=ours))


def play(*steps: tuple[Any, Any]) -> tuple[Played, list[bool | None]]:
    """Join as often as there are steps; None where it came to nothing."""
    membership = Played(*(answer for step in steps for answer in step))
    found: list[bool | None] = []

    async def all_of_them() -> None:
        for _ in steps:
            try:
                found.append(await membership._join())
            except NotMember:
                found.append(None)

    asyncio.run(all_of_them())
    return membership, found


def test_one_generation_after_the_other_is_no_gap() -> None:
    _, found = play((joined(5), synced(0, 1)), (joined(6), synced(0)), (joined(7), synced(0)))
    assert found == [False, True, True]


def test_a_generation_without_us_is_a_gap() -> None:
    _, found = play((joined(5), synced(0, 1)), (joined(7), synced(0, 1)))
    assert found == [False, False]


def test_another_member_id_is_a_gap() -> None:
    _, found = play((joined(5), synced(0, 1)), (joined(6, member="another"), synced(0, 1)))
    assert found == [False, False]


def test_a_round_that_comes_to_nothing_is_no_gap_under_a_leader_of_ours() -> None:
    _, found = play((joined(5), synced(0)), (joined(6), synced(error=27)), (joined(7), synced(0)))
    assert found == [False, None, True]


@pytest.mark.parametrize(
    "ours, leader, last", [(False, "other", "other"), (True, "a third", "other"), (True, "3", "3")]
)
def test_a_round_that_comes_to_nothing_is_a_gap_under_any_other(ours: bool, leader: str, last: str) -> None:
    first, failed = (joined(5), synced(0, ours=ours)), (joined(6, leader), synced(error=27))
    _, found = play(first, failed, (joined(7, last), synced(0)))
    assert found == [False, None, False]


def test_a_failed_round_after_an_absence_does_not_heal_it() -> None:
    _, found = play((joined(5), synced(0)), (joined(7), synced(error=27)), (joined(8), synced(0)))
    assert found == [False, None, False]


def test_the_generation_changes_as_a_whole_and_only_when_it_is_given() -> None:
    membership, _ = play((joined(5), synced(0, 1)), (joined(6), synced(error=27)))
    assert (membership.generation.number, membership.generation.assigned) == (5, KEYS)
    membership, _ = play((joined(5), synced(0, 1)), (joined(6), synced(0)))
    assert membership.generation.claimed == KEYS
    assert membership.generation.to_release == {("orders", 1)}


def test_what_is_held_is_claimed_with_the_generation_that_gave_it() -> None:
    membership, _ = play((joined(5), synced(0, 1)), (joined(6), synced(error=27)), (joined(7), synced(0, 1)))
    last = [request for request in membership.asked if hasattr(request, "protocols")][-1]
    told = ConsumerProtocolSubscription.decode(bytes(last.protocols[0].metadata))
    assert [(t.topic, list(t.partitions)) for t in told.owned_partitions] == [("orders", [0, 1])]
    assert told.user_data[-4:] == (5).to_bytes(4, "big")


def test_an_answer_to_an_earlier_generation_says_nothing_of_this_one() -> None:
    membership, _ = play((joined(5), synced(0, 1)))
    earlier = membership.generation
    membership.answers = [joined(6), synced(0, 1)]
    asyncio.run(membership._join())
    certain: Callable[[], bool] = lambda: membership.is_certain  # noqa: E731
    for code in (22, 25, 27):
        with pytest.raises(NotMember):
            membership._check(code, "commit", earlier)
    assert certain()
    assert not membership._rejoin.is_set()
    with pytest.raises(NotMember):
        membership._check(25, "heartbeat", membership.generation)
    assert not certain()


def test_a_coordinator_that_restarts_before_the_sync_does_not_fence_the_member_that_joined() -> None:
    refused = SimpleNamespace(error_code=FENCED_INSTANCE_ID)
    membership, _ = play((joined(5), synced(0, 1)))
    membership._member_id = ""
    membership.answers = [
        joined(6, member="never stored"),
        synced(error=14),
        refused,
        joined(6, member="new"),
        synced(0),
    ]
    for error in (BrokerError, NotMember):
        with pytest.raises(error):
            asyncio.run(membership._join())
    asyncio.run(membership._join())
    asked = [request.member_id for request in membership.asked if hasattr(request, "protocols")]
    assert asked == ["", "", "never stored", ""]
    membership.answers = [refused]
    with pytest.raises(FencedError):
        asyncio.run(membership._join())


def test_a_member_without_streams_tells_the_group_so_and_again_when_it_has_some() -> None:
    membership, _ = play((joined(5), synced(0, 1)))
    for work, weight in ((True, 2), (False, -1), (True, 2)):
        membership._rejoin.clear()
        membership.streams_work(work)
        assert membership._rejoin.is_set(), "the group has to assign its partitions anew"
        membership.answers = [joined(6), synced(0, 1)]
        asyncio.run(membership._join())
        last = [request for request in membership.asked if hasattr(request, "protocols")][-1]
        told = ConsumerProtocolSubscription.decode(bytes(last.protocols[0].metadata))
        assert decode_user_data(told.user_data)[0] == weight
    membership._rejoin.clear()
    membership.streams_work(True)
    assert not membership._rejoin.is_set(), "nothing has changed"


# -- a coordinator that refuses


class Ended(Exception):
    """Raised when the script has come to its end."""


class Kept(Played):
    """A membership that stays in its group until the script ends."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        quick: Any = self.settings
        quick.heartbeat_interval_ms = 1
        self.rejoins = -1

    async def _ask(self, request: Any, **_: Any) -> Any:
        if not self.answers:
            raise Ended
        return await super()._ask(request)

    async def play(self) -> None:
        """Stay until the script ends."""

        async def before_join() -> None:
            self.rejoins += 1

        with pytest.raises(Ended):
            await self.keep(before_join, lambda _: None)


def answered(code: int) -> Any:
    return SimpleNamespace(error_code=code, member_id="", assignment=b"")


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE", "_REFUSED_PAUSE"):
        monkeypatch.setattr(membership_module, name, 0.0)


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("code", [-1, 30, 79, 9999])
def test_a_refused_heartbeat_takes_no_partition_away(code: int) -> None:
    member = Kept(joined(5), synced(0, 1), answered(code), answered(code), answered(0))
    asyncio.run(member.play())
    assert member.joined and member.is_certain and member.rejoins == 0
    assert member.generation.assigned == KEYS


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("code", [-1, 30, 9999])
def test_a_refused_join_is_tried_again_unless_it_is_the_first(code: int) -> None:
    again = (joined(6), synced(0, 1))
    member = Kept(joined(5), synced(0, 1), answered(27), answered(code), joined(6), answered(code), *again, answered(0))
    asyncio.run(member.play())
    assert member.joined and member.generation.number == 6 and member.rejoins == 3
    first = Kept(answered(code))

    async def nothing() -> None:
        """Do nothing before a join."""

    with pytest.raises(ClusterError):
        asyncio.run(first.keep(nothing, lambda _: None))


@pytest.mark.parametrize("code", [22, 25, 27])
def test_a_group_that_never_lets_us_join_is_not_asked_in_a_busy_loop(code: int) -> None:
    member = Kept(*[answered(code)] * 1000)

    async def play() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(member.play(), 0.5)

    asyncio.run(play())
    assert len(member.asked) <= 6


def test_a_member_that_joined_anew_is_not_ended_by_its_former_self() -> None:
    membership, _ = play((joined(5), synced(0, 1)))
    earlier = membership.generation
    membership._member_id = ""  # the group has forgotten it, and it joins with a new id
    with pytest.raises(NotMember):
        membership._check(82, "commit", earlier)
    membership.answers = [joined(6, member="anew"), synced(0, 1)]
    asyncio.run(membership._join())
    with pytest.raises(NotMember):
        membership._check(82, "commit", earlier)
    with pytest.raises(FencedError):
        membership._check(82, "commit", membership.generation)


@pytest.mark.parametrize("code", [22, 25, 27, 82])
def test_an_answer_that_is_not_about_members_does_not_end_a_membership(code: int) -> None:
    """A coordinator cannot say anything of a member in an answer to a request that does not name it."""
    membership, _ = play((joined(5), synced(0, 1)))
    with pytest.raises(ClusterError):
        membership._check_group(code, "looking for the coordinator")
    assert membership.is_certain and not membership._rejoin.is_set()


@pytest.mark.parametrize("code, is_raised", [(0, False), (-1, False), (30, False), (11, False), (14, True), (25, True)])
def test_a_commit_that_is_refused_altogether_concerns_its_partitions_only(code: int, is_raised: bool) -> None:
    membership, _ = play((joined(5), synced(0, 1)))
    rows = [SimpleNamespace(partition_index=number, error_code=code) for number in (0, 1)]
    membership.answers = [SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=rows)])]
    commit = membership.commit({"orders": [(0, 1, 0, ""), (1, 1, 0, "")]}, membership.generation)
    if is_raised:
        with pytest.raises(WireError):
            asyncio.run(commit)
    else:
        assert asyncio.run(commit).keys() == (KEYS if code else set())


def test_a_member_leaves_whatever_the_coordinator_answers() -> None:
    for code in (0, *CODES, 9999):
        membership, _ = play((joined(5), synced(0, 1)))
        membership.answers = [answered(code)]
        asyncio.run(membership.leave())
        assert not membership.joined and not membership.answers
        asyncio.run(membership.leave())  # it has left: nobody is asked


def test_a_member_with_countless_topics_leaves_enough_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_WORK_OF_GROUP", 40_000)
    few, many = (encode_subscription([f"topic-{n}" for n in range(count)], [], 1, 0) for count in (100, 20_000))
    rows = [SimpleNamespace(member_id=str(n), metadata=few) for n in range(19)]
    members, strange = membership_module._subscriptions([*rows, SimpleNamespace(member_id="large", metadata=many)])
    assert list(strange) == ["large"]
    assert {name: len(member.topics) for name, member in members.items()} == {
        **{str(n): 100 for n in range(19)},
        "large": 0,
    }


@pytest.mark.parametrize(
    ("processes", "topics", "partitions", "owners"), [(16, 2000, 10, 1), (24, 4000, 24, 24), (64, 500, 12, 1)]
)
def test_every_process_of_a_large_mirror_is_understood(
    processes: int, topics: int, partitions: int, owners: int
) -> None:
    """A process that is not understood gets nothing, and its partitions would move without the two rounds."""
    names = [f"topic-{n:05}" for n in range(topics)]
    keys = [(name, number) for name in names for number in range(partitions)]
    rows = [
        SimpleNamespace(
            member_id=str(n), metadata=encode_subscription(names, keys[n::owners] if n < owners else [], 2, 5)
        )
        for n in range(processes)
    ]
    members, strange = membership_module._subscriptions(rows)
    assert not strange
    assert sum(len(member.owned) for member in members.values()) == len(keys)
