"""A batch that may have been appended is sent again exactly as it was: that request can be lost like any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mirrormaker.errors import ConnectionLost
from mirrormaker.worker import target_log
from mirrormaker.worker.cursor import Cursor
from tests.support.scripted_target import ScriptedLog
from tests.support.worker_stage import START, US, VERSION, LogStage, batches, settle, until

Play = Callable[[Callable[[LogStage], Awaitable[None]]], None]
TIMED_OUT = 7


class Again:
    """The connection over which a batch is sent again. A test answers the request, or not."""

    def __init__(self) -> None:
        self.versions = {0: (0, VERSION)}
        self.sent = 0
        self.answer: asyncio.Future[memoryview] | None = None

    def request(self, *_: Any) -> asyncio.Future[memoryview]:
        self.sent += 1
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer

    async def answered_within(self, _: float, __: str, answer: asyncio.Future[memoryview]) -> list[memoryview]:
        return [await answer]


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> Again:
    """Send a batch again as soon as the high watermark does not move."""
    monkeypatch.setattr(target_log, "_STUCK_AFTER", 0.0)
    return Again()


async def sent_again(stage: LogStage, again: Again, monkeypatch: pytest.MonkeyPatch) -> Cursor:
    """Let the target append a batch and not say so, and keep it from replicating it, until the batch is sent again."""
    connection = stage.stream.target.connection

    async def connect(node: int, purpose: str = "control") -> Any:
        return again if purpose == "produce-again" else await connection(node, purpose)

    monkeypatch.setattr(stage.stream.target, "connection", connect)
    stage.target_log = ScriptedLog()
    stage.target_log.start = 980
    stage.target_log.append(US, 0, 20)
    cursor = stage.take()
    await until(lambda: cursor.flowing)
    stage.fetched(cursor, batches(10))
    await settle()
    stage.target_log.high_watermark = 1000
    stage.target_log.add(stage.wires[1].waiting[0][0].data)
    stage.wires[1].answer(error=TIMED_OUT)
    await until(lambda: bool(again.sent))
    assert not cursor.zombies_until, "every request so far was answered"
    return cursor


def test_a_lost_request_counts_as_one(play_with_log: Play, again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await sent_again(stage, again, monkeypatch)
        assert again.answer is not None
        again.answer.set_exception(ConnectionLost("gone"))
        stage.target_log.high_watermark = None
        await until(lambda: cursor.flowing)
        assert cursor.zombies_until > time.monotonic() + 8, "the broker may append it within 9 s"
        assert not cursor.is_clean
        assert again.sent == 1

    play_with_log(scene)


def test_a_release_does_not_hide_that_it_is_under_way(
    play_with_log: Play, again: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await sent_again(stage, again, monkeypatch)
        cursor.release()
        await until(cursor.done.done)
        assert cursor.zombies_until > time.monotonic() + 8
        assert cursor.current == START
        assert not cursor.is_clean

    play_with_log(scene)


def test_an_answered_request_is_not_lost(play_with_log: Play, again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await sent_again(stage, again, monkeypatch)
        assert again.answer is not None
        stage.target_log.high_watermark = None
        again.answer.set_result(memoryview(b""))
        await until(lambda: cursor.flowing)
        assert not cursor.zombies_until
        assert cursor.outlets[0].skip == 10

    play_with_log(scene)
