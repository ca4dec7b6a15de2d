"""Ascending numbers in the log of a topic that is deleted and created again: what is lost, doubled or out of order."""

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


def _compare(wanted: Sequence[int], target: Sequence[int]) -> Count:
    """Compare a log with the numbers that it should hold, which ascend."""
    found = set(target)
    return Count(
        records=len(wanted),
        lost=len(set(wanted) - found),
        duplicated=len(target) - len(found & set(wanted)),
        out_of_order=sum(later < earlier for earlier, later in pairwise(target)),
    )
