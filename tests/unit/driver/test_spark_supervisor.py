"""Spark's session is replaced when it was stopped or its JVM has died, and only then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mirrormaker.driver import spark_supervisor
from mirrormaker.driver.spark_supervisor import SparkSupervisor
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import JvmDied, SessionStopped
from mirrormaker.model.topic_filter import Filter


class FakeEngine:
    """Counts what is started."""

    packs_libraries = False

    def __init__(self) -> None:
        self.is_alive, self.stopped = True, False
        self.jvms = self.sessions = 0

    def start_jvm(self) -> str:
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
