"""One connection to a target broker: whatever goes wrong on it, no cursor waits for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mirrormaker.errors import BadFrame, BrokerError, ConnectionLost, PartitionError, Undeliverable, UnsupportedRequest
from mirrormaker.kafka_errors import CODES, INVALID_PRODUCER_EPOCH, Scope
from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.produce import Appended
from mirrormaker.wire.transport.connection import Answered, Part
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.handler import Handler
from mirrormaker.worker.handler import Record as HandlerRecord
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.outlet import Outlet
from tests.support.answers import ProduceAnswer, encode_produce_answer
from tests.support.worker_stage import START, US, VERSION, Play, Stage, batches, settle, until

# -- a broker that takes nothing


def test_batches_that_do_not_leave_in_time_are_taken_back(play: Play) -> None:
    """The connection is open, and nothing is in flight: requests are held back, for a login that does not end."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stuck = stage.wires[1]
        stuck.can_write = False
        stage.fetched(cursor, batches(10))
        await settle()
        (sender,) = stage.stream._senders.values()
        sender.tick(30.0)
        sender.tick(30.0)
        assert cursor.flowing, "30 s have not passed"
        sender.tick(0.0)
        assert not cursor.flowing
        assert not stuck.is_open
        await until(lambda: cursor.flowing)
        assert cursor.counters.retries == 1

    play(scene)


def test_a_sender_that_has_nothing_to_send_is_not_stuck(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        (sender,) = stage.stream._senders.values()
        for _ in range(3):
            sender.tick(0.0)
        assert cursor.flowing

    play(scene)


# -- errors that have no place in the protocol


@pytest.mark.parametrize("error", [BadFrame("?"), UnsupportedRequest("?"), KeyError(0), OSError("?")], ids=repr)
def test_whatever_happens_while_a_connection_is_opened_the_cursor_hears_of_it(
    play: Play, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)

        async def connection(node: int, purpose: str = "control") -> object:
            if purpose.startswith("produce"):
                raise error
            return stage.wires[node]

        monkeypatch.setattr(stage.stream.target, "connection", connection)
        stage.fetched(cursor, batches(10))
        await settle()
        assert not cursor.flowing

    play(scene)


def neighbours(stage: Stage) -> tuple[Cursor, Cursor]:
    """Start two cursors whose target partitions have one leader."""
    stage.stream.target.topics = {"t": Topic("t", bytes(16), False, {p: Partition(1, 0, 1) for p in (0, 1)})}
    return stage.take(), stage.take(replace(START, partition=1, cuts=(Cut(1, 20, 1000),)))


def test_the_small_batches_of_one_fetch_leave_in_few_requests(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        first, second = neighbours(stage)
        await until(lambda: first.flowing and second.flowing)
        stage.fetched(first, batches(10))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        requests: list[int] = []

        def count(key: int, version: int, flexible: bool, parts: list[Part], answered: Answered) -> None:
            requests.append(sum(isinstance(part, memoryview) for part in parts))

        monkeypatch.setattr(stage.wires[1], "send", count)
        stage.fetched(first, batches(10, 10, offset=110))
        stage.fetched(second, batches(10))
        await settle()
        assert requests == [2, 1]

    play(scene)


def test_an_error_in_the_handling_of_one_answer_interrupts_every_cursor_on_the_connection(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        first, second = neighbours(stage)
        await until(lambda: first.flowing and second.flowing)
        stage.fetched(first, batches(10))
        await settle()
        stage.fetched(second, batches(10))
        await settle()
        wire = stage.wires[1]
        assert len(wire.waiting) == 2

        def fails(outlet: Outlet, base_offset: int) -> None:
            raise ValueError("a mistake of ours")

        monkeypatch.setattr(Outlet, "acknowledged", fails)
        wire.answer(base_offset=1000)
        assert not (first.flowing or second.flowing), "a cursor waits for ever for an answer that nobody reads"
        assert not wire.is_open
        await until(lambda: first.done.done() and second.done.done())
        assert "a mistake of ours" in str(first.done.result())

    play(scene)


def test_an_error_while_the_next_request_is_made_interrupts_every_cursor_on_the_connection(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        first, _ = neighbours(stage)
        await until(lambda: first.flowing)
        stage.fetched(first, batches(10, 5))
        await settle()

        def fails(*_: object, **__: object) -> None:
            raise ValueError("a mistake of ours")

        monkeypatch.setattr("mirrormaker.wire.protocol.produce.encode_request", fails)
        stage.wires[1].answer(base_offset=1000)
        assert not first.flowing
        await until(first.done.done)
        assert "a mistake of ours" in str(first.done.result())

    play(scene)


def test_a_connection_that_ends_as_soon_as_it_is_open_is_lost(play: Play) -> None:
    """Nothing was sent on it, so no answer will ever tell."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.wires[1].is_open = False
        stage.fetched(cursor, batches(10))
        await settle()
        assert not cursor.outlets[0].ready, "the batch waits for the next one, or for a time-out"
        stage.wires[1].is_open = True
        await until(lambda: cursor.flowing)

    play(scene)


def test_an_error_in_the_slow_path_of_a_cursor_is_reported(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens while the cursor decides what to end with, where another error is being handled already."""

    async def scene(stage: Stage) -> None:
        async def fails(*_: object) -> None:
            raise KeyError("a mistake of ours")

        monkeypatch.setattr(cursor_module, "ending_for", fails)
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        cursor.interrupt(Renumber(RestartAt.SAME_PLACE, "anything"))
        await until(lambda: cursor.done.done() or stage.run.done())
        assert cursor.done.done(), f"{cursor} is {cursor.state} for ever"
        assert "unexpected KeyError" in str(cursor.done.result())

    play(scene)


def test_a_message_handler_that_is_cancelled_stops_the_partition_with_a_word(play: Play) -> None:
    """CancelledError is no Exception: the task that runs the handler would end in silence."""

    async def scene(stage: Stage) -> None:
        def handler(record: HandlerRecord) -> list[HandlerRecord]:
            raise asyncio.CancelledError

        stage.stream.handler = Handler(handler)
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10))
        await until(cursor.done.done)
        assert "CancelledError" in str(cursor.done.result())
        assert stage.stream.buffer.bytes == 0

    play(scene)


# -- every error code


async def refused(stage: Stage, code: int, start: Position = START) -> Exception | None:
    """Return what a partition ends with whose single record is refused with this code; None if it goes on."""
    cursor = stage.take(start)
    for _ in range(4):
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(1))
        await settle()
        stage.wires[1].answer(error=code)
        await until(lambda: cursor.flowing or cursor.done.done())
        if cursor.done.done():
            ending = cursor.done.result()
            assert isinstance(ending, Exception)
            return ending
    return None


UNKNOWN = (-1, 999)  # the broker does not say what is wrong, or we do not know its word for it
READ_AGAIN = (45, 46)


@pytest.mark.parametrize("code", [*CODES, 999])
def test_each_error_code_of_one_partition_ends_in_the_right_way(
    play: Play, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))
    monkeypatch.setattr("mirrormaker.worker.stream_metadata._REFRESH_PAUSE", 0.0)
    monkeypatch.setattr("mirrormaker.worker.outlet._DAMAGED_FOR", 0.0)

    async def scene(stage: Stage) -> None:
        ending = await refused(stage, code)
        error = BrokerError(code)
        if code in (45, 59):
            assert isinstance(ending, Renumber) and ending.where == RestartAt.FORGOTTEN
        elif error.scope is Scope.RECORD:
            assert isinstance(ending, Undeliverable)
        elif error.retriable or code in UNKNOWN or code in READ_AGAIN:
            assert ending is None, f"{ending}: the same batch may be taken later"
        else:
            assert isinstance(ending, PartitionError) and not isinstance(ending, Undeliverable), ending
            assert ending.retriable, "someone may repair it"

    play(scene)


