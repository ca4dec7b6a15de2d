"""Ascending numbers in a log that was created again, or cut off at its end: what is lost, doubled or out of order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.support.counting import Count


def count_on_new_target(source: Sequence[int], target: Sequence[int], acknowledged: int) -> Count:
    """Compare a target's new log with the source. It may begin later than the source, because the old log is gone.

    `acknowledged` is the last number that the source had acknowledged when the old log was gone: those behind it belong
    into the new log, and all behind the first one that is there.
    """
    begin = min([*target[:1], acknowledged + 1])
    return _compare([number for number in source if number >= begin], target)


def count_after_new_source(
    before: Sequence[int], acknowledged: Iterable[int], source: Sequence[int], target: Sequence[int]
) -> Count:
    """Compare the target with the source's new log. `before` is what the target held before the old log was deleted.

    The end of the old log may be missing on the target, but no acknowledged number in the middle of it.
    """
    last = before[-1] if before else 0
    rest = target[len(before) :] if list(target[: len(before)]) == list(before) else target
    old = {number for number in rest if last < number < source[0]}
    old |= {number for number in acknowledged if last < number < max(old, default=last)}
    return _compare([*sorted(old), *source], rest)


def problems_after_truncation(source: Sequence[int], target: Sequence[int]) -> list[str]:
    """Return what at-least-once forbids in a target's log that lost its end once.

    One piece of the source may be missing, with everything before it and behind it there. A step back begins a tail that comes
    again: all that was there from that number on, in order.
    """
    problems, found = [], set(target)
    if strange := len(found - set(source)):
        problems.append(f"{strange} records are not on the source")
    missing = [place for place, number in enumerate(source) if number not in found]
    if missing and missing[-1] - missing[0] >= len(missing):
        problems.append("what is missing is more than one piece")
    if missing and missing[-1] == len(source) - 1:
        problems.append("the end is missing")
    seen: set[int] = set()
    for run in _ascending_runs(target):
        largest = max(seen, default=-1)
        again = [number for number in run if number <= largest]
        if again and again != sorted(number for number in seen if number >= again[0]):
            problems.append(f"record {again[0]} and those behind it are out of order")
        seen |= set(run)
    return problems


def _ascending_runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if not runs or number <= runs[-1][-1]:
            runs.append([])
        runs[-1].append(number)
    return runs


def _compare(wanted: Sequence[int], target: Sequence[int]) -> Count:
    """Compare a log with the numbers that it should hold, which ascend."""
    found = set(target)
    return Count(
        records=len(wanted),
        lost=len(set(wanted) - found),
        duplicated=len(target) - len(found & set(wanted)),
        out_of_order=sum(later < earlier for earlier, later in pairwise(target)),
    )
