"""The committer: commits of bounded size, one at a time, and refusals that concern one topic alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.committer import Committer
from mirrormaker.driver.group_protocol import Generation, Row
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.events.event import Event
from mirrormaker.events.partition_events import CommitRefused
from mirrormaker.kafka_errors import INVALID_COMMIT_OFFSET_SIZE, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.ledger import pack
from mirrormaker.model.partition_life import Life, Running
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.codec import TopicPartition

Rows = Mapping[str, Sequence[Row]]


class ScriptedMembership:
    """A member of the group whose coordinator answers as a test says."""

    def __init__(self, refuse: Callable[[Rows], dict[TopicPartition, BrokerError]]) -> None:
        self.refuse = refuse
        self.commits: list[Rows] = []
        self.generations: list[Generation] = []
        self.generation = Generation()
        self.is_certain = True
        self.cluster = Cluster(Endpoint((("there", 9092),)))
        self.under_way = 0

    async def commit(self, rows: Rows, generation: Generation) -> dict[TopicPartition, BrokerError]:
        self.under_way += 1
        assert self.under_way == 1, "one commit at a time"
        await asyncio.sleep(0)
        self.under_way -= 1
        self.commits.append({topic: list(of) for topic, of in rows.items()})
        self.generations.append(generation)
        return self.refuse(rows)


def position(topic: str, partition: int, cuts: int = 1) -> Position:
    states = tuple(Cut(n, 2**31 - 1, 2**40) for n in range(cuts))
    return Position(topic, partition, 10, -1, "ab" * 16, Identity(1, 0), "there", "cd" * 16, cuts, states)


class Office:
    """A committer with partitions that have moved."""

    def __init__(self, positions: list[Position], refuse: Callable[[Rows], Any] = lambda rows: {}) -> None:
        nothing: Any = lambda *_: None  # noqa: E731
        self.events: list[Event] = []
        reactions = Reactions(lambda: True, nothing, nothing, nothing)
        self.scheduler = Scheduler(0, 2, ControlServer(), self.events.append, reactions, "the log")
        self.membership = ScriptedMembership(refuse)
        self.membership.generation = Generation(assigned=frozenset(p.key for p in positions))
        for number, at in enumerate(positions):
            self.scheduler.add(OwnedPartition(at, Life(Running(0, number))))
            self.scheduler.moved[at.key] = None
        membership: Any = self.membership
        self.committer = Committer(membership, self.scheduler, 1.0, self.events.append)

    def commit(self) -> None:
        asyncio.run(self.committer.commit_moved())

    def rows_in(self, commit: Rows) -> int:
        return sum(len(rows) for rows in commit.values())


def size_at_the_broker(commit: Rows) -> int:
    """Return about how many bytes a coordinator appends for a commit."""
    return sum(len(metadata.encode()) + 150 + len(topic) for topic, rows in commit.items() for *_, metadata in rows)


def test_five_thousand_positions_are_committed_in_chunks_that_a_broker_takes() -> None:
    office = Office([position(f"topic-{n % 50}", n // 50) for n in range(5000)])
    office.commit()
    assert max(map(size_at_the_broker, office.membership.commits)) < 1 << 20
    assert sum(map(office.rows_in, office.membership.commits)) == 5000
    assert len(office.membership.commits) <= 20
    assert not office.scheduler.moved
    office.commit()
    assert sum(map(office.rows_in, office.membership.commits)) == 5000, "nothing has moved since"


def test_every_chunk_of_a_commit_carries_the_generation_under_which_it_was_decided() -> None:
    """After a rebalance the partitions may belong to another process, and the coordinator refuses the other chunks."""

    def rebalance(rows: Rows) -> dict[TopicPartition, BrokerError]:
        office.membership.generation = Generation(number=office.membership.generation.number + 1)
        return {}

    office = Office([position(f"topic-{n % 50}", n // 50) for n in range(5000)], rebalance)
    decided_under = office.membership.generation
    office.commit()
    assert len(office.membership.generations) > 2
    assert {id(generation) for generation in office.membership.generations} == {id(decided_under)}


def test_wide_positions_are_committed_in_chunks_too() -> None:
    office = Office([position("wide", n, cuts=300) for n in range(200)])
    office.commit()
    assert max(map(size_at_the_broker, office.membership.commits)) < 1 << 20
    assert sum(map(office.rows_in, office.membership.commits)) == 200


def test_a_commit_that_is_too_large_for_this_broker_is_halved_until_it_fits() -> None:
    def refuse(rows: Rows) -> dict[TopicPartition, BrokerError]:
        keys = [(topic, row[0]) for topic, of in rows.items() for row in of]
        return dict.fromkeys(keys, BrokerError(INVALID_COMMIT_OFFSET_SIZE)) if len(keys) > 10 else {}

    office = Office([position("orders", n) for n in range(100)], refuse)
    office.commit()
    taken = [commit for commit in office.membership.commits if office.rows_in(commit) <= 10]
    assert sum(map(office.rows_in, taken)) == 100
    assert not office.scheduler.moved
    assert len(office.membership.commits) < 40


def test_a_topic_that_may_not_be_committed_is_named_once_and_the_others_are_committed() -> None:
    def refuse(rows: Rows) -> dict[TopicPartition, BrokerError]:
        return {("secret", row[0]): BrokerError(TOPIC_AUTHORIZATION_FAILED) for row in rows.get("secret", ())}

    office = Office([position(topic, n) for topic in ("orders", "secret", "users") for n in range(3)], refuse)
    office.commit()
    office.commit()
    assert set(office.scheduler.moved) == {("secret", n) for n in range(3)}
    (refused,) = office.events
    assert isinstance(refused, CommitRefused)
    assert (refused.topic, refused.partitions) == ("secret", 3)
    assert "kafka-acls --bootstrap-server there:9092" in refused.reason
    office.membership.refuse = lambda rows: {}
    office.commit()
    assert not office.scheduler.moved


def test_a_coordinator_that_cannot_be_looked_up_for_a_moment_does_not_end_the_flow() -> None:
    answers: list[Any] = [ClusterError("group g: UNKNOWN_SERVER_ERROR (-1): looking for the coordinator")] * 2

    def refuse(rows: Rows) -> dict[TopicPartition, BrokerError]:
        if answers:
            raise answers.pop()
        return {}

    office = Office([position("t", 0)], refuse)

    async def play() -> None:
        running = asyncio.create_task(office.committer.run())
        async with asyncio.timeout(5):
            while office.scheduler.moved:
                office.committer.commit_soon()
                await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()

    asyncio.run(play())
    assert len(office.membership.commits) == 3


def test_an_older_commit_never_lands_after_a_newer_identity() -> None:
    office = Office([position("orders", 0)])
    owned = office.scheduler.owned["orders", 0]
    new = replace(owned.position, identity=Identity(2, 0))

    async def both() -> None:
        await asyncio.gather(office.committer.commit_renumbered(owned, new), office.committer.commit_moved())

    asyncio.run(both())
    written = [rows["orders"][0][3] for rows in office.membership.commits]
    assert written == [pack(new)]


class ScriptedMap:
    """An offset map that remembers the order of things. `is_stuck`: it cannot be written for now."""

    def __init__(self, membership: ScriptedMembership) -> None:
        self.membership, self.is_stuck = membership, False
        self.begun: list[Identity] = []
        self.stored: list[tuple[Identity, int]] = []  # with the number of commits before it

    async def begin(self, positions: Sequence[Position]) -> None:
        self.begun += [position.identity for position in positions]

    async def write(self, keys: Sequence[TopicPartition]) -> set[TopicPartition]:
        if not self.is_stuck:
            self.stored += [(identity, len(self.membership.commits)) for identity in self.begun]
            self.begun = []
        return set(keys) if self.is_stuck else set()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_new_identity_is_in_the_map_before_it_is_in_the_ledger(is_new: bool) -> None:
    """The ledger comes before the first record, so the map does too."""
    office = Office([position("orders", 0)])
    offset_map: Any = ScriptedMap(office.membership)
    membership: Any = office.membership
    committer = Committer(membership, office.scheduler, 1.0, office.events.append, offset_map)
    owned = office.scheduler.owned["orders", 0]
    renumbered = replace(owned.position, identity=Identity(2, MARKED_EPOCH))

    async def commit() -> None:
        if is_new:
            await committer.commit_new([renumbered], office.membership.generation)
        else:
            await committer.commit_renumbered(owned, renumbered)

    asyncio.run(commit())
    assert offset_map.stored[0] == (Identity(2, MARKED_EPOCH), 0)
    assert len(office.membership.commits) == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_a_new_identity_does_not_wait_long_for_a_map_that_cannot_be_written(
    is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other partitions of the same assignment would wait too."""
    monkeypatch.setattr("mirrormaker.driver.committer._MAP_WITHIN", 0.15)
    office = Office([position("orders", 0)])
    offset_map: Any = ScriptedMap(office.membership)
    membership: Any = office.membership
    committer = Committer(membership, office.scheduler, 1.0, office.events.append, offset_map)
    owned = office.scheduler.owned["orders", 0]
    renumbered = replace(owned.position, identity=Identity(2, MARKED_EPOCH))
    offset_map.is_stuck = True

    async def commit() -> None:
        if is_new:
            await committer.commit_new([renumbered], office.membership.generation)
        else:
            await committer.commit_renumbered(owned, renumbered)
        (rows,) = office.membership.commits
        assert rows["orders"][0][3] == pack(renumbered), "without its entry the identity would be forgotten"
        # A position is committed only once the map has what comes before it.
        owned.position = renumbered.advanced(20, -1, [])
        office.scheduler.moved["orders", 0] = None
        await committer.commit_moved()
        assert len(office.membership.commits) == 1
        offset_map.is_stuck = False
        await committer.commit_moved()
        assert offset_map.stored == [(Identity(2, MARKED_EPOCH), 1)]
        assert len(office.membership.commits) == 2

    asyncio.run(asyncio.wait_for(commit(), 5))


