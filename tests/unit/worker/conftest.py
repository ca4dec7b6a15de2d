"""The stage on which cursors are tested."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.worker_stage import LogStage, Play, Stage


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a test's scene on a stage, within half a minute: a busy machine takes seconds for the first batch."""

    def run(scene: Callable[[Stage], Awaitable[None]]) -> None:
        async def whole() -> None:
            stage = Stage(monkeypatch)
            try:
                await asyncio.wait_for(scene(stage), 30)
            finally:
                stage.run.cancel()
                await asyncio.gather(stage.run, return_exceptions=True)

        asyncio.run(whole())

    return run


@pytest.fixture
def play_with_log(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[LogStage], Awaitable[None]]], None]:
    """Run a test's scene on a stage whose target has a log; give up after 30 s."""

    def run(scene: Callable[[LogStage], Awaitable[None]]) -> None:
        async def whole() -> None:
            stage = LogStage(monkeypatch)
            try:
                await asyncio.wait_for(scene(stage), 30)
            finally:
                tasks = [stage.run, *stage.stream._runs]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(whole())

    return run
