"""How long the driver's event loop stood still, and how much of that its own work took."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator

import pytest

from mirrormaker.driver.loop_watch import CoreWait, LoopWatch


def test_work_that_holds_up_the_loop_counts_as_both() -> None:
    async def play(watch: LoopWatch) -> None:
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)
        await asyncio.sleep(0.1)
        task.cancel()

    watch = LoopWatch()
    asyncio.run(play(watch))
    assert watch.longest >= 0.2
    assert watch.busiest >= 0.2 - (watch.longest - 0.2)


def test_a_loop_that_had_no_core_was_not_busy() -> None:
    watch = LoopWatch()
    watch.note(0.5, 0.45)
    watch.note(0.08, 0.0)
    assert (watch.longest, watch.busiest) == (0.5, 0.08)


def _burn(until: float) -> None:
    while time.monotonic() < until:
        pass


@pytest.fixture
def one_core() -> Iterator[None]:
    """Keep this thread, and what it starts, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


def test_the_kernel_tells_how_long_a_thread_waits_for_a_core(one_core: None) -> None:
    wait = CoreWait()
    before, until = wait.seconds(), time.monotonic() + 0.5
    other = multiprocessing.get_context("fork").Process(target=_burn, args=(until,))
    other.start()
    _burn(until)
    other.join()
    waited = wait.seconds() - before
    wait.close()
    assert waited > 0.1, "two programs have shared one core"


def test_each_thread_counts_for_itself(one_core: None) -> None:
    waits: list[float] = []

    def sleep() -> None:
        wait = CoreWait()
        before = wait.seconds()
        time.sleep(0.3)
        waits.append(wait.seconds() - before)
        wait.close()

    thread = threading.Thread(target=sleep)
    thread.start()
    _burn(time.monotonic() + 0.2)
    thread.join()
    assert waits[0] < 0.1


def test_without_that_figure_the_loop_counts_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormaker.driver.loop_watch._SCHEDSTAT", "/proc/nothing")
    wait = CoreWait()
    assert wait.seconds() == 0.0
    wait.close()
