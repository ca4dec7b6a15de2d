"""Records that a resume skips: a source that was compacted meanwhile has fewer of them than the target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from mirrormaker.errors import Undeliverable
from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.progress import Progress, Unit
from mirrormaker.worker import endings
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.interrupts import Renumber, RestartAt
from tests.support.scripted_target import ScriptedLog
from tests.support.worker_stage import START, US, LogStage, Play, Stage, batches, until


async def _skipping(stage: Stage) -> Cursor:
    """Return a cursor that skips the twenty records of source offsets 100 to 119, which the target holds."""
    stage.log = [LoggedBatch(1000, 1019, US, 20, 39, 20)]
    cursor = stage.take(clean=False)
    await until(lambda: cursor.flowing)
    assert cursor.outlets[0].skip == 20
    return cursor


async def _ended(cursor: Cursor) -> Renumber:
    await until(cursor.done.done)
    reason = cursor.done.result()
    assert isinstance(reason, Renumber) and reason.where == RestartAt.SAME_PLACE
    return reason


def test_no_report_moves_past_records_that_are_skipped_before_the_last_one_is_seen(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = await _skipping(stage)
        stage.fetched(cursor, batches(10))
        assert cursor.offset == 110 and cursor.current == START
        stage.fetched(cursor, batches(10, offset=110))
        assert (cursor.current.offset, cursor.current.cut(0).sequence, cursor.current.cut(0).ahead) == (120, 40, 0)
        stage.fetched(cursor, batches(5, offset=120))
        await until(lambda: bool(stage.wires[1].waiting))
        assert stage.wires[1].answer(base_offset=1020).base_sequence == 40
        assert cursor.current.offset == 125

    play(scene)


def test_a_partition_that_is_let_go_while_it_skips_is_given_back_as_it_was_taken(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = await _skipping(stage)
        stage.fetched(cursor, batches(10))
        cursor.release()
        await until(cursor.done.done)
        cut = cursor.closing.cut(0)
        assert (cursor.closing.offset, cut.sequence, cut.offset, cut.ahead) == (100, 40, 1020, 20)

    play(scene)


def test_new_records_are_sent_though_the_sources_end_comes_before_the_last_one_that_is_skipped(play: Play) -> None:
    """Ten of the twenty records are gone from the source, and five new ones were counted in their place."""

    async def scene(stage: Stage) -> None:
        cursor = await _skipping(stage)
        stage.fetched(cursor, batches(10, offset=110))
        stage.fetched(cursor, batches(5, offset=120))
        cursor.high_watermark = 125
        cursor.check_skipping(0)
        cursor.check_skipping(-1)
        await _ended(cursor)
        assert cursor.closing.offset == 100, "the records at 120 to 124 were never mirrored"

    play(scene)


def test_records_that_the_source_lacks_are_not_waited_for_while_new_ones_keep_coming(play: Play) -> None:
    """All that the target holds comes from before the source's end at the takeover, so nothing after that can be missing."""

    async def scene(stage: Stage) -> None:
        cursor = await _skipping(stage)
        stage.fetched(cursor, batches(10, offset=110))
        cursor.high_watermark = 125
        cursor.check_skipping(60)
        cursor.high_watermark = 10_000
        cursor.check_skipping(-1)
        assert cursor.flowing, "the records may still come"
        stage.fetched(cursor, batches(5, offset=120))
        cursor.check_skipping(-1)
        await _ended(cursor)
        assert cursor.closing.offset == 100

    play(scene)


def test_new_records_are_sent_though_some_were_counted_before_the_last_one_that_is_skipped_differs(
    play_with_log: Callable[[Callable[[LogStage], Awaitable[None]]], None],
) -> None:
    async def scene(stage: LogStage) -> None:
        stage.target_log = ScriptedLog()
        stage.target_log.start = 1000
        stage.target_log.append(US, 20, 20)
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10, offset=110))
        stage.fetched(cursor, batches(5, offset=120))
        assert cursor.offset == 125 and cursor.current == START
        stage.fetched(cursor, batches(10, offset=125))
        await _ended(cursor)
        assert cursor.closing.offset == 100, "the records at 120 to 124 were never mirrored"

    play_with_log(scene)


@pytest.mark.parametrize("count", [0, 1])
def test_an_interrupt_while_records_are_skipped_changes_nothing(play: Play, count: int) -> None:
    async def scene(stage: Stage) -> None:
        cursor = await _skipping(stage)
        stage.fetched(cursor, batches(10))
        for _ in range(count):
            cursor.interrupt(ConnectionError("anything"))
            await until(lambda: cursor.flowing)
        assert cursor.current == START
        stage.fetched(cursor, batches(10, offset=110))
        assert cursor.current.offset == 120

    play(scene)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_record_that_is_given_up_in_a_compacted_topic_proves_nothing_of_those_before_it(is_compacted: bool) -> None:
    """The driver would go on after the record, and new ones that were counted as skipped would be left out."""
    unit = Unit(101, 0, 1)
    progress = Progress(START)
    progress.doubt(True)
    progress.units.append(unit)
    outlet = SimpleNamespace(topic="orders", is_compacted=is_compacted)
    metadata = mock.AsyncMock(have_settings_changed=mock.AsyncMock(return_value=False))
    cursor: Any = SimpleNamespace(
        progress=progress, outlets=[outlet], stream=SimpleNamespace(metadata=metadata, check_topics=mock.Mock()),
        make_certain=mock.AsyncMock(), first_undeliverable=None, given_up={}, settings_seen=0,
    )  # fmt: skip
    error = Undeliverable("orders-0", 100, "it is too large", unit)
    ending = asyncio.run(endings.ending_for(cursor, error))
    assert isinstance(ending, Renumber) if is_compacted else ending is error
    assert progress.is_doubted is is_compacted
