"""Where a group belongs on the target, and when its offset there may be written: every row of the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.model.group_sync import (
    ADVICE,
    Aim,
    Cost,
    Decision,
    Log,
    Memory,
    Part,
    Presence,
    State,
    advice,
    aim,
    cost,
    decide,
    worst,
)

LOG = Log(10, 1000)


@pytest.mark.parametrize(
    ("parts", "log", "expected"),
    [
        pytest.param([Part(150, 250, 250, 100, 300)], LOG, Aim(250, State.SYNCED), id="inside of the map"),
        pytest.param([Part(300, 400, 400, 100, 300)], LOG, Aim(400, State.SYNCED), id="at its end"),
        pytest.param([Part(350, 400, 400, 100, 300)], LOG, Aim(400, State.AHEAD), id="ahead of the mirror"),
        pytest.param(
            [Part(150, 240, 250, 100, 300)], LOG, Aim(240, State.SYNCED, 10, most=250), id="between two anchors"
        ),
        pytest.param(
            [Part(90, 10, 10, 100, 300, 100)], LOG, Aim(10, State.BEHIND, 0, 10), id="behind the source's log"
        ),
        pytest.param(
            [Part(60, 0, 50, 100, 300, 60)],
            LOG,
            Aim(10, State.BEFORE_MAP, 40, most=50),
            id="records from before the map",
        ),
        pytest.param(
            [Part(50, 0, 50, 100, 300, 60)], LOG, Aim(10, State.BEHIND, 40, 10, most=50), id="some of them are gone"
        ),
        pytest.param(
            [Part(60, 0, 5, 100, 300)], LOG, Aim(10, State.TRIMMED, 0, 5), id="the target's log begins after the map"
        ),
        pytest.param([Part(0, 10, 10, 0, 0)], Log(10, 10), Aim(10, State.SYNCED), id="nothing mirrored yet"),
        pytest.param(
            [Part(150, 5, 5, 100, 300)], LOG, Aim(10, State.TRIMMED, 0, 5), id="the target's retention went on"
        ),
        pytest.param(
            [Part(150, 5, 15, 100, 300)],
            LOG,
            Aim(10, State.TRIMMED, 5, 5, most=15),
            id="it may have gone past the group",
        ),
        pytest.param(
            [Part(5, 5, 5, 0, 9), Part(7, 500, 500, 0, 9)],
            LOG,
            Aim(10, State.TRIMMED, 490, 5),
            id="it went past one of several source partitions",
        ),
        pytest.param(
            [Part(5, 5, 5, 0, 9), Part(7, 8, 8, 0, 9)], LOG, Aim(10, State.TRIMMED, 0, 5), id="it went past all of them"
        ),
        pytest.param(
            [Part(60, 0, 50, 100, 300, 60), Part(7, 4, 4, 0, 9)],
            LOG,
            Aim(10, State.TRIMMED, 40, 6),
            id="it went past one of them, and the other one is before the map",
        ),
        pytest.param(
            [Part(9, 5, 5, 0, 9, is_open=True), Part(7, 500, 500, 0, 9)],
            LOG,
            Aim(10, State.SYNCED, 490, most=500, is_open=True),
            id="it went past a place with nothing to read",
        ),
        pytest.param(
            [Part(150, 2000, 2000, 100, 300)], LOG, Aim(1000, State.TARGET_SHORT, 0, 1000), id="the target lost data"
        ),
        pytest.param(
            [Part(5, 50, 50, 0, 9), Part(7, 30, 30, 0, 9), Part(7, 70, 80, 0, 9)],
            LOG,
            Aim(30, State.SYNCED, 50),
            id="several source partitions by key",
        ),
        pytest.param(
            [Part(5, 50, 50, 0, 9), Part(9, 30, 30, 0, 9, horizon=45), Part(9, 0, 0, 0, 9, horizon=500)],
            LOG,
            Aim(45, State.SYNCED, 5, floor=10),
            id="two of them have nothing more to read",
        ),
        pytest.param(
            [Part(5, 50, 50, 0, 9), Part(9, 30, 30, 0, 9, is_open=True)],
            LOG,
            Aim(30, State.SYNCED, 20, most=50, is_open=True),
            id="it is not known where one of them goes on",
        ),
        pytest.param(
            [Part(9, 5, 5, 0, 9, horizon=700), Part(9, 8, 8, 0, 9, horizon=700)],
            LOG,
            Aim(700, State.SYNCED, 0, floor=10),
            id="everything is read, and the target's retention went on",
        ),
        pytest.param(
            [Part(5, 50, 50, 0, 9), Part(12, 60, 60, 0, 9)], LOG, Aim(50, State.AHEAD, 10), id="one of them ahead"
        ),
    ],
)
def test_where_a_group_belongs(parts: list[Part], log: Log, expected: Aim) -> None:
    assert aim(parts, log) == expected


AT_50 = Aim(50, State.SYNCED, 3, 4)
FREE, MEMBERS, OTHER = Presence.FREE, Presence.MEMBERS, Presence.OTHER_KIND


@pytest.mark.parametrize(
    ("found", "target", "memory", "presence", "expected"),
    [
        pytest.param(AT_50, None, None, FREE, Decision(State.SYNCED, 50, 3, 4, 50), id="a new group"),
        pytest.param(AT_50, 50, Memory(50), FREE, Decision(State.SYNCED, None, 3, 4, 50), id="written before"),
        pytest.param(AT_50, 40, Memory(40), FREE, Decision(State.SYNCED, 50, 3, 4, 50), id="the group has moved on"),
        pytest.param(AT_50, 60, Memory(60), FREE, Decision(State.SYNCED, 50, 3, 4, 50), id="the group was rewound"),
        pytest.param(AT_50, None, Memory(50), FREE, Decision(State.SYNCED, 50, 3, 4, 50), id="our offset has expired"),
        pytest.param(AT_50, 41, Memory(40), FREE, Decision(State.OWNED, None, 3, 4, 50), id="somebody moved it"),
        pytest.param(AT_50, 50, Memory(40), FREE, Decision(State.OWNED, None, 3, 4, 50), id="somebody moved it there"),
        pytest.param(AT_50, 50, None, FREE, Decision(State.OWNED, None, 3, 4, 50), id="it was there before us"),
        pytest.param(
            AT_50, 40, Memory(45, 40), FREE, Decision(State.SYNCED, 50, 3, 4, 50), id="killed between memory and commit"
        ),
        pytest.param(
            AT_50, 40, Memory(40), MEMBERS, Decision(State.ACTIVE, None, 3, 4, 50), id="consumers on the target"
        ),
        pytest.param(
            AT_50, None, None, MEMBERS, Decision(State.ACTIVE, None, 3, 4, 50), id="consumers, nothing committed"
        ),
        pytest.param(AT_50, None, None, OTHER, Decision(State.UNMOVABLE), id="a share group under this name"),
        pytest.param(State.UNSTABLE, 40, Memory(40), FREE, Decision(State.UNSTABLE), id="a transaction holds it"),
        pytest.param(State.UNMAPPED, None, None, FREE, Decision(State.UNMAPPED), id="no map yet"),
        pytest.param(State.DELETED, 40, Memory(40), FREE, Decision(State.DELETED), id="deleted on the source"),
        pytest.param(
            State.DELETED,
            40,
            Memory(40),
            MEMBERS,
            Decision(State.ACTIVE),
            id="deleted on the source, used on the target",
        ),
        pytest.param(
            State.DELETED, 41, Memory(40), FREE, Decision(State.OWNED), id="deleted on the source, moved on the target"
        ),
        pytest.param(State.UNSTABLE, 41, Memory(40), FREE, Decision(State.OWNED), id="held there, moved here"),
        pytest.param(
            State.NO_RIGHTS, 40, Memory(40), MEMBERS, Decision(State.NO_RIGHTS), id="the source does not tell"
        ),
        pytest.param(
            Aim(7, State.TARGET_SHORT, 0, 9), 3, Memory(3), FREE, Decision(State.TARGET_SHORT, 7, 0, 9, 7), id="clamped"
        ),
    ],
)
def test_when_an_offset_is_written(
    found: Aim | State, target: int | None, memory: Memory | None, presence: Presence, expected: Decision
) -> None:
    assert decide(found, target, memory, presence) == expected


OFFSETS = st.integers(0, 60)


@given(
    st.lists(st.builds(Part, OFFSETS, OFFSETS, OFFSETS, OFFSETS, OFFSETS, OFFSETS), min_size=1, max_size=4),
    st.tuples(OFFSETS, OFFSETS).map(lambda pair: Log(min(pair), max(pair))),
    st.none() | OFFSETS,
    st.none() | st.builds(Memory, OFFSETS, st.integers(-1, 60)),
    st.sampled_from(Presence),
    st.booleans(),
)
def test_nothing_is_written_outside_of_the_log_or_over_another_hand(
    parts: list[Part], log: Log, target: int | None, memory: Memory | None, presence: Presence, renews: bool
) -> None:
    found = aim(parts, log)
    assert log.start <= found.offset <= log.end
    assert found.again >= 0
    assert found.missing >= 0
    decision = decide(found, target, memory, presence, renews=renews)
    if decision.commit is not None:
        assert presence is Presence.FREE
        assert target is None or (memory is not None and memory.is_ours(target))
        assert decision.commit == found.offset
        assert renews or found.offset != target
    # Nothing is skipped: the reader goes on at or before every place that the map names, if the log has it.
    assert found.offset <= max(log.start, min(max(part.offset, part.horizon) for part in parts))


@given(
    st.lists(st.integers(0, 2), max_size=30),
    st.tuples(*[st.integers(0, 12)] * 3),
    st.tuples(*[st.integers(0, 3)] * 6),
    st.integers(0, 30),
)
def test_everything_that_retention_took_from_a_group_is_in_the_bound(
    written: list[int], read_to: tuple[int, ...], unsure: tuple[int, ...], start: int
) -> None:
    """The target partition has records of three source partitions in this order, and the map is unsure of their places."""
    log = Log(min(start, len(written)), len(written))
    places: list[list[int]] = [[at for at, part in enumerate(written) if part == number] for number in range(3)]
    parts = []
    for number, mirrored in enumerate(places):
        unread = mirrored[read_to[number] :]
        if unread:
            first, latest = max(0, unread[0] - unsure[number]), min(log.end, unread[0] + unsure[3 + number])
            parts.append(Part(read_to[number], first, latest, 0, len(mirrored)))
        else:
            end = mirrored[-1] + 1 if mirrored else 0
            parts.append(Part(read_to[number], end, end, 0, read_to[number], is_open=True))
    found = aim(parts, log)
    needed = [at for number, mirrored in enumerate(places) for at in mirrored[read_to[number] :]]
    lost = sum(at < log.start for at in needed)
    assert lost <= found.missing <= log.start
    assert (found.state is State.TRIMMED) is (found.missing > 0)
    assert found.offset <= max(log.start, min(needed, default=log.end))


def test_every_state_that_is_no_success_has_an_advice() -> None:
    assert ADVICE.keys() == set(State) - {State.SYNCED}


def test_an_advice_is_a_command_that_can_be_copied() -> None:
    text = advice(State.OWNED, "a group", "TARGET", "new:9092")
    assert text.endswith(
        "kafka-consumer-groups --bootstrap-server new:9092 --delete-offsets --group 'a group' --topic TARGET"
    )
    assert advice(State.SYNCED, "g", "t", "new:9092") == ""


def test_the_worst_state_is_told_first() -> None:
    assert worst([State.SYNCED, State.OWNED, State.AHEAD]) is State.OWNED
    assert worst([State.SYNCED, State.AHEAD]) is State.AHEAD
    assert worst([]) is State.UNMAPPED


SHARED = Aim(50, State.SYNCED, floor=20, most=90)


@pytest.mark.parametrize(
    ("target", "lifts", "keeps", "stays"),
    [
        (19, False, False, False),  # before every place that it could have
        (20, False, False, True),
        (20, True, True, False),
        (60, False, False, False),
        (90, True, True, True),
        (91, True, True, False),
    ],
)
def test_an_offset_that_may_be_right_is_left_where_it_is(target: int, lifts: bool, keeps: bool, stays: bool) -> None:
    found = decide(SHARED, target, Memory(target), FREE, lifts=lifts, keeps=keeps)
    assert found.commit == (None if stays else 50)
    renewed = decide(SHARED, target, Memory(target), FREE, lifts=lifts, keeps=keeps, renews=True)
    assert renewed.commit == (target if stays else 50)


BEFORE_MAP = aim([Part(100, 0, 5007, 5000, 6000)], Log(0, 6007))


@pytest.mark.parametrize(
    ("target", "keeps", "commit", "missing"),
    [
        pytest.param(107, True, None, 0, id="written while the map was there, and the group has not moved since"),
        pytest.param(5008, True, 0, 5008, id="after the map's first place: it was for other records"),
        pytest.param(107, False, 0, 107, id="the group has moved, perhaps backwards"),
        pytest.param(None, False, 0, None, id="a new group"),
    ],
)
def test_a_group_from_before_the_map_stays_where_it_was_written(
    target: int | None, keeps: bool, commit: int | None, missing: int | None
) -> None:
    memory = None if target is None else Memory(target)
    decision = decide(BEFORE_MAP, target, memory, FREE, keeps=keeps)
    assert (decision.state, decision.commit) == (State.BEFORE_MAP, commit)
    found = cost(decision, target, Log(0, 6007), 900.0, 20.0)
    assert found.missing == missing
    assert found.state is (State.BEFORE_MAP if commit is None else State.PENDING)


def test_an_offset_of_somebody_else_before_the_map_may_have_passed_over_records() -> None:
    decision = decide(BEFORE_MAP, 107, None, FREE)
    assert cost(decision, 107, Log(0, 6007), None, 20.0) == Cost(State.OWNED, 4900, 107)


MOVING = Decision(State.SYNCED, 50, 3, 4, 50)  # belongs at 50, or up to 3 records later
IN_STEP = MOVING._replace(commit=None)


@pytest.mark.parametrize(
    ("decision", "target", "age", "expected"),
    [
        pytest.param(IN_STEP, 50, 900.0, Cost(State.SYNCED, 3, 4), id="in step, and not moving"),
        pytest.param(MOVING, 40, 3.0, Cost(State.SYNCED, 13, 4), id="moving, and written a moment ago"),
        pytest.param(MOVING, 40, 30.0, Cost(State.PENDING, 13, 4), id="nobody writes any more"),
        pytest.param(MOVING, 40, None, Cost(State.PENDING, 13, 4), id="never written"),
        pytest.param(MOVING, 60, 3.0, Cost(State.PENDING, 0, 14), id="rewound on the source"),
        pytest.param(MOVING, 2, 3.0, Cost(State.SYNCED, 43, 4), id="before the log's start"),
        pytest.param(MOVING, None, 3.0, Cost(State.PENDING), id="no offset: auto.offset.reset decides"),
        pytest.param(Decision(State.ACTIVE, None, 3, 4, 50), None, None, Cost(State.ACTIVE), id="active without one"),
        pytest.param(Decision(State.OWNED, None, 3, 4, 50), 20, None, Cost(State.OWNED, 33, 4), id="somebody else's"),
        pytest.param(Decision(State.AHEAD, 50, 0, 0, 50), 52, 3.0, Cost(State.AHEAD, 0, 0), id="the stored map is old"),
        pytest.param(
            Decision(State.TARGET_SHORT, 50, 0, 9, 50),
            40,
            None,
            Cost(State.TARGET_SHORT, 10, 9),
            id="the target lost data",
        ),
        pytest.param(
            Decision(State.TARGET_SHORT, 50, 0, 9, 50),
            59,
            3.0,
            Cost(State.TARGET_SHORT, 0, 9),
            id="the target lost data before the group's place",
        ),
        pytest.param(Decision(State.UNMAPPED), None, None, Cost(State.UNMAPPED), id="no map yet"),
    ],
)
def test_what_a_failover_would_cost_now(
    decision: Decision, target: int | None, age: float | None, expected: Cost
) -> None:
    assert cost(decision, target, LOG, age, 20.0) == expected
