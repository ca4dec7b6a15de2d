"""Up to which offsets both sides are compared."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from mirrormaker.errors import SettingError
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.verification.plan import TARGET, CommittedOffset, CompareLimits, PartitionRange, Window


def position(offset: int, cut: int, ahead: int = 0, producer: int = 7) -> CommittedOffset:
    where = Cut(0, 0, cut, ahead=ahead)
    return CommittedOffset(offset, Position("t", 0, offset, -1, "", Identity(producer, 0), "c", "", 1, (where,)))


def limited(end: int, committed: CommittedOffset | None, target_end: int) -> tuple[PartitionRange, PartitionRange]:
    limits = CompareLimits()
    source = limits.limit_source(PartitionRange(0, "t", 0, 0, 0, end, end), [0], committed)
    return source, limits.limit_target(PartitionRange(TARGET, "t", 0, 0, 0, target_end, target_end))


def test_a_mirror_that_runs_is_compared_up_to_its_position() -> None:
    source, target = limited(100, position(60, 65), 80)
    assert (source.stop, target.stop, source.open_end, target.open_end) == (60, 65, False, False)


def test_of_a_mirror_that_has_caught_up_all_is_compared() -> None:
    source, target = limited(100, position(100, 105), 107)
    assert (source.stop, target.stop, source.open_end, target.open_end) == (100, 107, False, False)


def test_an_open_transaction_on_the_target_hides_the_last_records() -> None:
    _, target = limited(100, position(60, 65), 50)
    assert (target.stop, target.open_end) == (50, True)
    _, target = limited(100, position(100, 105), 50)  # of a mirror that has caught up as well
    assert (target.stop, target.open_end) == (50, True)


def test_a_target_that_knows_no_producers_has_an_open_end() -> None:
    source, target = limited(100, position(60, 65, producer=-1), 80)
    assert (source.stop, target.stop, source.open_end, target.open_end) == (60, 80, False, True)


def test_without_a_ledger_the_ends_are_open() -> None:
    source, target = limited(100, None, 80)
    assert (source.stop, target.stop, source.open_end, target.open_end) == (100, 80, True, True)
    source, target = limited(100, CommittedOffset(60, None), 80)  # committed by another mirror
    assert (source.stop, target.stop, source.open_end, target.open_end) == (60, 80, False, True)


# -- a window of timestamps


def test_a_window_takes_its_first_millisecond_and_not_its_last() -> None:
    window = Window.of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=timezone.utc), 3000)
    assert window.contains(np.array([1999, 2000, 2999, 3000])).tolist() == [False, True, True, False]
    assert Window.of(None, 3000).contains(np.array([-1, 2999, 3000])).tolist() == [True, True, False]
    assert Window.of(None, None).is_everything


def test_a_window_without_time_in_it_is_refused() -> None:
    with pytest.raises(SettingError, match="since=2000 and until=2000: there is no time between them"):
        Window.of(2000, 2000)
