"""What once went wrong between fetching and sending, played on the stage of the cursor's tests."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.position import Cut
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import unpack
from mirrormaker.wire.transport.connection import Part
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.handler import Handler
from mirrormaker.worker.handler import Record as HandlerRecord
from mirrormaker.worker.interrupts import AwaitZombies
from mirrormaker.worker.stream import Stream
from tests.support.batches import Record, write_batch
from tests.support.worker_stage import NOW, START, US, Play, Stage, at_once, fetcher_of, settle, until


def numbered(first: int, count: int, timestamp: int = NOW) -> list[Batches | memoryview]:
    rows = [Record(timestamp, None, b"value-%d" % number) for number in range(first, first + count)]
    return list(split(memoryview(bytearray(write_batch(rows, base_offset=first).data))))


def first_value(batch: Batch) -> bytes:
    return unpack(Batches.of(batch)).tail(0)


def test_what_a_handler_works_on_is_not_lost_when_the_source_leader_moves(
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Idle:
        def __init__(self, node: int) -> None:
            self.node = node
            self.cursors: dict[Cursor, None] = {}

        def join(self, cursor: Cursor) -> None:
            self.cursors[cursor] = None

        def leave(self, cursor: Cursor) -> None:
            self.cursors.pop(cursor, None)

    async def scene(stage: Stage) -> None:
        go = threading.Event()

        def slow(record: HandlerRecord) -> list[HandlerRecord]:
            go.wait(5)
            return [record]

        stream = stage.stream
        stream.handler = Handler(slow)
        monkeypatch.setattr(stream._fetchers, "_by_node", {1: Idle(1), 2: Idle(2)})
        monkeypatch.setattr(stream, "fetch", lambda cursor: Stream.fetch(stream, cursor))
        stream.source.brokers = {1: ("a", 1), 2: ("b", 1)}
        stream.source.topics = {"t": Topic("t", bytes(16), False, {0: Partition(1, 0, 1)})}
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, numbered(100, 10))
        await settle()
        stream.source.topics = {"t": Topic("t", bytes(16), False, {0: Partition(2, 1, 1)})}
        stream.fetch(cursor)
        go.set()
        stage.fetched(cursor, numbered(110, 10))
        await until(lambda: bool(stage.wires[1].waiting))
        assert first_value(stage.wires[1].waiting[0][0]).endswith(b"value-100\0"), "100 to 109 are lost"

    play(scene)


def test_old_records_that_waited_are_looked_for_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.05)

    async def scene(stage: Stage) -> None:
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, numbered(100, 10, timestamp=1000))
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]  # a dead sender's request gets there meanwhile
        await until(lambda: stage.reads == 2 and cursor.flowing)
        stage.fetched(cursor, numbered(100, 10, timestamp=1000))
        await settle()
        assert not stage.wires[1].waiting, "100 to 109 are sent a second time"

    play(scene)


def test_a_batch_that_begins_with_an_old_record_waits_as_old_ones_do(play: Play) -> None:
    """The former sender may have packed it differently, with the old records alone."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        cursor.zombies_until = time.monotonic() + 0.1
        rows = [Record(1000, None, b"old"), Record(NOW, None, b"young")]
        mixed = list(split(memoryview(bytearray(write_batch(rows, base_offset=100).data))))
        stage.fetched(cursor, mixed)
        await settle()
        assert not stage.wires[1].waiting
        await until(lambda: stage.reads == 2 and cursor.flowing)

    play(scene)


def test_old_records_that_come_late_are_looked_for_as_well(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was read when a former sender's request was still on its way. It has arrived since."""
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)

    async def scene(stage: Stage) -> None:
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        stage.fetched(cursor, numbered(100, 10, timestamp=1000))
        await until(lambda: stage.reads == 2 and cursor.flowing)
        stage.fetched(cursor, numbered(100, 10, timestamp=1000))
        await settle()
        assert not stage.wires[1].waiting, "100 to 109 are sent a second time"

    play(scene)


def test_a_partition_is_clean_only_once_its_log_was_read_after_the_last_request_of_a_former_sender(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)

    async def scene(stage: Stage) -> None:
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        assert not cursor.is_clean, "a successor would not look for what has arrived since"
        assert not cursor.must_read_again(0.0)
        assert not cursor.must_read_again(60.0), "an acknowledgement may still come"
        assert cursor.must_read_again(0.0)
        cursor.interrupt(AwaitZombies())
        await until(lambda: stage.reads == 2 and cursor.flowing)
        assert cursor.outlets[0].skip == 10
        assert cursor.is_clean

    play(scene)


