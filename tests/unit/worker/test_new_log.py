"""A target log that is no longer the one that acknowledged our records: created again, or cut back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.errors import PartitionError
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.records.batch import Batch
from mirrormaker.worker import resume as resume_module
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.handler import Handler
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.resume import read_back
from tests.support.scripted_target import ScriptedLog
from tests.support.worker_stage import START, US, LogStage, batches, settle, until

FIRST, SECOND = b"\1" * 16, b"\2" * 16
OTHERS = Identity(8, 0)
NO_ID = bytes(16)

Play = Callable[[Callable[[LogStage], Awaitable[None]]], None]


def old_log() -> ScriptedLog:
    """Return a log that holds our numbers 0 to 19 up to offset 1000, as START says."""
    log = ScriptedLog()
    log.start = 980
    log.append(US, 0, 20)
    return log


async def running(stage: LogStage, topic_id: bytes, *, clean: bool = True) -> Cursor:
    """Start at number 20 and offset 1000 of a topic with this id; no id: brokers before 2.8."""
    stage.target_log = old_log()
    stage.lead(1, topic_id)
    cursor = stage.take(replace(START, target_topic_id=topic_id.hex() if any(topic_id) else ""), clean=clean)
    await until(lambda: cursor.flowing)
    return cursor


def go_on(stage: LogStage, cursor: Cursor) -> Cursor:
    """Do what the driver does: go on at the closing position, under a new identity and with the records that are ahead."""
    need = cursor.done.result()
    assert isinstance(need, Renumber)
    closing = Position.from_json(cursor.closing.to_json())
    cuts = tuple(
        Cut(cut.partition, 0, cut.offset if cut.ahead else stage.target_log.end, cut.topic, cut.ahead)
        for cut in closing.cuts
        if cut.ahead == 0 or need.where == RestartAt.FORGOTTEN
    )
    topic_id = stage.stream.target.topics["t"].id.hex()
    return stage.take(replace(closing, identity=Identity(9, 0), cuts=cuts, target_topic_id=topic_id), clean=True)


@pytest.mark.parametrize("ids", [(FIRST, SECOND), (NO_ID, NO_ID)], ids=["with ids", "without ids"])
def test_a_batch_that_a_new_log_took_by_name_counts_and_does_not_come_twice(
    play_with_log: Play, ids: tuple[bytes, bytes]
) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, ids[0])
        stage.target_log, stage.refreshed_id = ScriptedLog(), ids[1]
        stage.fetched(cursor, batches(10, 5))
        await settle()
        assert stage.deliver().base_sequence == 20
        await until(cursor.done.done)
        need = cursor.done.result()
        assert isinstance(need, Renumber), need
        assert need.where == RestartAt.FORGOTTEN
        assert "t was deleted and created again" in need.reason
        assert cursor.closing.offset == 100
        assert cursor.closing.cut(0) == Cut(0, 30, 10, "", ahead=10)

        successor = go_on(stage, cursor)
        await until(lambda: successor.flowing)
        stage.fetched(successor, batches(10, 5))
        await settle()
        sent = stage.deliver()
        assert (sent.producer_id, sent.base_sequence, sent.count) == (9, 0, 5), "ten records come twice"
        assert successor.current.offset == 115
        assert stage.target_log.end == 15

    play_with_log(scene)


def test_all_batches_under_way_to_a_new_log_count(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.fetched(cursor, batches(1))
        await settle()
        stage.deliver()
        stage.target_log, stage.refreshed_id = ScriptedLog(), SECOND
        stage.fetched(cursor, batches(10, 5, 3, offset=101))
        await settle()
        assert stage.wires[1].numbers() == [21, 31, 36]
        for _ in range(3):
            stage.deliver()
        await until(cursor.done.done)
        assert (cursor.closing.offset, cursor.closing.cut(0)) == (101, Cut(0, 39, 18, "", ahead=18))

    play_with_log(scene)


def test_a_new_log_that_took_a_later_batch_without_an_earlier_one_gets_them_again(play_with_log: Play) -> None:
    """Nothing can be put before a batch: the records that are there come twice, and the reason says so."""

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.fetched(cursor, batches(1))
        await settle()
        stage.deliver()
        stage.target_log, stage.refreshed_id = ScriptedLog(), SECOND
        stage.fetched(cursor, batches(10, 5, offset=101))
        await settle()
        stage.wires[1].answer(error=3)  # the topic was not there yet
        stage.deliver()
        await until(cursor.done.done)
        need = cursor.done.result()
        assert isinstance(need, Renumber)
        assert need.where == RestartAt.SAME_PLACE
        assert "sent again" in need.reason
        assert cursor.closing.offset == 101

    play_with_log(scene)


def test_a_new_log_that_holds_nothing_of_ours_is_noticed_while_the_partition_is_idle(
    play_with_log: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrormaker.worker.stream_metadata._FOLLOW_EVERY", 0.01)

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.target_log, stage.refreshed_id = ScriptedLog(), SECOND
        stage.stream._spawn(stage.stream.metadata.follow_target(stage.stream._target_topics))
        await until(cursor.done.done)
        need = cursor.done.result()
        assert isinstance(need, Renumber) and need.where == RestartAt.FORGOTTEN
        assert cursor.closing.cut(0) == Cut(0, 20, 0)
        assert not stage.scripted.asked["Fetch"], "nobody has sent anything: there is nothing to read"

    play_with_log(scene)


def test_a_topic_that_is_created_again_while_its_log_is_read_is_noticed(
    play_with_log: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes at a time when the cursor is not on the hot path."""

    async def scene(stage: LogStage) -> None:
        stage.target_log = old_log()
        stage.lead(1, FIRST)

        async def read_and_refresh(*args: Any, **known: Any) -> Any:
            found = await read_back(*args, **known)
            stage.refreshed_id = SECOND
            await stage.stream.metadata.refresh_target({"t"})
            return found

        monkeypatch.setattr(resume_module, "read_back", read_and_refresh)
        cursor = stage.take(replace(START, target_topic_id=FIRST.hex()), clean=False)
        await until(lambda: cursor.flowing or cursor.done.done())
        assert cursor.done.done(), "batches go to another topic of the same name"

    play_with_log(scene)


