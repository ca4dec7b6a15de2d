"""One source partition on its way through a stream, with a target broker that a test plays by hand."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from mirrormaker.errors import BrokerError, ConnectionLost, CorruptBatch, LogReplaced, Undeliverable, describe
from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.position import Cut, Position
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.records.batch import split
from mirrormaker.worker import resume as resume_module
from mirrormaker.worker.handler import Handler
from mirrormaker.worker.handler import Record as HandlerRecord
from mirrormaker.worker.interrupts import Renumber
from tests.support.batches import NOW, Record, write_batch
from tests.support.worker_stage import START, US, Play, Stage, batches, fetcher_of, settle, until

# -- the hot path


def test_batches_are_stamped_sent_and_counted(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10, 5))
        await settle()
        assert stage.wires[1].numbers() == [20], "the second waits: the leader is not known to know us"
        first = stage.wires[1].answer(base_offset=1000)
        assert (first.producer_id, first.base_offset, first.count) == (7, 0, 10)
        first.check()
        assert (cursor.current.offset, cursor.current.cut(0)) == (110, Cut(0, 30, 1010))
        assert stage.wires[1].numbers() == [30]
        stage.wires[1].answer(base_offset=1010)
        assert (cursor.current.offset, cursor.current.cut(0)) == (115, Cut(0, 35, 1015))
        assert stage.stream.buffer.bytes == 0
        assert (cursor.records, stage.reads) == (15, 0)

    play(scene)


def test_a_partition_that_is_let_go_waits_for_its_answers(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10, 5))
        await settle()
        cursor.release()
        await settle()
        assert not cursor.done.done()
        stage.wires[1].answer(base_offset=1000)
        await until(cursor.done.done)
        assert cursor.done.result() is None
        assert (cursor.current.offset, cursor.current.cut(0)) == (110, Cut(0, 30, 1010))
        assert not stage.wires[1].waiting, "what was only fetched is not sent any more"
        assert stage.stream.buffer.bytes == 0

    play(scene)


def test_after_an_error_the_log_is_read_and_what_is_there_is_not_sent_again(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10, 5))
        await settle()
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        stage.wires[1].answer(error=7)  # appended, but not on all replicas in time
        await until(lambda: cursor.flowing)
        assert cursor.outlets[0].skip == 10
        stage.fetched(cursor, batches(10, 5))
        await settle()
        assert stage.wires[1].numbers() == [30]
        assert cursor.current == START, "offset and number go on together"
        stage.wires[1].answer(base_offset=1010)
        assert (cursor.current.offset, cursor.current.cut(0)) == (115, Cut(0, 35, 1015))

    play(scene)


def test_a_batch_that_the_target_never_takes_stops_the_partition(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(1))
        await settle()
        stage.wires[1].answer(error=10)
        await until(cursor.done.done)
        assert isinstance(cursor.done.result(), Undeliverable)
        assert "t-0: the record at source offset 100 cannot be delivered" in str(cursor.done.result())
        assert cursor.current.offset == 100

    play(scene)


def test_a_batch_that_is_refused_goes_again_record_by_record_until_the_bad_one_is_named(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(3, 3))
        await settle()
        stage.wires[1].answer(error=87)  # a record in it is invalid
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(3, 3))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        assert stage.wires[1].numbers() == [21, 22, 23]
        assert [batch.count for batch, _ in stage.wires[1].waiting] == [1, 1, 3], "all that follow go together again"
        stage.log = [LoggedBatch(1000, 1000, US, 20, 20, 1)]
        stage.wires[1].answer(error=87)
        stage.wires[1].answer(error=45)
        stage.wires[1].answer(error=45)
        await until(cursor.done.done)
        assert isinstance(cursor.done.result(), Undeliverable)
        assert cursor.done.result().offset == cursor.current.offset == 101

    play(scene)


def test_a_batch_that_begins_before_the_position_is_cropped(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10, offset=95))
        await settle()
        assert stage.wires[1].waiting[0][0].count == 5
        stage.wires[1].answer(base_offset=1000)
        assert (cursor.current.offset, cursor.current.cut(0)) == (105, Cut(0, 25, 1005))

    play(scene)


def test_small_batches_wait_for_each_other_if_asked(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, linger=0.1)
        cursor = stage.take()
        await settle()
        for offset in (100, 103, 105):
            stage.fetched(cursor, batches(3 if offset == 100 else 2, offset=offset))
        await settle()
        assert not stage.wires[1].waiting
        await until(lambda: bool(stage.wires[1].waiting))
        assert stage.wires[1].waiting[0][0].count == 7
        stage.wires[1].answer(base_offset=1000)
        assert (cursor.current.offset, cursor.current.cut(0)) == (107, Cut(0, 27, 1007))
        assert stage.stream.buffer.bytes == 0

    play(scene)


# -- positions that go into the ledger


def consistent(position: Position) -> bool:
    """Return True if number 20 belongs to the record at offset 100, and so on: a successor must give the same numbers."""
    return position.cut(0).sequence - 20 == position.offset - 100


def test_a_position_reported_right_after_a_resume_gives_no_number_twice(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        assert cursor.outlets[0].skip == 10
        assert consistent(cursor.current), f"a successor of {cursor.current} mirrors offsets 100 to 109 a second time"

    play(scene)


def test_a_partition_let_go_right_after_a_resume_gives_no_number_twice(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        cursor.release()
        await until(cursor.done.done)
        given_back = cursor.current

        successor = stage.take(given_back)  # clean, as the driver believes
        await settle()
        stage.fetched(successor, batches(10, 5))
        await settle()
        batch = stage.wires[1].waiting[0][0]
        assert (batch.base_sequence, batch.count) in ((20, 10), (30, 5)), (
            "offsets 100 to 109 are mirrored a second time"
        )

    play(scene)


def test_a_second_resume_before_the_first_was_used_gives_no_number_twice(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.log = [LoggedBatch(1000, 1009, US, 20, 29, 10)]
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        cursor.interrupt(ConnectionLost("anything"))
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(10, 5))
        await settle()
        batch = stage.wires[1].waiting[0][0]
        assert (batch.base_sequence, batch.count) == (30, 5), "offsets 100 to 109 are sent again, under new numbers"

    play(scene)


def test_a_partition_let_go_with_requests_of_unknown_fate_is_not_clean(play: Play) -> None:
    """A leader that has forgotten us (old records) would take the same records again."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10))
        await settle()
        cursor.outlets[0].abandoned(ConnectionLost("gone"))
        cursor.release()
        await until(cursor.done.done)
        assert cursor.outlets[0].channel.must_read_log
        stage.stream.reporting.ended(cursor)
        (ended,) = stage.stream.reporting.report((), 0).ended
        assert not ended.partition.clean, "nothing tells the driver to have the log read"

    play(scene)


