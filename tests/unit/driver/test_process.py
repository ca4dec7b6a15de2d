"""What a process keeps of flows that failed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

from mirrormaker.driver.process import MirrorDriver


class FailedFlow:
    """A flow that was started, has mirrored something, and has failed."""

    was_started = True

    def __init__(self) -> None:
        self.undelivered = SimpleNamespace(count=1)
        self.renumbering = SimpleNamespace(lost=())

    async def connect(self) -> None:
        return None


def test_of_flows_that_failed_only_the_sums_are_kept() -> None:
    driver: Any = object.__new__(MirrorDriver)
    driver.flows, driver._earlier, driver._troubles = [FailedFlow()], {}, {}
    driver._new_flow = lambda number: FailedFlow()
    flows: weakref.WeakSet[Any] = weakref.WeakSet(driver.flows)

    async def play() -> None:
        for _ in range(5):
            await driver._reconnect(0)
            flows.add(driver.flows[0])

    asyncio.run(play())
    gc.collect()
    assert list(flows) == driver.flows
    earlier = driver._earlier[0]
    assert earlier.undelivered == 5
