"""The numbers in a topic that was created again: doubled and skipped ones are found."""

from __future__ import annotations

from faults.ascending import count_after_new_source, count_on_new_target, problems_after_truncation

from tests.support.counting import Count


def test_a_new_target_may_begin_with_the_first_number_after_the_deletion() -> None:
    assert count_on_new_target([1, 2, 3, 4, 5, 6], [5, 6], acknowledged=4) == Count(2)


def test_a_new_target_may_begin_earlier() -> None:
    assert count_on_new_target([1, 2, 3, 4, 5, 6], [3, 4, 5, 6], acknowledged=4) == Count(4)


def test_numbers_that_the_new_target_skips_at_its_begin_are_lost() -> None:
    assert count_on_new_target([1, 2, 3, 4, 5, 6], [6], acknowledged=3) == Count(3, lost=2)


def test_a_number_that_the_source_does_not_hold_may_be_missing() -> None:
    assert count_on_new_target([1, 2, 5, 6], [5, 6], acknowledged=2) == Count(2)


def test_a_number_that_comes_twice_on_the_new_target_is_duplicated() -> None:
    assert count_on_new_target([1, 2, 3, 4], [3, 3, 4], acknowledged=2) == Count(2, duplicated=1)


def test_an_empty_target_has_lost_everything_after_the_deletion() -> None:
    assert count_on_new_target([1, 2, 3], [], acknowledged=1) == Count(2, lost=2)


def test_the_end_of_the_old_source_may_be_missing() -> None:
    assert count_after_new_source([1, 2], range(1, 9), [9, 10], [1, 2, 3, 4, 9, 10]) == Count(4)


def test_a_gap_within_the_old_source_is_lost() -> None:
    assert count_after_new_source([1, 2], range(1, 9), [9, 10], [1, 2, 5, 9, 10]) == Count(5, lost=2)


def test_a_number_that_the_old_source_did_not_acknowledge_may_be_missing() -> None:
    assert count_after_new_source([1, 2], [1, 2, 3, 5], [9, 10], [1, 2, 3, 5, 9, 10]) == Count(4)


def test_the_old_log_sent_again_is_duplicated() -> None:
    again = count_after_new_source([1, 2], range(1, 4), [9, 10], [1, 2, 1, 2, 3, 9, 10])
    assert again == Count(3, duplicated=2)


def test_the_new_source_sent_twice_is_duplicated_and_out_of_order() -> None:
    assert count_after_new_source([1], range(2), [9, 10], [1, 9, 10, 9, 10]) == Count(2, duplicated=2, out_of_order=1)


def test_a_target_that_has_lost_what_it_held_is_not_exact() -> None:
    assert not count_after_new_source([1, 2, 3], range(4), [9, 10], [1, 3, 9, 10]).is_exact


def test_a_truncated_target_may_lack_one_piece_and_repeat_its_tail() -> None:
    assert problems_after_truncation(range(1, 9), [1, 2, 3, 6, 7, 8]) == []
    assert problems_after_truncation(range(1, 9), [1, 2, 3, 2, 3, 6, 7, 8]) == []
    assert problems_after_truncation(range(1, 9), [1, 2, 2, 3, 4, 5, 6, 7, 8, 8]) == []


def test_a_truncated_target_may_not_lack_two_pieces_or_its_end() -> None:
    assert problems_after_truncation(range(1, 9), [1, 2, 3, 5, 6, 8]) == ["what is missing is more than one piece"]
    assert problems_after_truncation(range(1, 9), [1, 2, 3, 4, 5, 6]) == ["the end is missing"]


def test_a_truncated_target_may_not_have_records_out_of_order() -> None:
    late = problems_after_truncation(range(1, 7), [1, 2, 4, 3, 5, 6])
    assert late == ["record 3 and those behind it are out of order"]
    half = problems_after_truncation(range(1, 7), [1, 2, 3, 4, 2, 4, 5, 6])
    assert half == ["record 2 and those behind it are out of order"]


def test_a_truncated_target_may_not_have_records_of_its_own() -> None:
    assert problems_after_truncation(range(1, 4), [1, 2, 3, 9]) == ["1 records are not on the source"]
