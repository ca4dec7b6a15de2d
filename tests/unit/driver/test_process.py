"""What a process does when a source fails, what it keeps of flows that failed, and how it ends. The flows are scripted."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.console.log_display import LogDisplay
from mirrormaker.driver.flow import Flow
from mirrormaker.driver.process import MirrorDriver
from mirrormaker.errors import BrokerError, ClusterError, StoreError
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import SourceBack, SourceFailed
from mirrormaker.model.topic_filter import Filter
from mirrormaker.status.figures import Totals


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


class Ending(LogDisplay):
    """Keeps the lines of the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def report(self, event: Event) -> None:
        self.lines.append(event.text)


def ended_flow(*, reached: bool, topics: tuple[str, ...] = ("orders",)) -> Any:
    return SimpleNamespace(
        ready=SimpleNamespace(is_set=lambda: reached),
        scheduler=[],
        undelivered=SimpleNamespace(count=0),
        renumbering=SimpleNamespace(lost=()),
        membership=SimpleNamespace(topics=topics),
        topic_sync=SimpleNamespace(troubles={}),
        goals=SimpleNamespace(were_reached=reached),
        source=SimpleNamespace(endpoint="old:9092"),
    )


def conclude(waits: bool, *flows: Any, lag: int = 0, troubles: dict[int, str] | None = None) -> tuple[int, Ending]:
    driver: Any = object.__new__(MirrorDriver)
    driver.flows, driver._earlier, driver._troubles = list(flows), {}, troubles or {}
    driver.options, driver.display = SimpleNamespace(exit_when_caught_up=waits), Ending()
    driver.filter = Filter.of("orders", None)
    driver.totals = lambda: Totals(0, 0, lag, 4, 0, 4, 0, behind=4 if lag else 0)
    return driver._conclude(None), driver.display


@pytest.mark.parametrize(
    ("waits", "reached", "code", "complaints"),
    [
        (False, False, 0, []),
        (True, True, 0, []),
        (True, False, 1, ["stopped before the mirror had caught up with old:9092"]),
    ],
)
def test_exit_when_caught_up_succeeds_only_if_every_goal_was_reached(
    waits: bool, reached: bool, code: int, complaints: list[str]
) -> None:
    found, display = conclude(waits, ended_flow(reached=reached), lag=400)
    assert (found, display.complaints) == (code, complaints)
    assert display.lines[0].startswith("mirrored 0 records, 0.0 MB in ")
    assert display.lines[0].endswith("; lag 400, missing in 4 partitions")


def test_one_source_of_several_that_was_not_reached_is_enough_to_fail() -> None:
    assert conclude(True, ended_flow(reached=True), ended_flow(reached=False))[0] == 1
    found, display = conclude(True, ended_flow(reached=True), ended_flow(reached=False), troubles={1: "away"})
    assert (found, display.complaints) == (1, ["away"]), "the trouble says why"


def test_a_signal_before_topics_are_known_is_not_taken_for_a_wrong_pattern() -> None:
    _, display = conclude(True, ended_flow(reached=False, topics=()))
    assert display.complaints == ["stopped before the mirror had caught up with old:9092"]
    found, display = conclude(True, ended_flow(reached=True, topics=()))
    assert (found, display.complaints) == (1, ["no topic matches orders"])


class PlayedFlow:
    """A flow that is ready or not, and then ends with an error, or runs until it is stopped."""

    def __init__(self, *, ready: bool, error: Exception | None, number: int = 0) -> None:
        self.number, self.was_started, self.ready = number, False, asyncio.Event()
        self.settings = SimpleNamespace(endpoint="source:9092", group_id="g")
        self.source = SimpleNamespace(endpoint="source:9092")
        self.scheduler = SimpleNamespace(counts=None)
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


def process_of(*flows: Any) -> tuple[Any, list[Any]]:
    """Return a process with these sources, as far as it keeps them, and the list of its events."""
    process: Any = MirrorDriver.__new__(MirrorDriver)
    events: list[Any] = []
    process.sources, process.flows = [flow.settings for flow in flows], list(flows)
    process.display = SimpleNamespace(report=events.append)
    process._troubles, process._earlier, process._stopping = {}, {}, asyncio.Event()
    return process, events


class LastingFlow(PlayedFlow):
    """A flow that runs until it is stopped."""

    def __init__(self, number: int) -> None:
        super().__init__(ready=True, error=None, number=number)
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        self.was_started = True
        self.ready.set()
        await self.stopped.wait()