# -- who leads


def test_a_change_of_leader_does_not_mix_up_answers(play: Play) -> None:
    """They are matched in order, and two connections have none between them."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        stage.fetched(cursor, batches(5, offset=110))  # numbers 30 to 34 are under way to broker 1
        stage.lead(2)
        stage.fetched(cursor, batches(3, offset=115))
        await settle()
        if stage.wires[2].waiting:
            stage.wires[2].answer(base_offset=1015)  # 35 to 37: the new leader had 30 to 34 from the old one
        cut = cursor.current.cut(0)
        assert cut in (Cut(0, 30, 1010), Cut(0, 38, 1018)), f"35 to 37 lie at offset 1015, and a resume starts at {cut}"

    play(scene)


def test_a_target_topic_that_was_created_again_means_new_numbers(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = b"\1" * 16, b"\2" * 16
        stage.lead(1, first)
        cursor = stage.take(replace(START, target_topic_id=first.hex()))
        await settle()
        stage.fetched(cursor, batches(10))
        await settle()
        stage.lead(1, second)
        stage.wires[1].answer(error=3)
        await until(cursor.done.done)
        assert isinstance(cursor.done.result(), Renumber)

    play(scene)


def test_a_target_topic_without_an_id_is_written_by_its_name(play: Play) -> None:
    """The brokers were upgraded, the topic is older than topic ids."""

    async def scene(stage: Stage) -> None:
        stage.wires[1].versions = {0: (0, 13)}
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        assert cursor.current.offset == 110

    play(scene)


def test_topics_that_get_ids_while_a_stream_runs_are_noticed_when_they_are_created_again(play: Play) -> None:
    """Both clusters are upgraded from before Kafka 2.8."""

    async def scene(stage: Stage) -> None:
        first, second = b"\1" * 16, b"\2" * 16

        def lead_source(topic_id: bytes) -> None:
            stage.stream.source.topics = {"t": Topic("t", topic_id, False, {0: Partition(1, 0, 1)})}

        cursor = stage.take()
        await settle()
        for topic_id in (bytes(16), first, first):
            lead_source(topic_id)
            stage.lead(1, topic_id)
            stage.stream.check_topics(cursor)
            assert cursor.outlets[0].target_id == cursor.target_ids["t"] or not any(topic_id)
            ids = "" if topic_id == bytes(16) else topic_id.hex()
            assert (cursor.current.topic_id, cursor.current.target_topic_id) == (ids, ids)
        stage.lead(1, second)
        with pytest.raises(LogReplaced):
            stage.stream.check_topics(cursor)
        lead_source(second)
        with pytest.raises(Renumber, match="the source topic was deleted and created again"):
            stage.stream.check_topics(cursor)

    play(scene)


def test_a_target_topic_that_is_gone_does_not_take_the_connection_with_it(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        stage.fetched(cursor, batches(10, 5))
        await settle()
        stage.stream.target.topics = {}
        stage.wires[1].answer(base_offset=1000)
        assert not cursor.outlets[0].sent or stage.wires[1].waiting

    play(scene)


# -- nothing ends in silence


def test_a_target_log_that_cannot_be_read_stops_the_partition_with_a_word(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(stage: Stage) -> None:
        async def read_back(*_: object) -> None:
            raise CorruptBatch("the batch at offset 5 does not match its CRC")

        monkeypatch.setattr(resume_module, "read_back", read_back)
        cursor = stage.take(clean=False)
        await until(lambda: cursor.done.done() or stage.run.done())
        assert cursor.done.done(), f"{cursor} is {cursor.state} for ever"

    play(scene)


def test_an_error_for_a_whole_fetch_is_not_the_end_of_fetching(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    class Source:
        is_open = is_quiet = True
        bytes_in = 0
        last_transfer = round_trip = 0.0

        def close(self, error: Exception) -> None:
            self.is_open = False

        def __init__(self) -> None:
            self.versions = {1: (4, 12)}

        def request(self, *_: object) -> asyncio.Future[memoryview]:
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(memoryview(FetchResponse(error_code=70, responses=[]).encode(version=12)))
            return answer

    async def scene(stage: Stage) -> None:
        async def connection(node: int, lane: str) -> Source:
            return Source()

        stage.stream.source.topics = stage.stream.target.topics
        monkeypatch.setattr(stage.stream.source, "connection", connection)
        monkeypatch.setattr(stage.stream.source, "refresh", stage.stream.target.refresh)
        cursor = stage.take()
        await settle()
        fetcher = fetcher_of(stage.stream)
        fetcher.join(cursor)
        await asyncio.wait([fetcher.task], timeout=0.05)
        alive = not fetcher.task.done()
        fetcher.task.cancel()
        await asyncio.gather(fetcher.task, return_exceptions=True)
        assert alive, "no partition of this broker is mirrored any more"

    play(scene)


def test_an_error_is_one_line_with_its_number() -> None:
    error: Any = BrokerError(6, "try elsewhere")
    assert error.code == 6 and error.retriable
    assert describe(error).endswith("(6): try elsewhere")


def test_a_batch_that_arrives_damaged_is_fetched_again_before_the_partition_stops(play: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()

        async def fetch_damaged(offset: int) -> None:
            await until(lambda: cursor.flowing)
            assert cursor.expected == offset
            data = bytearray(write_batch([Record(NOW, None, b"value")], base_offset=offset).data)
            data[-1] ^= 1
            stage.fetched(cursor, list(split(memoryview(data))))
            await settle()

        for _ in range(2):
            await fetch_damaged(100)
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(2))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        for _ in range(3):
            assert not cursor.done.done()
            await fetch_damaged(102)
        await until(cursor.done.done)
        assert "does not match its CRC" in str(cursor.done.result())

    play(scene)


def test_records_that_wait_for_a_slow_handler_are_not_missing_at_the_source(play: Play) -> None:
    def slow(record: HandlerRecord) -> list[HandlerRecord]:
        time.sleep(0.02)
        return [record]

    async def scene(stage: Stage) -> None:
        stage.stream.handler = Handler(slow)
        stage.log = [LoggedBatch(1000, 1004, US, 20, 24, 5)]
        cursor = stage.take(clean=False)
        await until(lambda: cursor.flowing)
        cursor.high_watermark = 120
        stage.fetched(cursor, batches(20))
        cursor.check_skipping(0.0)
        await asyncio.sleep(0.01)
        cursor.check_skipping(0.0)
        await until(lambda: not cursor.is_skipping)
        assert not cursor.done.done(), cursor.done.result()

    play(scene)
