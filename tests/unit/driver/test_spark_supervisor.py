"""Spark's session is replaced when it was stopped or its JVM has died, and only then."""

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

    packs_libraries, restarts = False, True

    def __init__(self) -> None:
        self.is_alive, self.stopped = True, False
        self.jvms = self.sessions = 0

    def start_jvm(self) -> str:
        if self.jvms and not self.restarts:
            raise SparkGone("it has ended")
        self.jvms += 1
        self.is_alive = True
        return f"JVM {self.jvms}"

    def start_session(self) -> str:
        self.sessions += 1
        self.stopped = False
        return f"session {self.sessions}"

    def is_stopped(self) -> bool:
        return self.stopped


def test_a_session_that_was_stopped_or_whose_jvm_has_died_is_replaced(monkeypatch: Any) -> None:
    monkeypatch.setattr(spark_supervisor, "java_matcher", lambda jvm, pattern: None)
    fake = FakeEngine()
    engine: Any = fake
    events: list[Event] = []

    async def play() -> None:
        supervisor = SparkSupervisor(engine, Path("spark.log"), Filter.of("a", None), events.append)
        session: Any = supervisor.session
        assert [await session(), await session()] == ["session 1", "session 1"]
        fake.stopped = True
        assert [await session(), await session()] == ["session 2", "session 2"]
        assert (fake.jvms, [type(event) for event in events]) == (1, [SessionStopped])
        fake.is_alive = False
        assert await session() == "session 3"
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
        await supervisor.session()
        fake.is_alive = False
        with pytest.raises(SparkGone, match="it has ended"):
            await supervisor.session()

    asyncio.run(play())
    assert events == []
