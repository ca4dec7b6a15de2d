"""Which stream mirrors which partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.model.placement import moves, place
from mirrormaker.wire.protocol.codec import TopicPartition

keys = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
loads = st.dictionaries(keys, st.integers(0, 1000).map(float), max_size=20)
streams = st.integers(1, 5)


def totals(plan: dict[TopicPartition, int], count: int, loads: dict[TopicPartition, float]) -> list[float]:
    return [sum(loads.get(key, 0.0) for key, stream in plan.items() if stream == s) for s in range(count)]


# -- giving out


@given(st.sets(keys), streams, loads)
def test_every_partition_has_one_stream(
    partitions: set[TopicPartition], count: int, loads: dict[TopicPartition, float]
) -> None:
    plan = place(partitions, range(count), loads, {})
    assert set(plan) == partitions
    assert all(0 <= stream < count for stream in plan.values())


@given(st.data(), st.sets(keys), st.sets(keys), streams, loads)
def test_what_has_a_stream_stays_there(
    data: st.DataObject,
    old: set[TopicPartition],
    new: set[TopicPartition],
    count: int,
    loads: dict[TopicPartition, float],
) -> None:
    now = {key: data.draw(st.integers(0, count - 1)) for key in old}
    plan = place(old | new, range(count), loads, now)
    assert {key: plan[key] for key in old} == now
    assert set(plan) == old | new


@given(st.sets(keys), streams)
def test_without_loads_the_numbers_are_even(partitions: set[TopicPartition], count: int) -> None:
    plan = place(partitions, range(count), {}, {})
    numbers = [list(plan.values()).count(s) for s in range(count)]
    assert max(numbers) - min(numbers) <= 1


@given(st.sets(keys, min_size=1), streams, loads)
def test_no_stream_gets_more_than_its_share_and_one_partition(
    partitions: set[TopicPartition], count: int, loads: dict[TopicPartition, float]
) -> None:
    """The heaviest first, each to whoever has least: nobody ends above the mean by more than one partition's load."""
    plan = place(partitions, range(count), loads, {})
    weights = [loads.get(key, 0.0) for key in partitions]
    assert max(totals(plan, count, loads)) <= sum(weights) / count + max(weights)


def test_heavy_partitions_are_kept_apart() -> None:
    plan = place([("a", n) for n in range(4)], range(2), {("a", 0): 100.0, ("a", 1): 100.0}, {})
    assert plan["a", 0] != plan["a", 1]


def test_the_same_question_has_the_same_answer() -> None:
    partitions = {("a", n) for n in range(10)}
    assert place(partitions, range(3), {}, {}) == place(sorted(partitions, reverse=True), range(3), {}, {})


# -- evening out


@st.composite
def plans(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], int, dict[TopicPartition, float]]:
    count = draw(streams)
    plan = {key: draw(st.integers(0, count - 1)) for key in draw(st.sets(keys))}
    return plan, count, {key: float(draw(st.integers(0, 1000))) for key in plan}


@given(plans())
def test_a_move_narrows_the_gap_between_the_two_streams(
    given: tuple[dict[TopicPartition, int], int, dict[TopicPartition, float]],
) -> None:
    plan, count, loads = given
    before = totals(plan, count, loads)
    for key, stream in moves(plan, range(count), loads).items():
        origin = plan[key]
        after = totals({**plan, key: stream}, count, loads)
        assert before[origin] == max(before)
        assert before[stream] == min(before)
        assert abs(after[origin] - after[stream]) < before[origin] - before[stream]
        assert max(after) <= max(before)
        assert min(after) >= min(before)


@given(plans())
def test_moving_comes_to_an_end(given: tuple[dict[TopicPartition, int], int, dict[TopicPartition, float]]) -> None:
    plan, count, loads = given
    for _ in range(1000):
        step = moves(plan, range(count), loads)
        if not step:
            return
        assert len(step) == 1
        plan = {**plan, **step}
    raise AssertionError("partitions are moved about forever")


def test_an_even_load_is_left_alone() -> None:
    assert moves({("a", 0): 0, ("a", 1): 1}, range(2), {("a", 0): 100.0, ("a", 1): 90.0}) == {}


def test_one_heavy_partition_is_not_passed_around() -> None:
    """Nothing is gained by moving the only thing that a stream has to do."""
    assert moves({("a", 0): 0, ("a", 1): 1}, range(2), {("a", 0): 100.0}) == {}


def test_the_partition_that_evens_out_best_is_moved() -> None:
    plan = {("a", n): 0 for n in range(3)}
    assert moves(plan, range(2), {("a", 0): 90.0, ("a", 1): 50.0, ("a", 2): 5.0}) == {("a", 0): 1}


def test_nothing_is_moved_while_nothing_flows() -> None:
    assert moves({("a", 0): 0, ("a", 1): 0}, range(2), {}) == {}


def test_a_single_stream_keeps_everything() -> None:
    assert moves({("a", 0): 0}, range(1), {("a", 0): 5.0}) == {}
    assert moves({}, range(3), {}) == {}