def test_a_topic_that_only_a_handler_writes_to_is_known_by_its_id_while_the_stream_runs(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, NO_ID)  # the ledger has no id of such a topic
        stage.lead(1, FIRST)
        cursor.interrupt(ConnectionError("anything"))
        await until(lambda: cursor.flowing)
        assert cursor.outlets[0].is_same_topic
        stage.lead(1, SECOND)
        stage.target_log = ScriptedLog()
        stage.stream._check_topics({"t"})
        await until(cursor.done.done)
        assert isinstance(cursor.done.result(), Renumber)

    play_with_log(scene)


def test_a_handler_topic_that_was_created_again_while_no_mirror_ran_does_not_stop_the_partition(
    play_with_log: Play,
) -> None:
    async def scene(stage: LogStage) -> None:
        stage.scripted.logs = {("t", 0): old_log(), ("made", 0): ScriptedLog()}
        stage.stream.handler = Handler(lambda record: [replace(record, topic="made")])
        stage.stream.target.topics["made"] = replace(stage.stream.target.topics["t"], name="made", id=FIRST)
        cuts = (Cut(0, 20, 1000), Cut(0, 7, 500, "made"))
        cursor = stage.take(replace(START, cuts=cuts), clean=False)
        await until(cursor.done.done)
        need = cursor.done.result()
        assert isinstance(need, Renumber), need
        assert (need.where, need.topics) == (RestartAt.FORGOTTEN, ())
        assert "made was deleted and created again" in need.reason
        assert cursor.closing.cut(0, "made") == Cut(0, 7, 0, "made")
        assert cursor.closing.cut(0) == Cut(0, 20, 1000)

    play_with_log(scene)


# -- a log that was cut back


