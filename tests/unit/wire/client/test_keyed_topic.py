"""Rows in a compacted topic: written in order whatever the leader answers, read back to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirrormaker.errors import BadChecksum, BrokerError, CorruptBatch
from mirrormaker.kafka_errors import (
    INVALID_PRODUCER_EPOCH,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TOPIC_AUTHORIZATION_FAILED,
)
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.keyed_topic import KeyedWriter, Row
from tests.support.batches import flip_last_bit, move_batch, times
from tests.support.keyed_log import LATE, KeyedLog
from tests.support.scripted_broker import FETCH

TOPIC = "rows"
ROWS: list[Row] = [
    (b"a", b"1"),
    (b"b", None),
    (b"a", b"2" * 300_000),
    (b"c", b""),
    *((b"%d" % n, b"x" * 99) for n in range(5000)),
]


def play(log: KeyedLog, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with log.running() as cluster:
            await cluster.refresh()
            await scenario(cluster)

    asyncio.run(run())


async def rows(cluster: Cluster, start: int = 0) -> list[Row]:
    records: list[keyed_topic.KeyedRecord] = []
    async for some, after in keyed_topic.scan(cluster, TOPIC, start):
        records += some
        end = after
    assert [record.offset for record in records] == list(range(end - len(records), end))
    return [(record.key, record.value) for record in records]


def test_rows_come_back_in_order_from_any_offset() -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        await writer.write([])
        await writer.write(ROWS)
        await writer.write(ROWS[:2])
        assert await rows(cluster) == [*ROWS, *ROWS[:2]]
        assert await rows(cluster, 3) == [*ROWS[3:], *ROWS[:2]]
        assert await rows(cluster, len(ROWS) + 2) == []

    play(log, scenario)
    # A batch is small enough for every broker, but for a row that is larger alone.
    assert len(log.batches) == 6
    assert sum(len(data) > 256 << 10 for data in log.batches) == 1
    assert log.allocated == 1


@pytest.mark.parametrize("error", [NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_leader_that_moves_is_waited_for(error: int) -> None:
    log = KeyedLog(TOPIC)
    log.errors = [0, error, error]

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        await writer.write(ROWS[:1])
        await writer.write(ROWS[1:2])
        assert await rows(cluster) == ROWS[:2]

    play(log, scenario)


def test_a_row_whose_answer_is_lost_is_not_written_twice() -> None:
    log = KeyedLog(TOPIC)
    log.errors, log.patience = [0, None], 0.3

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        for row in ROWS[:4]:
            await writer.write([row])
        assert await rows(cluster) == ROWS[:4]

    play(log, scenario)


def test_a_missing_permission_is_told_at_once() -> None:
    log = KeyedLog(TOPIC)
    log.errors = [TOPIC_AUTHORIZATION_FAILED]

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(BrokerError) as raised:
            await KeyedWriter(cluster, TOPIC).write(ROWS[:1])
        assert raised.value.code == TOPIC_AUTHORIZATION_FAILED

    play(log, scenario)


def test_a_damaged_batch_is_refused() -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        await KeyedWriter(cluster, TOPIC).write(ROWS[:2])
        log.batches[0] = log.batches[0][:-1] + bytes([log.batches[0][-1] ^ 1])
        with pytest.raises(BadChecksum):
            await rows(cluster)

    play(log, scenario)


def test_rows_below_the_log_start_are_left_out() -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        for row in ROWS[:3]:
            await writer.write([row])
        log.start = 1
        del log.batches[0]
        assert await rows(cluster) == ROWS[1:3]

    play(log, scenario)


# -- damaged answers, and requests that arrive late


def fetches(log: KeyedLog) -> int:
    return sum(key == FETCH for key, _ in log.heard)


async def written_one_by_one(log: KeyedLog, cluster: Cluster, count: int = 6) -> list[Row]:
    """Write rows that take a batch each, two of which are in an answer."""
    some = ROWS[4 : 4 + count]
    writer = KeyedWriter(cluster, TOPIC)
    for row in some:
        await writer.write([row])
    return some


@pytest.mark.parametrize(("number", "offset"), [(0, -1), (0, 100), (1, 0), (1, -7), (1, 100)])
def test_a_damaged_base_offset_is_fetched_again(number: int, offset: int) -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        some = await written_one_by_one(log, cluster)
        log.damage = times(1, move_batch(number, offset))
        assert await rows(cluster) == some
        # Of a last batch beyond the high watermark, the one before it counts.
        assert fetches(log) == 4

    play(log, scenario)


def test_damaged_answers_end_a_scan_after_three_of_them() -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        await written_one_by_one(log, cluster)
        for damage in move_batch(0, -1), move_batch(1, 0), flip_last_bit:
            log.heard.clear()
            log.damage = damage
            with pytest.raises(CorruptBatch):
                await asyncio.wait_for(rows(cluster), 5)
            assert fetches(log) == 3

    play(log, scenario)


def test_rows_that_do_not_match_their_crc_are_fetched_again() -> None:
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        some = await written_one_by_one(log, cluster)
        log.damage = times(2, flip_last_bit)
        assert await rows(cluster) == some
        assert fetches(log) == 5

    play(log, scenario)


def test_rows_beyond_the_high_watermark_are_read_with_the_next_request() -> None:
    """A broker reads its high watermark a moment before the records."""
    log = KeyedLog(TOPIC)

    async def scenario(cluster: Cluster) -> None:
        some = await written_one_by_one(log, cluster)
        log.high_watermarks = [1, 1]
        found, end = await keyed_topic.read_next(cluster, TOPIC, 0)
        assert ([record.key for record in found], end) == ([some[0][0]], 1)
        found, end = await keyed_topic.read_next(cluster, TOPIC, end)
        assert ([record.key for record in found], end) == ([row[0] for row in some[1:3]], 3)
        assert fetches(log) == 3

    play(log, scenario)


def test_a_request_that_was_given_up_is_refused_once_newer_rows_are_there() -> None:
    log = KeyedLog(TOPIC)
    log.errors = [0, LATE]

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        await writer.write([(b"key", b"1")])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(writer.write([(b"key", b"2")]), 0.1)
        await writer.write([(b"key", b"3")])
        assert log.append_late() == [INVALID_PRODUCER_EPOCH]
        await writer.write([(b"key", b"4")])
        assert [value for _, value in await rows(cluster)] == [b"1", b"3", b"4"]

    play(log, scenario)
    assert log.allocated == 1


def test_a_request_that_was_given_up_may_still_arrive_before_newer_rows() -> None:
    log = KeyedLog(TOPIC)
    log.errors = [0, LATE]

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        await writer.write([(b"key", b"1")])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(writer.write([(b"key", b"2")]), 0.1)
        assert log.append_late() == [0]
        await writer.write([(b"key", b"3")])
        assert [value for _, value in await rows(cluster)] == [b"1", b"2", b"3"]

    play(log, scenario)


def test_a_broker_that_takes_no_raised_epoch_gets_another_producer_id() -> None:
    log = KeyedLog(TOPIC)
    log.errors = [0, TOPIC_AUTHORIZATION_FAILED, INVALID_PRODUCER_EPOCH]

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        await writer.write(ROWS[:1])
        with pytest.raises(BrokerError):
            await writer.write(ROWS[1:2])
        await writer.write(ROWS[1:2])
        assert await rows(cluster) == ROWS[:2]

    play(log, scenario)
    assert log.producers == {1: (0, 1), 2: (0, 1)}


def test_after_the_last_epoch_of_a_producer_id_comes_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_topic, "_LAST_EPOCH", 1)
    log = KeyedLog(TOPIC)
    log.errors = [TOPIC_AUTHORIZATION_FAILED] * 3

    async def scenario(cluster: Cluster) -> None:
        writer = KeyedWriter(cluster, TOPIC)
        for _ in range(3):
            with pytest.raises(BrokerError):
                await writer.write(ROWS[:1])
        await writer.write(ROWS[:1])

    play(log, scenario)
    assert log.producers == {2: (1, 1)}
