"""Counting and timing of the fault cases: a mistake here would hide mistakes elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.counting import Count, Rows, count_rows, new_rows, steps_back
from tests.support.load import PARTITIONS
from tests.support.offset_watch import Sample, longest_pause


def rows(*numbers: int) -> Rows:
    """Return the rows of records with these numbers."""
    rows = new_rows(len(numbers))
    rows["number"], rows["timestamp"] = numbers, np.array(numbers) + 1000
    rows["key"] = [b"k%02d" % (number % 97) for number in numbers]
    return rows


@pytest.mark.parametrize(
    ("target", "lost", "duplicated", "out_of_order"),
    [
        ((1, 2, 3, 4), 0, 0, 0),
        ((1, 2, 4), 1, 0, 0),
        ((), 4, 0, 0),
        ((1, 2, 2, 3, 4), 0, 1, 0),
        ((1, 2, 3, 1, 2, 3, 4), 0, 3, 0),
        ((1, 3, 2, 4), 0, 0, 1),
        ((2, 2, 1, 4), 1, 1, 1),
        ((1, 2, 3, 4, 300), 0, 1, 0),
    ],
)
def test_records_are_counted(target: tuple[int, ...], lost: int, duplicated: int, out_of_order: int) -> None:
    assert count_rows(rows(1, 2, 3, 4), rows(*target)) == Count(4, lost, duplicated, out_of_order)


def test_a_record_with_another_time_is_not_the_same() -> None:
    changed = rows(1, 2, 3, 4)
    changed["timestamp"][1] += 1
    found = count_rows(rows(1, 2, 3, 4), changed)
    assert (found.lost, found.duplicated) == (1, 1)


def samples(*pairs: tuple[int, int]) -> list[Sample]:
    """Return one sample per second with the end offsets of partition 0 on both clusters; the others are always equal."""
    return [
        Sample(float(n), [a, *[5] * (PARTITIONS - 1)], [b, *[5] * (PARTITIONS - 1)]) for n, (a, b) in enumerate(pairs)
    ]


def test_a_pause_lasts_while_the_source_has_more() -> None:
    assert longest_pause(samples((1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 6))) == 3
    assert longest_pause(samples((2, 2), (2, 2), (2, 2), (2, 2))) == 0


def test_a_partition_whose_target_does_not_answer_stands_still() -> None:
    assert longest_pause(samples((1, 1), (2, -1), (3, -1), (4, 4))) == 2


def test_a_source_that_does_not_answer_does_not_count_as_a_pause() -> None:
    assert longest_pause(samples((2, 1), (-1, 1), (-1, 1), (3, 1), (4, 4))) == 1


def test_records_of_several_source_partitions_may_mix_and_those_of_one_may_not() -> None:
    """A topic that got a second partition is spread by key as long as the target refuses another one."""
    origins = [np.array([0, 1, 4, 5]), np.array([2, 3, 6])]
    assert steps_back([np.array([0, 2, 1, 3, 6, 4, 5])], origins) == 0
    assert steps_back([np.array([0, 3, 1, 2])], origins) == 1
    assert steps_back([np.array([0, 1]), np.array([5, 4])], origins) == 1
    assert steps_back([np.array([9, 8])], [np.array([], int)]) == 1, "the source has deleted both"
