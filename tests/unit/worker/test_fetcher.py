"""Reading from one source broker whose answers a test scripts: sessions, partitions in trouble, partitions that join."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest

from mirrormaker.errors import ConnectionLost
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER
from mirrormaker.wire.protocol import fetch
from mirrormaker.worker import fetcher as fetcher_module
from mirrormaker.worker import poll
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.intake import fetch_again
from mirrormaker.worker.stream import Stream
from tests.support.source_broker import TOPIC_ID, SourceBroker, play_source, records, row
from tests.support.worker_stage import until

SESSION = 77


@pytest.fixture(autouse=True)
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Keep what cursors get, as (partition, offset after it), in place of forwarding it."""
    got: list[tuple[int, int]] = []

    async def accept(cursor: Cursor, *_: object) -> None:
        cursor.expected = cursor.fetch_from[0]
        got.append((cursor.partition, cursor.expected))

    monkeypatch.setattr(Cursor, "accept", accept)
    return got


# -- sessions


def test_idle_partitions_cost_the_same_bytes_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, the line would look so thin that every partition's share changes.
    monkeypatch.setattr(poll, "_SLOW", 60.0)
    sizes: list[int] = []

    async def scene(stream: Stream) -> None:
        for count in (1, 3000):
            broker = SourceBroker(stream, partitions=count)
            fetcher = broker.fetcher()
            for partition in range(count):
                fetcher.join(broker.cursor(partition))
            assert len((await broker.asked(1)).offsets) == count
            broker.answer(*map(row, range(count)), session=SESSION)
            request = await broker.asked(2)
            assert (request.session, request.offsets, request.forgotten) == ((SESSION, 1), {}, set())
            sizes.append(request.size)
            fetcher.task.cancel()

    play_source(scene)
    assert sizes[0] == sizes[1] < 50


def test_a_request_names_the_partitions_that_got_something_and_an_answer_those_that_have_news(
    accepted: list[tuple[int, int]],
) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=3)
        cursors = [broker.cursor(partition) for partition in range(3)]
        fetcher = broker.fetcher()
        for cursor in cursors:
            fetcher.join(cursor)
        assert (await broker.asked(1)).session == (0, 0)
        broker.answer(*(row(p, high_watermark=100 + p) for p in range(3)), session=SESSION)
        await broker.asked(2)
        broker.answer(row(1, records(100)), session=SESSION)
        request = await broker.asked(3)
        assert (request.session, request.offsets) == ((SESSION, 2), {("t", 1): 105})
        assert accepted == [(1, 105)]
        assert [cursor.high_watermark for cursor in cursors] == [100, 200, 102]

    play_source(scene)


def test_a_cursor_that_takes_only_a_part_is_asked_for_again_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        fetcher = broker.fetcher()

        async def accept(cursor: Cursor, *_: object) -> None:
            cursor.expected = 102
            fetch_again(cursor)
            fetcher.join(cursor)

        monkeypatch.setattr(Cursor, "accept", accept)
        fetcher.join(broker.cursor())
        await broker.asked(1)
        broker.answer(row(0), session=SESSION)
        await broker.asked(2)
        broker.answer(row(0, records(100)), session=SESSION)
        assert (await broker.asked(3)).offsets == {("t", 0): 105}, "it was sent before the answer was taken"
        broker.answer(row(0, records(105)), session=SESSION)
        assert (await broker.asked(4)).offsets == {("t", 0): 102}

    play_source(scene)


def test_partitions_join_and_leave_a_session(accepted: list[tuple[int, int]]) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=3)
        first, second, third = (broker.cursor(partition) for partition in range(3))
        fetcher = broker.fetcher()
        fetcher.join(first)
        fetcher.join(second)
        await broker.asked(1)
        broker.answer(row(0), row(1), session=SESSION)
        await broker.asked(2)
        fetcher.leave(first)
        first.fetch_round += 1
        fetcher.join(third)
        broker.answer(row(0, records(100)), session=SESSION)
        request = await broker.asked(3)
        assert (request.offsets, request.forgotten) == ({("t", 2): 100}, {("t", 0)})
        assert not accepted, "an answer for a cursor that has left"
        # It leaves and comes back between two requests, further back.
        fetcher.leave(second)
        second.fetch_round += 1
        second.fetch_from = 90, 0
        fetcher.join(second)
        broker.answer(row(1, records(100)), session=SESSION)
        request = await broker.asked(4)
        assert (request.offsets, request.forgotten) == ({("t", 1): 90}, set())
        assert not accepted, "an answer to a request from before"

    play_source(scene)


