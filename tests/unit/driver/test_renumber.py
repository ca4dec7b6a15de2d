"""Partitions whose records go elsewhere because a topic has grown."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_messages import CannotDeliver, NeedsIdentity
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.renumber import RENEWALS, Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.model.partition_life import (
    Given,
    IdentityNeeded,
    Life,
    Released,
    Releasing,
    Renumbered,
    Stopped,
    Waiting,
)
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.worker.interrupts import RestartAt

_TOPICS, _PARTITIONS = 5, 40


class CountedRouting(Routing):
    """Counts how often it is asked for the numbers of partitions."""

    asked = 0

    def counts(self, topic: str) -> tuple[int, int]:
        CountedRouting.asked += 1
        return super().counts(topic)


def cluster_with(partitions: int) -> Cluster:
    cluster = Cluster(Endpoint((("there", 9092),)))
    for number in range(_TOPICS):
        grow(cluster, f"topic-{number}", partitions)
    return cluster


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    cluster.topics[topic] = Topic(topic, bytes(16), False, {n: Partition(1, 0, 1) for n in range(partitions)})


class Office:
    """A flow with every partition of all topics."""

    def __init__(self) -> None:
        self.wanted: list[tuple[str, int]] = []
        nothing: Any = lambda *_: None  # noqa: E731
        reactions = Reactions(lambda: True, self.allocate, nothing, nothing)
        self.scheduler = Scheduler(0, 1, ControlServer(), nothing, reactions, "the log")
        for topic in range(_TOPICS):
            for number in range(_PARTITIONS):
                cuts = (Cut(number, 0, 0),)
                at = Position(f"topic-{topic}", number, 0, -1, "", Identity(1, 0), "there", "", _PARTITIONS, cuts)
                self.scheduler.add(OwnedPartition(at, Life(Waiting(clean=True))))
        self.source, self.target = cluster_with(_PARTITIONS), cluster_with(_PARTITIONS)
        starts: Any = nothing
        self.renumbering = Renumbering(
            self.scheduler, nothing, starts, nothing, nothing, abort_on_send_failure=False, spawn=nothing, fail=nothing
        )
        starts.routing = CountedRouting(self.source, self.target, "a file", None, None, False)

    def allocate(self, owned: OwnedPartition, need: Any) -> None:
        assert isinstance(need, NeedsIdentity)
        self.wanted.append(owned.position.key)


def test_a_grown_topic_counts_at_its_second_sight_and_the_others_stay() -> None:
    office = Office()
    office.renumbering.check_partition_counts()
    grow(office.target, "topic-3", _PARTITIONS + 1)
    office.renumbering.check_partition_counts()
    assert office.wanted == []
    office.renumbering.check_partition_counts()
    assert office.wanted == [("topic-3", number) for number in range(_PARTITIONS)]
    office.renumbering.check_partition_counts()
    assert len(office.wanted) == _PARTITIONS, "they have asked already"


def test_topics_are_looked_at_once_however_many_partitions_they_have() -> None:
    office = Office()
    CountedRouting.asked = 0
    office.renumbering.check_partition_counts()
    assert CountedRouting.asked <= 2 * _TOPICS


def test_a_partition_that_is_not_released_cleanly_has_a_minute_until_it_is_recalled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next stream is certain of what the target holds after some seconds; a recall before that would be in vain."""
    clock = [1000.0]
    monkeypatch.setattr("mirrormaker.driver.renumber.time.monotonic", lambda: clock[0])
    office = Office()
    key = ("topic-3", 0)
    owned = office.scheduler.owned[key]
    office.renumbering.check_partition_counts()
    grow(office.target, "topic-3", _PARTITIONS + 1)
    office.renumbering.check_partition_counts()
    recalls = []
    for tenancy in range(1, 31):
        if not owned.is_running:
            office.scheduler.apply(owned, Given(0, tenancy))
            taken = tenancy
        office.renumbering.check_partition_counts()
        if isinstance(owned.life.state, Releasing):
            recalls.append(clock[0])
            office.scheduler.apply(owned, Released(taken, clean=False, is_even=False))
        clock[0] += 5
    assert recalls == [1000.0, 1060.0, 1120.0]