def test_an_acknowledgement_proves_that_no_former_sender_is_ahead(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)

    async def scene(stage: Stage) -> None:
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, numbered(100, 10))
        await settle()
        assert not cursor.must_read_again(0.0)
        stage.wires[1].answer(base_offset=1000)
        assert not cursor.must_read_again(60.0)
        assert not cursor.is_clean, "this batch may have arrived before the former sender's last one"
        stage.fetched(cursor, numbered(110, 1))
        await settle()
        stage.wires[1].answer(base_offset=1010)
        assert not cursor.must_read_again(60.0)
        assert cursor.is_clean
        assert stage.reads == 1

    play(scene)


def test_behind_an_old_batch_young_ones_go_one_by_one_until_one_is_acknowledged(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, numbered(100, 1))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        stage.fetched(
            cursor, [*numbered(101, 1, timestamp=1000), *numbered(102, 1), *numbered(103, 1), *numbered(104, 1)]
        )
        await settle()
        for number, in_flight in ((21, [21]), (22, [22]), (23, [23, 24])):
            assert stage.wires[1].numbers() == in_flight
            stage.wires[1].answer(base_offset=980 + number)

    play(scene)


def test_a_leader_forgets_by_the_age_of_the_last_records_not_by_when_they_came(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of almost a day ago were mirrored an hour ago: the leader may have forgotten who wrote them."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        young_enough = NOW - 22 * 3_600_000
        stage.fetched(cursor, numbered(100, 1, young_enough))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 2 * 3600)
        now = NOW + 2 * 3_600_000
        stage.fetched(cursor, [*numbered(101, 1, now), *numbered(102, 1, now)])
        await settle()
        assert stage.wires[1].numbers() == [21], "two batches go to a leader that may not know us"

    play(scene)


def test_batches_that_linger_still_count_as_memory(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, linger=0.001)
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        for number in range(20):
            data = bytearray(write_batch([Record(NOW, None, b"x" * 300_000)] * 2, base_offset=100 + 2 * number).data)
            frame = Frame(stage.stream.buffer, len(data))
            at_once(cursor.accept(list(split(memoryview(data))), [], frame))
            frame.drop(0)
        await asyncio.sleep(0.02)
        held = sum(entry.size for entry in (*cursor.outlets[0].ready, *cursor.outlets[0].sent))
        assert stage.stream.buffer.bytes >= held > 10_000_000

    play(scene)


def test_an_error_in_one_partition_of_a_fetch_loses_nothing_of_any(
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[int, int]] = []

    class Source:
        is_open = is_quiet = True
        bytes_in = 0
        last_transfer = round_trip = 0.0

        def __init__(self) -> None:
            self.versions = {1: (4, 11)}

        def close(self, error: Exception) -> None:
            self.is_open = False

        def request(self, key: int, version: int, flexible: bool, parts: list[Part]) -> asyncio.Future[memoryview]:
            request = FetchRequest.decode(b"".join(bytes(part) for part in parts), version=11)
            asked.append({p.partition: p.fetch_offset for t in request.topics for p in t.partitions})
            future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
            if len(asked) == 1:
                kind = FetchResponse.FetchableTopicResponse
                rows = [
                    kind.PartitionData(
                        partition_index=number, error_code=0, high_watermark=200, last_stable_offset=200, log_start_offset=0,
                        aborted_transactions=[], preferred_read_replica=-1,
                        records=bytes(write_batch([Record(NOW, None, b"v")] * 5, base_offset=offset).data),
                    )
                    for number, offset in asked[0].items()
                ]  # fmt: skip
                topic = kind(topic="t", partitions=rows)
                answer = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
                future.set_result(memoryview(bytearray(answer.encode(version=11))))
            return future

    async def scene(stage: Stage) -> None:
        async def connection(node: int, lane: str) -> Source:
            return Source()

        stream = stage.stream
        stream.target.topics = {"t": Topic("t", bytes(16), False, {p: Partition(1, 0, 1) for p in (0, 1)})}
        stream.source.topics, stream.source.brokers = stream.target.topics, {1: ("a", 1)}
        monkeypatch.setattr(stream.source, "connection", connection)
        bad, good = stage.take(), stage.take(replace(START, partition=1, cuts=(Cut(1, 20, 1000),)))
        await until(lambda: bad.flowing and good.flowing)

        def fails(*_: object) -> None:
            raise MemoryError("as Arrow says it")

        monkeypatch.setattr(bad._intake, "accept", fails)
        fetcher = fetcher_of(stream)
        fetcher.join(bad)
        fetcher.join(good)
        await until(lambda: bad.done.done() and good.expected == 105)
        fetcher.task.cancel()
        assert bad.current.offset == 100
        assert "MemoryError" in str(bad.done.result())
        assert len(good.outlets[0].sent) == 1, "the neighbour's records are lost"

    play(scene)
