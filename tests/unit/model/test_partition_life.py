"""A partition's life: single transitions, and random histories of group, streams and driver against a simple world."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from mirrormaker.model.partition_life import (
    RETRY_AFTER,
    RETRY_FINAL_AFTER,
    Allocate,
    Given,
    Gone,
    IdentityNeeded,
    Lapsed,
    Leave,
    Life,
    OrderRelease,
    OrderTake,
    Progressed,
    Recalled,
    Refused,
    Released,
    Releasing,
    Renumbered,
    Renumbering,
    RenumberWanted,
    ReportRecovery,
    ReportStop,
    Running,
    Stopped,
    StreamGone,
    StreamStopped,
    Then,
    Trouble,
    Waiting,
    step,
)

FRESH = Life(Waiting(clean=True))


def after(*events: Any, life: Life = FRESH) -> Life:
    for event in events:
        life, _ = step(life, event)
    return life


def effects(event: Any, life: Life) -> tuple[Any, ...]:
    return step(life, event)[1]


def test_a_partition_is_taken_runs_and_is_released() -> None:
    life, orders = step(FRESH, Given(1, 7))
    assert life.state == Running(1, 7)
    assert orders == (OrderTake(1, 7, clean=True),)
    life, orders = step(life, Recalled())
    assert life.state == Releasing(1, 7, Then.GO_ON)
    assert orders == (OrderRelease(1, 7),)
    life, orders = step(life, Released(7, clean=True, is_even=True))
    assert (life.state, orders) == (Waiting(clean=True), ())


def test_a_report_of_an_earlier_stay_changes_nothing() -> None:
    running = after(Given(1, 7), StreamGone(1), Given(1, 8))
    for late in (Released(7, True, True), StreamStopped(7, True, "no", False, 0.0), IdentityNeeded(7, "x")):
        assert step(running, late) == (running, ())


def test_the_successor_of_a_dead_stream_does_not_trust_what_is_under_way() -> None:
    life = after(Given(1, 7), StreamGone(1))
    assert effects(Given(0, 8), life) == (OrderTake(0, 8, clean=False),)


def test_the_death_of_another_stream_changes_nothing() -> None:
    running = after(Given(1, 7))
    assert step(running, StreamGone(0)) == (running, ())


def test_a_stopped_partition_is_tried_again_later_and_later() -> None:
    life, now = FRESH, 100.0
    for tenancy, pause in enumerate((*RETRY_AFTER, RETRY_AFTER[-1])):
        life = after(Given(0, tenancy), StreamStopped(tenancy, False, "denied", False, now), life=life)
        assert not life.may_be_given(now + pause - 0.1)
        assert life.may_be_given(now + pause)
    assert life.trouble == Trouble("denied", failures=5)


def test_a_final_stop_is_tried_again_after_a_long_while() -> None:
    life = after(Given(0, 1), StreamStopped(1, False, "numbers are broken", True, 0.0))
    assert not life.may_be_given(RETRY_FINAL_AFTER - 1)
    assert life.may_be_given(RETRY_FINAL_AFTER)


def test_a_reason_is_reported_when_it_is_new_and_a_recovery_once() -> None:
    stopped = StreamStopped(1, False, "denied", False, 0.0)
    life, reported = step(after(Given(0, 1)), stopped)
    assert reported == (ReportStop("denied"),)
    again = after(Given(0, 1), life=life)
    assert effects(stopped, again) == ()
    assert effects(StreamStopped(1, False, "too large", False, 0.0), again) == (ReportStop("too large"),)
    life, reported = step(again, Progressed())
    assert reported == (ReportRecovery(),)
    assert effects(Progressed(), life) == ()


def test_an_identity_is_allocated_once_its_stream_has_let_go() -> None:
    life = after(Given(0, 1), RenumberWanted("counts", is_even=False))
    assert life.state == Releasing(0, 1, Then.RENUMBER, "counts")
    assert effects(Released(1, clean=True, is_even=True), life) == (Allocate("counts"),)
    uneven = after(Released(1, clean=True, is_even=False), life=life)
    assert uneven.state == Waiting(clean=True), "a stream has to mirror what other partitions are ahead first"
    assert after(Renumbered(), life=after(Released(1, True, True), life=life)).state == Waiting(clean=True)


def test_an_identity_that_cannot_be_allocated_stops_the_partition_for_now() -> None:
    life = after(Given(0, 1), IdentityNeeded(1, "gone"), Refused("no permission", 10.0))
    assert life.state == Stopped(10.0 + RETRY_AFTER[0], clean=False)
    assert life.trouble == Trouble("no permission")


@pytest.mark.parametrize(
    "life",
    [FRESH, after(Given(0, 1), StreamStopped(1, True, "no", False, 0.0)), after(Given(0, 1), StreamGone(0))],
)
def test_a_partition_that_no_stream_has_leaves_at_once(life: Life) -> None:
    assert after(Leave(), life=life).state == Gone()


def test_a_partition_leaves_once_its_stream_has_let_go_whatever_it_says() -> None:
    leaving = after(Given(0, 1), Leave())
    assert leaving.is_leaving
    for last in (
        Released(1, True, True),
        StreamStopped(1, True, "no", False, 0.0),
        IdentityNeeded(1, "x"),
        StreamGone(0),
    ):
        life, done = step(leaving, last)
        assert (life.state, done) == (Gone(), ())
    assert after(Lapsed(), life=leaving).state == Gone()


def test_a_partition_that_leaves_while_it_is_renumbered_is_not_given_out_again() -> None:
    leaving = after(Given(0, 1), IdentityNeeded(1, "x"), Leave(is_outdated=True))
    assert leaving.state == Renumbering(leaves=True)
    assert leaving.is_outdated
    assert after(Renumbered(), life=leaving).state == after(Refused("no", 0.0), life=leaving).state == Gone()


def test_leaving_wins_over_everything_that_was_wanted_before() -> None:
    for wish in (Recalled(), RenumberWanted("counts", is_even=False)):
        assert after(Given(0, 1), wish, Leave()).state == Releasing(0, 1, Then.LEAVE)
    leaving = after(Given(0, 1), Leave())
    assert step(leaving, RenumberWanted("counts", is_even=False)) == (leaving, ())


def test_an_outdated_partition_stays_outdated() -> None:
    assert after(Given(0, 1), Leave(is_outdated=True), Leave(is_outdated=False)).is_outdated


# -- random histories


@dataclass
class World:
    """Streams that obey orders late, or die; a driver that carries out effects; and the two promises that must hold.

    At no moment may two streams be allowed to send for the same tenancy chain, and no partition may be in nobody's hands
    for ever: from every state that is not `Gone` a short way leads back to a stream.
    """

    random: random.Random
    life: Life = FRESH
    tenancies: int = 0
    now: float = 0.0
    # Orders under way to each stream, in order; and the tenancy that each stream runs.
    orders: dict[int, list[Any]] = field(default_factory=lambda: {0: [], 1: []})
    runs: dict[int, int | None] = field(default_factory=lambda: {0: None, 1: None})
    allocating: int = 0
    allocated: int = 0
    seen: set[str] = field(default_factory=set)

    def happen(self, event: Any) -> None:
        before = self.life
        self.life, found = step(self.life, event)
        self.seen.add(type(self.life.state).__name__)
        for effect in found:
            match effect:
                case OrderTake(stream) | OrderRelease(stream):
                    self.orders[stream].append(effect)
                case Allocate():
                    assert not any(run is not None for run in self.runs.values()) or before.state != self.life.state
                    self.allocating += 1
        assert self.allocating <= 1, "one identity at a time"

    def give(self) -> None:
        if self.life.may_be_given(self.now):
            self.tenancies += 1
            self.happen(Given(self.random.randrange(2), self.tenancies))

    def deliver(self, stream: int) -> None:
        """A stream gets its next order."""
        if not self.orders[stream]:
            return
        match self.orders[stream].pop(0):
            case OrderTake(_, tenancy):
                others = [run for number, run in self.runs.items() if number != stream and run is not None]
                assert not others, "two streams have the partition"
                self.runs[stream] = tenancy
            case OrderRelease(_, tenancy) if self.runs[stream] == tenancy:
                self.end(stream)

    def end(self, stream: int) -> None:
        """A stream ends with the partition, for some reason."""
        tenancy = self.runs[stream]
        if tenancy is None:
            return
        self.runs[stream] = None
        clean = self.random.random() < 0.5
        self.happen(
            self.random.choice(
                [
                    Released(tenancy, clean, is_even=clean),
                    StreamStopped(tenancy, clean, self.random.choice("ab"), self.random.random() < 0.2, self.now),
                    IdentityNeeded(tenancy, "need"),
                ]
            )
        )

    def die(self, stream: int) -> None:
        """A stream's lease ends before the driver is told that it is gone."""
        self.runs[stream] = None
        self.orders[stream].clear()
        self.happen(StreamGone(stream))

    def answer(self) -> None:
        """The driver's allocation comes to its end."""
        if self.allocating:
            self.allocating -= 1
            self.allocated += 1
            self.happen(self.random.choice([Renumbered(), Refused("no", self.now)]))

    def rebalance(self) -> None:
        self.happen(Leave(is_outdated=self.random.random() < 0.3))

    def acquire_again(self) -> None:
        """A partition that is gone comes back to this process as a new one; its streams have let go of it by then."""
        is_quiet = not (self.allocating or any(self.orders.values()))
        if isinstance(self.life.state, Gone) and is_quiet and all(run is None for run in self.runs.values()):
            self.life = Life(Waiting(clean=self.random.random() < 0.5))