@pytest.mark.parametrize(("error", "session"), [(70, (0, 0)), (71, (SESSION, 0)), (106, (SESSION, 0))])
def test_a_session_that_the_broker_has_lost_begins_anew_at_once(error: int, session: tuple[int, int]) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        cursors = [broker.cursor(partition) for partition in range(2)]
        fetcher = broker.fetcher()
        for cursor in cursors:
            fetcher.join(cursor)
        await broker.asked(1)
        broker.answer(row(0), row(1), session=SESSION)
        await broker.asked(2)
        broker.answer(error=error)
        request = await broker.asked(3)
        assert (request.session, len(request.offsets)) == (session, 2)
        assert len(broker.connections) == 1
        assert not broker.refreshed
        assert [(cursor.note, cursor.counters.retries) for cursor in cursors] == [("", 0)] * 2

    play_source(scene)


def test_without_room_for_sessions_every_request_names_all_and_those_that_got_something_last() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        fetcher = broker.fetcher()
        for partition in range(2):
            fetcher.join(broker.cursor(partition))
        for number in range(1, 4):
            request = await broker.asked(number)
            assert (request.session, len(request.offsets)) == ((0, 0), 2)
            broker.answer(row(0, records(request.offsets["t", 0])), row(1))
        assert list((await broker.asked(4)).offsets.items()) == [(("t", 1), 100), (("t", 0), 115)]

    play_source(scene)


def test_an_old_broker_without_sessions_is_asked_for_all_partitions() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, version=4, partitions=2)
        fetcher = broker.fetcher()
        for partition in range(2):
            fetcher.join(broker.cursor(partition))
        for number in range(1, 4):
            assert len((await broker.asked(number)).offsets) == 2
            broker.answer(row(0), row(1))

    play_source(scene)


def test_a_new_connection_begins_a_new_session_and_ends_the_old_one() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        await broker.asked(1)
        broker.answer(row(0), session=SESSION)
        await broker.asked(2)
        broker.connections[-1].close(ConnectionLost("cable"))
        request = await broker.asked(3)
        assert (request.session, request.offsets) == ((SESSION, 0), {("t", 0): 100})
        assert cursor.note == "source: cable"
        broker.answer(row(0), session=78)
        assert (await broker.asked(4)).session == (78, 1)
        assert not cursor.note

    play_source(scene)


def test_an_answer_that_could_not_be_delivered_is_fetched_again(
    accepted: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursors' next fetches begin after it already."""

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        fetcher = broker.fetcher()
        for partition in range(2):
            fetcher.join(broker.cursor(partition))
        await broker.asked(1)
        with monkeypatch.context() as patch:
            patch.setattr(fetch, "encode_request", None)
            broker.answer(row(0, records(100)), row(1), session=SESSION)
            await until(lambda: bool(broker.refreshed))
        assert not accepted
        assert (await broker.asked(2)).offsets == {("t", 0): 100, ("t", 1): 100}

    play_source(scene)


# -- topics without an id


def test_a_topic_without_an_id_is_asked_for_by_name_until_it_has_one() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, version=17, partitions=2)
        with_id, without = broker.cursor(0, TOPIC_ID.hex()), broker.cursor(1)
        fetcher = broker.fetcher()
        fetcher.join(with_id)
        fetcher.join(without)
        request = await broker.asked(1)
        assert (request.version, request.offsets) == (12, {("t", 0): 100, ("t", 1): 100})
        broker.answer(row(0), row(1), session=SESSION)
        await broker.asked(2)
        without.source_id = TOPIC_ID
        fetcher.join(without)
        broker.answer(session=SESSION)
        request = await broker.asked(3)
        assert (request.version, request.session) == (17, (SESSION, 0)), "a session cannot mix names and ids"
        assert request.offsets == {(TOPIC_ID, 0): 100, (TOPIC_ID, 1): 100}
        broker.answer(row(0), row(1, records(100)), session=78)
        assert (await broker.asked(4)).offsets == {(TOPIC_ID, 1): 105}

    play_source(scene)


