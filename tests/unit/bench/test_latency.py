"""When records were created, read from the batches in a broker's log."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest
from bench.latency import _times, percentile
from bench.steady_producer import _several, _single
from bench.workloads import W7, L

from mirrormaker.wire.records.batch import Batches, split


@pytest.mark.parametrize(("make", "count"), [(_single(L), 1), (_several(W7), W7.batch)], ids=["single", "several"])
def test_each_record_tells_when_it_was_created(make: Callable[[], bytes], count: int) -> None:
    began = time.time_ns()
    second = struct.pack(">q", count) + make()[8:]  # with the base offset that a broker would give it
    (run,) = split(memoryview(make() + second))
    assert isinstance(run, Batches)
    found = list(_times(run))
    assert len(found) == 2 * count
    for created, appended in found:
        assert began <= created <= time.time_ns()
        assert appended == pytest.approx(created / 1e6, abs=1000)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 1001)]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999)] == [500, 990, 999]
