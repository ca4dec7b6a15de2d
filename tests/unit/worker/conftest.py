"""The stage on which cursors are tested."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.worker_stage import Play, Stage


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a test's scene on a stage; give up after 30 s."""

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