# -- partitions in trouble


def test_a_partition_with_a_lasting_error_is_asked_for_less_and_less_often_and_the_others_as_ever(
    accepted: list[tuple[int, int]],
) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        bad, good = broker.cursor(0), broker.cursor(1)
        fetcher = broker.fetcher()
        fetcher.join(bad)
        fetcher.join(good)
        mentions, began, waiting = 0, time.monotonic(), False
        for number in range(1, 301):
            request = await broker.asked(number)
            waiting = ("t", 0) in request.offsets or (waiting and ("t", 0) not in request.forgotten)
            mentions += waiting
            rows = [row(1, records(95 + 5 * number), high_watermark=1 << 40)]
            broker.answer(*rows, *([row(0, error=56)] if waiting else []), session=SESSION)
        await broker.asked(301)
        # It is left out for 0.1, 0.2, 0.5, 1, 2, 2, ... seconds.
        assert mentions <= 5 + (time.monotonic() - began) / 2
        assert len(accepted) == 300
        assert len(broker.refreshed) == mentions
        assert bad.note.startswith("source: KAFKA_STORAGE_ERROR") and not good.note
        assert len(broker.connections) == 1

    play_source(scene)


def test_a_partition_whose_error_is_gone_goes_on() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        await broker.asked(1)
        broker.answer(row(error=6), session=SESSION)
        request = await broker.asked(2)
        assert request.offsets == {("t", 0): 100}
        broker.answer(row(), session=SESSION)
        await broker.asked(3)
        assert not cursor.note
        assert not fetcher._failures and not fetcher._resting

    play_source(scene)


def test_batches_in_an_impossible_order_are_fetched_again_and_then_stop_the_partition(
    accepted: list[tuple[int, int]],
) -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        for number in range(1, 4):
            await broker.asked(number)
            assert cursor.flowing
            broker.answer(row(0, records(90)), session=SESSION)
        await until(lambda: not cursor.flowing)
        reason = cursor._interrupt.exception()
        assert "offset 90" in str(reason) and "stops at source offset 100" in str(reason)
        assert cursor.fetch_from[0] == 100 and not accepted

    play_source(scene)


def test_a_damaged_answer_is_fetched_again() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        await broker.asked(1)
        damaged = records(100)
        damaged[0] = 0x10  # a high bit of the base offset
        broker.answer(row(0, damaged), session=SESSION)
        await broker.asked(2)
        broker.answer(row(0, records(100)), session=SESSION)
        assert (await broker.asked(3)).offsets == {("t", 0): 105}
        assert not cursor.done.done()

    play_source(scene)


def test_records_beyond_the_high_watermark_are_fetched_again_until_it_has_reached_them(
    accepted: list[tuple[int, int]],
) -> None:
    """A broker reads the high watermark a moment before the records."""

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        for number in range(20):
            await broker.asked(number + 1)
            broker.answer(row(0, records(100, 10 + number), high_watermark=109 + number), session=SESSION)
        assert cursor.flowing and not accepted
        await broker.asked(21)
        broker.answer(row(0, records(100, 30), high_watermark=130), session=SESSION)
        await broker.asked(22)
        assert accepted == [(0, 130)]

    play_source(scene)


def test_a_high_watermark_that_never_reaches_the_records_stops_the_partition() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        cursor = broker.cursor()
        fetcher = broker.fetcher()
        fetcher.join(cursor)
        for number in range(1, 5):
            await broker.asked(number)
            assert cursor.flowing
            broker.answer(row(0, records(1 << 40), high_watermark=200), session=SESSION)
        await until(lambda: not cursor.flowing)
        assert "high watermark" in str(cursor._interrupt.exception())

    play_source(scene)


# -- partitions that join


