"""What a process does when a source fails, and what it keeps of flows that failed. The flows are scripted."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver.process import MirrorDriver
from mirrormaker.errors import ClusterError
from mirrormaker.events.process_events import SourceBack, SourceFailed


class FailedFlow:
    """A flow that was started, has mirrored something, and has failed."""

    was_started = True

    def __init__(self) -> None:
        self.records_and_bytes = 10, 1000
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
    assert (earlier.records, earlier.bytes, earlier.undelivered) == (50, 5000, 5)


class PlayedFlow:
    """A flow that is ready or not, and then ends with an error, or runs until it is stopped."""

    def __init__(self, *, ready: bool, error: Exception | None) -> None:
        self.number, self.was_started, self.ready = 0, False, asyncio.Event()
        self.settings = SimpleNamespace(endpoint="source:9092", group_id="g")
        self.source = SimpleNamespace(endpoint="source:9092")
        self.records_and_bytes, self.scheduler = (0, 0), SimpleNamespace(counts=None)
        self._is_ready, self._error = ready, error

    async def connect(self) -> None:
        """Reach both clusters."""

    async def run(self) -> None:
        self.was_started = True
        if self._is_ready:
            self.ready.set()
        await asyncio.sleep(0.01)
        if self._error is not None:
            raise self._error


def keep(monkeypatch: pytest.MonkeyPatch, *flows: tuple[bool, Exception | None]) -> list[type]:
    """Run the flows of a single source one after the other; return the kinds of events."""
    events: list[Any] = []

    async def run() -> None:
        played = [PlayedFlow(ready=ready, error=error) for ready, error in flows]
        process: Any = MirrorDriver.__new__(MirrorDriver)
        process.sources, process.flows = [played[0].settings], [played.pop(0)]
        process.display = SimpleNamespace(report=events.append)
        process._troubles, process._earlier, process._stopping = {}, {}, asyncio.Event()
        process._new_flow = lambda number: played.pop(0)
        await process._keep(0, None)
        assert not played

    monkeypatch.setattr("mirrormaker.driver.process._RETRY_AFTER", 0.001)
    monkeypatch.setattr("mirrormaker.driver.process.Earlier.plus", lambda self, flow: self)
    asyncio.run(run())
    return [type(event) for event in events]


def test_a_source_that_has_worked_is_tried_again_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    revoked = ClusterError("no right to Read on group g")
    kinds = keep(monkeypatch, (True, revoked), (False, revoked), (False, revoked), (True, None))
    assert kinds == [SourceFailed, SourceBack]


def test_a_single_source_that_fails_at_the_start_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError):
        keep(monkeypatch, (False, ClusterError("no right to Read on group g")))