@pytest.mark.parametrize("acks", [-1, 1])
def test_acknowledged_records_that_are_gone_are_named_and_only_acks_1_goes_on(play_with_log: Play, acks: int) -> None:
    async def scene(stage: LogStage) -> None:
        stage.stream.work = replace(stage.stream.work, acks=acks)
        stage.target_log.start = 980
        stage.target_log.append(US, 0, 13)
        stage.lead(1, FIRST)
        cursor = stage.take(replace(START, target_topic_id=FIRST.hex()), clean=False)
        await until(cursor.done.done)
        ending = cursor.done.result()
        assert "LOST 7 records that the target had acknowledged: its log ends at offset 993, before 1000" in str(ending)
        if acks == 1:
            assert isinstance(ending, Renumber) and ending.where == RestartAt.SAME_PLACE
        else:
            assert isinstance(ending, PartitionError) and ending.retriable
            assert "--reset-offsets" in str(ending)

    play_with_log(scene)


def test_a_batch_that_was_taken_after_the_loss_is_no_sign_of_another_writer(play_with_log: Play) -> None:
    """The new leader did not know us, so it took the next number at an offset that was acknowledged before."""

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.target_log = ScriptedLog()
        stage.target_log.start = 980
        stage.target_log.append(US, 0, 13)
        stage.fetched(cursor, batches(5))
        await settle()
        stage.deliver()
        await until(cursor.done.done)
        assert "LOST 7 records" in str(cursor.done.result())

    play_with_log(scene)


def test_a_leader_that_refuses_the_next_number_and_remembers_a_smaller_one_has_lost_records(
    play_with_log: Play,
) -> None:
    """Others have written since, so the end of the log does not tell."""

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.target_log = ScriptedLog()
        stage.target_log.start = 980
        stage.target_log.append(US, 0, 13)
        stage.target_log.append(OTHERS, 0, 50)
        stage.target_log.producers = {US: 12}
        while not cursor.done.done():
            if cursor.flowing:
                stage.fetched(cursor, batches(5))
            await settle()
            if stage.wires[1].waiting:
                stage.wires[1].answer(error=45)
            await until(lambda: cursor.flowing or cursor.done.done())
        assert "LOST 7 records that the target had acknowledged" in str(cursor.done.result())

    play_with_log(scene)


def test_an_offset_before_its_predecessors_in_the_same_log_stops_the_partition_for_good(play_with_log: Play) -> None:
    """Another writer uses our numbers: a broker takes other records with them for duplicates."""

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, FIRST)
        stage.fetched(cursor, batches(5))
        await settle()
        stage.wires[1].answer(base_offset=990)
        await until(cursor.done.done)
        ending = cursor.done.result()
        assert isinstance(ending, PartitionError) and not ending.retriable
        assert "another writer uses producer id 7" in str(ending)

    play_with_log(scene)


@pytest.mark.parametrize("ids", [FIRST, NO_ID], ids=["with ids", "without ids"])
@pytest.mark.parametrize("damage", [2048, 512, 64, 4], ids=["beyond the end", "down", "further down", "up by a batch"])
@pytest.mark.parametrize("is_refused", [False, True], ids=["the next one is acknowledged", "the leader has moved"])
def test_a_wrong_offset_in_an_answer_neither_stops_the_partition_nor_repeats_a_record(
    play_with_log: Play, ids: bytes, damage: int, is_refused: bool
) -> None:
    """The offset has no checksum; the log tells where the batches are."""

    async def scene(stage: LogStage) -> None:
        cursor = await running(stage, ids)
        stage.fetched(cursor, batches(2, 2, 2, 2))
        await settle()
        stage.deliver()
        await settle()
        stage.deliver(damage=damage)
        await settle()
        wire = stage.wires[1]
        if is_refused:
            stage.target_log.add(wire.waiting[0][0].data)
        while wire.waiting:
            wire.answer(error=6) if is_refused else stage.deliver()
        await settle()
        await until(lambda: cursor.flowing or cursor.done.done())
        assert not cursor.done.done(), cursor.done.result()
        left = (108 - cursor.expected) // 2
        stage.fetched(cursor, batches(*[2] * left, offset=cursor.expected))
        await settle()
        while wire.waiting:
            stage.deliver()
            await settle()
        numbers = [Batch(memoryview(data)).base_sequence for data in stage.target_log.batches]
        assert numbers == [0, 20, 22, 24, 26]

    play_with_log(scene)