def test_a_thousand_partitions_that_join_one_by_one_open_one_connection() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=1000)
        fetcher = broker.fetcher()
        answered = 0
        for partition in range(1000):
            fetcher.join(broker.cursor(partition))
            await asyncio.sleep(0)
            if len(broker.requests) > answered and partition % 50 == 0:
                answered = len(broker.requests)
                assert broker.requests[-1].max_wait_ms <= 50, "newcomers do not wait for long"
                broker.answer(session=SESSION)
        assert answered > 10
        assert len(broker.connections) == 1

    play_source(scene)


def test_a_new_partition_cuts_a_long_poll_short_and_nobody_counts_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "_JOINING", 0.0)

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        first, second = broker.cursor(0), broker.cursor(1)
        fetcher = broker.fetcher()
        fetcher.join(first)
        assert (await broker.asked(1)).max_wait_ms == 500
        fetcher.join(second)
        assert len((await broker.asked(2)).offsets) == 2
        assert len(broker.connections) == 2
        assert (first.note, first.counters.retries, broker.refreshed) == ("", 0, [])

    play_source(scene)


def test_an_answer_that_is_coming_in_is_not_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "_JOINING", 0.0)

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=2)
        fetcher = broker.fetcher()
        fetcher.join(broker.cursor(0))
        await broker.asked(1)
        broker.connections[-1].is_quiet = False
        fetcher.join(broker.cursor(1))
        broker.answer(row(0), session=SESSION)
        assert (await broker.asked(2)).offsets == {("t", 1): 100}
        assert len(broker.connections) == 1

    play_source(scene)


# -- memory


def test_requests_under_way_count_as_memory() -> None:
    async def scene(stream: Stream) -> None:
        buffer = stream.buffer
        broker = SourceBroker(stream)
        fetcher = broker.fetcher()
        fetcher.join(broker.cursor())
        request = await broker.asked(1)
        assert request.max_bytes == buffer.reserved == buffer.max_bytes // 2
        broker.answer(row(), session=SESSION)
        request = await broker.asked(2)
        assert request.max_bytes == buffer.reserved
        buffer.count(buffer.max_bytes - 1000 - buffer.reserved, 0)
        broker.answer(row(0, records(100)), session=SESSION)
        request = await broker.asked(3)
        assert buffer.bytes + buffer.reserved <= buffer.max_bytes
        broker.connections[-1].close(ConnectionLost("cable"))
        await broker.asked(4)
        assert buffer.bytes + buffer.reserved <= buffer.max_bytes

    play_source(scene)


def test_a_full_buffer_is_waited_for() -> None:
    async def scene(stream: Stream) -> None:
        buffer = stream.buffer
        broker = SourceBroker(stream)
        fetcher = broker.fetcher()
        fetcher.join(broker.cursor())
        await broker.asked(1)
        buffer.count(buffer.max_bytes, 0)
        broker.answer(row(), session=SESSION)
        await asyncio.sleep(0.02)
        assert len(broker.requests) == 1 and buffer.reserved == 0
        buffer.count(-buffer.max_bytes, 0)
        await broker.asked(2)

    play_source(scene)


def test_a_refresh_that_fails_is_named_and_the_partitions_are_fetched_again(
    accepted: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "_PAUSE", 0.01)
    failures: list[Exception] = [ValueError("a bug"), ConnectionLost("source:1 hung up")]
    notes: list[str] = []

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)

        async def refresh(topics: Iterable[str]) -> None:
            assert set(topics) == {"t"}
            raise failures.pop(0)

        broker._refresh = refresh
        fetcher, cursor = broker.fetcher(), broker.cursor()
        fetcher.join(cursor)
        # After a connection that is lost.
        await broker.asked(1)
        broker.connections[-1].close(ConnectionLost("gone"))
        assert (await broker.asked(2)).offsets == {("t", 0): 100}
        notes.append(cursor.note)
        # And after an error of the partition.
        broker.answer(row(error=NOT_LEADER_OR_FOLLOWER), session=SESSION)
        await until(lambda: not failures and not fetcher._refreshes)
        notes.append(cursor.note)
        await broker.asked(3)
        broker.answer(row(0, records(100)))
        await until(lambda: accepted == [(0, 105)])
        assert not cursor.note

    play_source(scene)
    assert notes == [
        "source: its metadata cannot be read: unexpected ValueError: a bug",
        "source: its metadata cannot be read: source:1 hung up",
    ]