class Renewals:
    """One partition whose stream asks for another identity again and again."""

    def __init__(self) -> None:
        office, nothing = Office(), lambda *_: None
        self.count = 0
        self.owned = office.scheduler.owned["topic-0", 0]
        starts: Any = nothing
        committer: Any = nothing
        self.renumbering = Renumbering(
            office.scheduler, committer, starts, office.renumbering._undelivered, nothing,
            abort_on_send_failure=False, spawn=self._renumber, fail=nothing,
        )  # fmt: skip
        reactions = Reactions(lambda: True, self.renumbering.allocate, nothing, lambda _: None)
        office.scheduler._reactions = reactions
        self.scheduler, self.tenancy = office.scheduler, 0

    def _renumber(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()
        self.count += 1
        self.scheduler.apply(self.owned, Renumbered())

    def ask(self, where: RestartAt = RestartAt.SAME_PLACE, topics: tuple[str, ...] = ()) -> None:
        """Give the partition to a stream, which finds that it needs another identity."""
        self.tenancy += 1
        self.scheduler.apply(self.owned, Given(0, self.tenancy))
        self.scheduler.apply(
            self.owned,
            IdentityNeeded(self.tenancy, NeedsIdentity(where, "the source is not what was mirrored", topics)),
        )


@pytest.mark.parametrize("where", [RestartAt.SAME_PLACE, RestartAt.FORGOTTEN])
def test_a_partition_that_needs_new_identities_without_end_stops(where: RestartAt) -> None:
    """A message handler says that it is deterministic, and is not; the target refuses what it makes of a record."""
    play = Renewals()
    for _ in range(RENEWALS):
        play.ask(where)
        assert not play.owned.stop_reason
    assert play.count == RENEWALS
    play.ask(where)
    assert play.count == RENEWALS
    assert isinstance(play.owned.life.state, Stopped)
    assert f"stops at source offset 0: it needed {RENEWALS} new producer ids in a row" in play.owned.stop_reason
    assert "the source is not what was mirrored" in play.owned.stop_reason
    assert "deterministic = False" in play.owned.stop_reason


def test_each_new_attempt_of_such_a_partition_has_one_new_identity() -> None:
    """The reason may pass: a handler was mended, or the target takes the record now."""
    play = Renewals()
    for _ in range(RENEWALS + 1):
        play.ask()
    for attempt in (1, 2, 3):
        play.ask()
        assert (play.count, play.owned.is_running) == (RENEWALS + attempt, False)
        play.ask()
        assert play.count == RENEWALS + attempt
        assert isinstance(play.owned.life.state, Stopped)


def test_a_partition_that_moves_on_in_between_may_have_any_number_of_identities() -> None:
    play = Renewals()
    for offset in range(5 * RENEWALS):
        play.owned.position = replace(play.owned.position, offset=offset)
        play.ask()
    assert play.count == 5 * RENEWALS


def test_identities_for_new_topics_and_other_places_do_not_count() -> None:
    play = Renewals()
    for number in range(2 * RENEWALS):
        play.ask(topics=(f"topic-{number}",))
        play.ask(RestartAt.FROM_THE_START)
    assert play.count == 4 * RENEWALS


def test_a_record_that_is_given_up_moves_the_partition_on() -> None:
    play = Renewals()
    undelivered: Any = type("Anywhere", (), {"path": "a file", "write": lambda *_: None})()
    play.renumbering._undelivered = undelivered
    for _ in range(2 * RENEWALS):
        play.tenancy += 1
        play.scheduler.apply(play.owned, Given(0, play.tenancy))
        play.scheduler.apply(play.owned, IdentityNeeded(play.tenancy, CannotDeliver(0, "too large", "too large")))
    assert play.count == 2 * RENEWALS