def test_a_target_that_refuses_the_epoch_of_mirrors_gets_one_of_its_own(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))
    monkeypatch.setattr("mirrormaker.worker.stream_metadata._REFRESH_PAUSE", 0.0)

    async def scene(stage: Stage) -> None:
        marked = replace(START, identity=Identity(7, MARKED_EPOCH))
        ending = await refused(stage, INVALID_PRODUCER_EPOCH, marked)
        assert isinstance(ending, Renumber) and ending.where == RestartAt.UNMARKED

    play(scene)


def test_a_record_is_not_given_up_while_it_may_just_arrive_damaged(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that damages everything for a second must not cost a record."""
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))

    async def scene(stage: Stage) -> None:
        assert await refused(stage, 2) is None

    play(scene)


def test_a_record_that_arrives_damaged_once_is_sent_again(play: Play) -> None:
    """A bit may flip on the way. CORRUPT_MESSAGE is retriable, so the record is not to blame the first time."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(1))
        await settle()
        stage.wires[1].answer(error=2)
        await until(lambda: cursor.flowing or cursor.done.done())
        assert not cursor.done.done(), cursor.done.result()
        stage.fetched(cursor, batches(1))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        assert cursor.current.offset == 101

    play(scene)


def test_a_partition_that_is_refused_leaves_its_neighbours_alone(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = neighbours(stage)
        await until(lambda: first.flowing and second.flowing)
        stage.fetched(first, batches(10))
        await settle()
        stage.fetched(second, batches(10))
        await settle()
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        stage.wires[1].answer(error=-1)
        assert not first.flowing
        assert second.flowing

    play(scene)


def test_an_answer_about_more_partitions_than_its_request_has_is_not_believed(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = neighbours(stage)
        await until(lambda: first.flowing and second.flowing)
        stage.fetched(first, batches(10))
        await settle()
        rows = [Appended("", partition, 0, 1000, None) for partition in (0, 1)]
        _, answered = stage.wires[1].waiting.pop(0)
        answer = ProduceAnswer([("t", bytes(16), rows)], [], None, [])
        answered(memoryview(encode_produce_answer(VERSION, answer)), None)
        assert not first.flowing
        assert not stage.wires[1].is_open

    play(scene)


def test_refused_numbers_count_only_if_nothing_was_acknowledged_in_between(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        for offset in range(100, 130, 10):
            await until(lambda: cursor.flowing or cursor.done.done())
            assert not cursor.done.done(), cursor.done.result()
            stage.fetched(cursor, batches(5, offset=offset))
            await settle()
            stage.wires[1].answer(error=45)
            await until(lambda: cursor.flowing)
            stage.fetched(cursor, batches(10, offset=offset))
            await settle()
            stage.wires[1].answer(base_offset=900 + offset)
            cursor.interrupt(ConnectionLost("a hiccup"))
            cursor.outlets[0].channel.stop_until_log_read()
        await until(lambda: cursor.flowing or cursor.done.done())
        assert not cursor.done.done(), cursor.done.result()

    play(scene)
