"""A partition that the driver wants back: whatever its cursor waits for, it ends at once, or within a bound."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_messages import Released, Take
from mirrormaker.errors import ConnectionLost, LogReplaced
from mirrormaker.wire.records.batch import split
from mirrormaker.worker import bring_in
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.interrupts import Released as ReleasedSignal
from mirrormaker.worker.interrupts import ReleaseSignal, Renumber, RestartAt
from tests.support.batches import Record, write_batch
from tests.support.worker_stage import START, Play, Stage, batches, settle, until

AT_ONCE = 1.0  # seconds: a busy machine takes some of them


class Hanging:
    """A request whose answer never comes."""

    def __init__(self) -> None:
        self.is_waiting = self.was_cancelled = False

    async def __call__(self, *_: Any, **__: Any) -> Any:
        self.is_waiting = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.was_cancelled = True


async def let_go(cursor: Cursor) -> float:
    """Release a cursor; return the seconds until it has ended."""
    began = time.monotonic()
    cursor.release()
    await until(cursor.done.done)
    assert cursor.done.result() is None
    return time.monotonic() - began


def test_a_cursor_that_waits_for_metadata_after_an_outage_is_let_go_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        hanging = Hanging()
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        monkeypatch.setattr(stage.stream.metadata, "refresh_target", hanging)
        cursor.interrupt(ConnectionLost("gone"))
        await until(lambda: hanging.is_waiting)
        assert await let_go(cursor) < AT_ONCE
        assert hanging.was_cancelled

    play(scene)


def test_a_cursor_that_waits_for_a_connection_before_it_flows_is_let_go_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        hanging = Hanging()
        monkeypatch.setattr(stage.stream.metadata, "target_takes_zstd", hanging)
        cursor = stage.take()
        await until(lambda: hanging.is_waiting)
        assert await let_go(cursor) < AT_ONCE

    play(scene)


def test_a_cursor_that_waits_for_settings_before_it_gives_a_record_up_is_let_go_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        hanging = Hanging()
        monkeypatch.setattr(stage.stream.metadata, "have_settings_changed", hanging)
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(1))
        await settle()
        stage.wires[1].answer(error=10)
        await until(lambda: hanging.is_waiting)
        assert await let_go(cursor) < AT_ONCE

    play(scene)


@pytest.mark.parametrize(
    "reason", [Renumber(RestartAt.FORGOTTEN, "?"), LogReplaced("t")], ids=lambda reason: type(reason).__name__
)
def test_a_cursor_that_makes_certain_what_the_target_holds_is_let_go_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch, reason: Exception
) -> None:
    async def scene(stage: Stage) -> None:
        hanging = Hanging()
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        monkeypatch.setattr(stage.stream.metadata, "refresh_target", hanging)
        monkeypatch.setattr(cursor_module.Cursor, "make_certain", hanging)
        cursor.interrupt(reason)
        await until(lambda: hanging.is_waiting)
        assert await let_go(cursor) < AT_ONCE

    play(scene)


def test_a_cursor_whose_topics_are_not_known_yet_is_let_go_at_once(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        hanging, stream = Hanging(), stage.stream
        monkeypatch.setattr(stream.metadata, "learn", hanging)
        stream._take(Take(replace(START, topic="unknown"), True, 7))
        stage.run = next(iter(stream._runs))
        await until(lambda: hanging.is_waiting)
        began = time.monotonic()
        stream._release(("unknown", 0))
        await until(lambda: not stream.cursors)
        assert time.monotonic() - began < AT_ONCE
        (ended,) = stream.reporting.report((), 0).ended
        assert ended.outcome == Released()

    play(scene)


def test_a_cursor_whose_answers_do_not_come_is_let_go_in_time_and_not_as_clean(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen broker answers nothing for half a minute; the neighbours on its connection may have more patience."""
    monkeypatch.setattr(bring_in, "ANSWERS_WITHIN", 0.2)

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10, 5))
        await settle()
        assert 0.2 <= await let_go(cursor) < 0.2 + AT_ONCE
        assert not cursor.is_clean, "a successor must read the log"
        assert stage.wires[1].is_open
        assert cursor.current == START
        stage.wires[1].answer(base_offset=1000)
        assert stage.wires[1].is_open, "a late answer is nobody's trouble"
        assert stage.stream.buffer.bytes == 0

    play(scene)