def test_many_new_identities_wait_for_a_map_that_takes_them_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormaker.driver.committer._MAP_WITHIN", 0.5)
    office = Office([])
    offset_map: Any = ScriptedMap(office.membership)
    membership: Any = office.membership
    committer = Committer(membership, office.scheduler, 1.0, office.events.append, offset_map)
    write, written = offset_map.write, set[TopicPartition]()

    async def write_slowly(keys: Sequence[TopicPartition]) -> set[TopicPartition]:
        await asyncio.sleep(0.001 * len(keys))
        written.update(keys)
        assert not office.membership.commits
        return await write(keys)  # type: ignore[no-any-return]

    offset_map.write = write_slowly
    positions = [position("orders", number) for number in range(1000)]
    asyncio.run(committer.commit_new(positions, office.membership.generation))
    assert len(written) == 1000


def test_a_process_that_stood_still_writes_no_blocks_of_partitions_that_others_may_have() -> None:
    office = Office([position("orders", 0)])
    offset_map: Any = ScriptedMap(office.membership)
    membership: Any = office.membership
    committer = Committer(membership, office.scheduler, 1.0, office.events.append, offset_map)
    offset_map.begun = [Identity(1, 0)]
    office.membership.is_certain = False
    asyncio.run(committer.commit_moved())
    assert not offset_map.stored and not offset_map.is_ours(("orders", 0))
    office.membership.is_certain = True
    asyncio.run(committer.commit_moved())
    assert offset_map.stored and offset_map.is_ours(("orders", 0))


def test_a_position_that_does_not_fit_into_an_entry_does_not_keep_the_others() -> None:
    office = Office([position("orders", 0), position("wide", 0, cuts=1000), position("users", 0)])
    office.commit()
    assert set(office.scheduler.moved) == {("wide", 0)}
    (refused,) = office.events
    assert isinstance(refused, CommitRefused)
    assert "more than a committed offset can carry" in refused.reason


def test_a_commit_of_many_partitions_does_not_go_through_all_of_them_for_each() -> None:
    class CountedKeys(frozenset[TopicPartition]):
        differences = 0

        def __sub__(self, other: Any) -> Any:
            CountedKeys.differences += 1
            return super().__sub__(other)

    office = Office([position("orders", n) for n in range(500)])
    generation = office.membership.generation
    office.membership.generation = replace(generation, claimed=CountedKeys(generation.assigned), two_rounds=True)
    office.commit()
    assert not office.scheduler.moved
    assert CountedKeys.differences == 1