def test_a_bug_in_one_source_is_said_once_and_tried_again_while_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mirrormaker.driver.process._RETRY_AFTER", 0.001)
    monkeypatch.setattr("mirrormaker.driver.process.Earlier.plus", lambda self, flow: self)

    async def play() -> list[Any]:
        other, back = LastingFlow(1), LastingFlow(0)
        played: list[Any] = [PlayedFlow(ready=False, error=ValueError("a bug")) for _ in range(3)]
        process, events = process_of(played.pop(0), other)
        played.append(back)
        process._new_flow = lambda number: played.pop(0)
        runs = [asyncio.ensure_future(process._keep(number, None)) for number in range(2)]
        async with asyncio.timeout(10):
            await back.ready.wait()
        await asyncio.sleep(0)
        assert other.was_started and not any(run.done() for run in runs)
        other.stopped.set()
        back.stopped.set()
        await asyncio.gather(*runs)
        return events

    failed, there_again = asyncio.run(play())
    assert failed == SourceFailed("source:9092: unexpected ValueError: a bug", has_others=True)
    assert isinstance(there_again, SourceBack)
    assert capsys.readouterr().err.count("ValueError: a bug") == 3


@pytest.mark.parametrize("error", [ValueError("a bug"), BrokerError(-1, "Metadata"), ConnectionResetError("gone")])
def test_a_source_that_cannot_be_reached_again_for_any_reason_is_tried_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else would end the process, and with it the other sources."""
    monkeypatch.setattr("mirrormaker.driver.process._RETRY_AFTER", 0.001)
    monkeypatch.setattr("mirrormaker.driver.process.Earlier.plus", lambda self, flow: self)
    failures = [error, error]

    async def connect() -> None:
        if failures:
            raise failures.pop(0)

    async def play() -> list[Any]:
        process, events = process_of(PlayedFlow(ready=True, error=ClusterError("away")))
        last = PlayedFlow(ready=True, error=None)
        monkeypatch.setattr(last, "connect", connect)
        process._new_flow = lambda number: last
        await process._keep(0, None)
        return events

    first, second, back = asyncio.run(play())
    assert first == SourceFailed("away")
    assert second.reason.startswith("source:9092: ") and str(error) in second.reason
    assert isinstance(back, SourceBack) and not failures


def test_a_helper_that_dies_is_said_with_its_type() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def play() -> list[Any]:
        process, events = process_of()
        await asyncio.wait([process._beside("the display of the progress", fail())])
        await asyncio.sleep(0)
        return events

    (event,) = asyncio.run(play())
    assert event.text == "the display of the progress has ended: unexpected ValueError: a bug; records flow on"


def test_a_source_that_fails_for_a_reason_of_the_whole_process_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrormaker.driver.process._RETRY_AFTER", 0.001)
    monkeypatch.setattr("mirrormaker.driver.process.Earlier.plus", lambda self, flow: self)

    async def connect() -> None:
        raise StoreError("the key store is gone")

    async def play() -> None:
        process, _ = process_of(PlayedFlow(ready=True, error=ClusterError("away")))
        last = PlayedFlow(ready=True, error=None)
        monkeypatch.setattr(last, "connect", connect)
        process._new_flow = lambda number: last
        await process._keep(0, None)

    with pytest.raises(StoreError, match="the key store is gone"):
        asyncio.run(play())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_task_of_a_flow_that_dies_fails_the_flow(is_cancelled: bool) -> None:
    """Also if something was cancelled that the task has waited for: it would be over without an error."""

    async def keep(answer: asyncio.Future[None]) -> None:
        await answer

    async def play() -> None:
        flow: Any = Flow.__new__(Flow)
        loop = asyncio.get_running_loop()
        flow._tasks, flow._stop, flow._failure = set(), asyncio.Event(), loop.create_future()
        answer: asyncio.Future[None] = loop.create_future()
        flow._spawn(keep(answer))
        await asyncio.sleep(0)
        answer.cancel() if is_cancelled else answer.set_exception(ValueError("a bug"))
        async with asyncio.timeout(5):
            await flow._unless_ended(asyncio.Event().wait())

    with pytest.raises(
        RuntimeError if is_cancelled else ValueError, match="was cancelled" if is_cancelled else "a bug"
    ):
        asyncio.run(play())