def test_answers_to_old_records_are_awaited_however_long_it_takes(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may have forgotten who wrote them: a successor's copy would be appended too, once the broker goes on."""
    monkeypatch.setattr(bring_in, "ANSWERS_WITHIN", 0.1)

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        old = write_batch([Record(1000, None, b"value")] * 10, base_offset=100).data
        stage.fetched(cursor, list(split(memoryview(bytearray(old)))))
        await settle()
        cursor.release()
        await asyncio.sleep(0.3)
        assert not cursor.done.done()
        stage.wires[1].answer(base_offset=1000)
        await until(cursor.done.done)
        assert cursor.current.offset == 110

    play(scene)


def test_a_cursor_that_is_released_while_it_waits_for_answers_is_let_go_in_time(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_in, "ANSWERS_WITHIN", 0.2)

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10))
        await settle()
        cursor.interrupt(Renumber(RestartAt.SAME_PLACE, "anything"))
        await asyncio.sleep(0.3)
        assert not cursor.done.done(), "without a release the answers are waited for"
        assert await let_go(cursor) < 0.2 + AT_ONCE

    play(scene)


def test_batches_that_were_begun_and_cannot_leave_do_not_hold_up_a_release(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bring_in, "ANSWERS_WITHIN", 0.2)

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.wires[1].can_write = False
        stage.fetched(cursor, batches(10))
        await settle()
        for unit in cursor.progress.units:
            unit.begun = True
        assert await let_go(cursor) < 0.2 + AT_ONCE
        assert stage.stream.buffer.bytes == 0

    play(scene)


# -- the signal itself


def test_work_that_has_ended_is_not_cut_short() -> None:
    async def play() -> None:
        signal = ReleaseSignal()

        async def work() -> int:
            await asyncio.sleep(0)
            return 3

        assert await signal.unless_set(work()) == 3
        signal.set()
        await asyncio.sleep(0.01)
        with pytest.raises(ReleasedSignal):
            await signal.unless_set(work())

    asyncio.run(play())


def test_work_that_ends_in_the_moment_of_the_signal_leaves_nothing_behind() -> None:
    """A cancellation that comes late would end the cursor at its next wait, and nobody would hear of it."""

    async def play() -> None:
        signal, answer = ReleaseSignal(), asyncio.get_running_loop().create_future()

        async def work() -> int:
            result: int = await answer
            return result

        async def cursor() -> int:
            result = await signal.unless_set(work())
            for _ in range(5):
                await asyncio.sleep(0)
            return result

        task = asyncio.create_task(cursor())
        await settle()
        answer.set_result(3)
        signal.set()
        assert await task == 3
        assert not task.cancelling()

    asyncio.run(play())


def test_one_wait_within_another_is_cut_short_once() -> None:
    async def play() -> None:
        signal, hanging = ReleaseSignal(), Hanging()

        async def outer() -> None:
            with contextlib.suppress(ReleasedSignal):
                await signal.unless_set(signal.unless_set(hanging()))
            await asyncio.sleep(0.01)

        task = asyncio.create_task(outer())
        await until(lambda: hanging.is_waiting)
        signal.set()
        await task
        assert not task.cancelling()

    asyncio.run(play())


def test_an_error_of_the_work_comes_through() -> None:
    async def play() -> None:
        async def work() -> None:
            raise ConnectionLost("gone")

        with pytest.raises(ConnectionLost):
            await ReleaseSignal().unless_set(work())

    asyncio.run(play())


def test_a_task_that_is_cancelled_in_the_same_moment_stays_cancelled() -> None:
    """The stream ends: its cursors must end too, whoever else wants them."""

    async def play() -> None:
        signal, hanging = ReleaseSignal(), Hanging()
        task = asyncio.create_task(signal.unless_set(hanging()))
        await until(lambda: hanging.is_waiting)
        signal.set()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())


def test_a_cancellation_alone_is_no_release() -> None:
    async def play() -> None:
        signal, hanging = ReleaseSignal(), Hanging()
        task = asyncio.create_task(signal.unless_set(hanging()))
        await until(lambda: hanging.is_waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
