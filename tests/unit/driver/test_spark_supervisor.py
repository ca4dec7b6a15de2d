"""The SparkContext is replaced when it was stopped or its JVM has died, and only then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.driver import spark_supervisor
from mirrormaker.driver.spark_supervisor import SparkSupervisor
from mirrormaker.errors import SparkGone
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import JvmDied, SessionStopped
from mirrormaker.model.topic_filter import Filter


class FakeEngine:
    """Counts what is started."""

    packs_libraries, restarts, tag = False, True, "ours"

    def __init__(self) -> None:
        self.is_alive, self.stopped = True, False
        self.jvms = self.contexts = 0

    def start_jvm(self) -> str:
        if self.jvms and not self.restarts:
            raise SparkGone("it has ended")
        self.jvms += 1
        self.is_alive = True
        return f"JVM {self.jvms}"

    def start_context(self) -> int:
        self.contexts += 1
        self.stopped = False
        return self.contexts

    def is_stopped(self) -> bool:
        return self.stopped


def test_a_context_that_was_stopped_or_whose_jvm_has_died_is_replaced(monkeypatch: Any) -> None:
    monkeypatch.setattr(spark_supervisor, "java_matcher", lambda jvm, pattern: None)
    fake = FakeEngine()
    engine: Any = fake
    events: list[Event] = []

    async def play() -> None:
        supervisor = SparkSupervisor(engine, Path("spark.log"), Filter.of("a", None), events.append)
        running: Any = supervisor.running
        assert [await running(), await running()] == [(1, "ours"), (1, "ours")]
        fake.stopped = True
        assert [await running(), await running()] == [(2, "ours"), (2, "ours")]
        assert (fake.jvms, [type(event) for event in events]) == (1, [SessionStopped])
        fake.is_alive = False
        assert await running() == (3, "ours")
        assert (fake.jvms, [type(event) for event in events]) == (2, [SessionStopped, JvmDied])

    asyncio.run(play())


def test_a_jvm_that_belongs_to_somebody_else_is_not_replaced(monkeypatch: Any) -> None:
    monkeypatch.setattr(spark_supervisor, "java_matcher", lambda jvm, pattern: None)
    fake = FakeEngine()
    fake.restarts = False
    engine: Any = fake
    events: list[Event] = []

    async def play() -> None:
        supervisor = SparkSupervisor(engine, Path("spark.log"), Filter.of("a", None), events.append)
        await supervisor.running()
        fake.is_alive = False
        with pytest.raises(SparkGone, match="it has ended"):
            await supervisor.running()

    asyncio.run(play())
    assert events == []