def test_a_partition_is_never_with_two_streams_and_never_stuck() -> None:
    seen = set[str]()
    for seed in range(300):
        seen |= _history(seed)
    assert seen == {"Running", "Waiting", "Releasing", "Renumbering", "Stopped", "Gone"}


def _history(seed: int) -> set[str]:
    """Run a random history, and return the states that it came through."""
    world = World(random.Random(seed))
    actions = [
        world.give,
        world.give,
        lambda: world.deliver(0),
        lambda: world.deliver(1),
        lambda: world.end(world.random.randrange(2)),
        lambda: world.die(world.random.randrange(2)),
        world.answer,
        lambda: world.happen(Recalled()),
        lambda: world.happen(RenumberWanted("counts", world.random.random() < 0.5)),
        lambda: world.happen(Progressed()),
        world.acquire_again,
    ]
    for number in range(400):
        world.now += world.random.choice([0.1, 10.0, 700.0])
        world.random.choice(actions)()
        if number % 50 == 49:
            world.rebalance()
        # Nobody's hands: from here, streams that obey, an answer for what is allocated, and time lead to a stream again.
        if number % 20 == 0:
            _assert_a_way_back(world)
    return world.seen


def _assert_a_way_back(world: World) -> None:
    """Return only if the partition runs, or can be given to a stream, after everybody has done what they were asked to do."""
    life = world.life
    for _ in range(6):
        match life.state:
            case Running() | Gone():
                return
            case Releasing(_, tenancy):
                life, _ = step(life, Released(tenancy, clean=True, is_even=False))
            case Renumbering():
                life, _ = step(life, Renumbered())
            case Waiting() | Stopped():
                assert life.may_be_given(world.now + RETRY_FINAL_AFTER)
                life, _ = step(life, Given(0, 10**9))
    raise AssertionError(f"no way out of {world.life.state}")
