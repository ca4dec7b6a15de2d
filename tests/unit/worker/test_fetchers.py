"""The reading half of a stream: every cursor is at the fetcher of its leader, and knows its topic's id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from mirrormaker.errors import ConnectionLost
from mirrormaker.model.position import Cut
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.worker import fetchers as fetchers_module
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetchers import Fetchers
from mirrormaker.worker.interrupts import Renumber
from mirrormaker.worker.stream import Stream
from tests.support.source_broker import TOPIC_ID, SourceBroker, play_source
from tests.support.worker_stage import START, TASK, until


def cursor_of(stream: Stream, partition: int = 0) -> Cursor:
    cursor = Cursor(stream, replace(START, partition=partition, cuts=(Cut(partition, 20, 1000),)), clean=True)
    cursor.flowing = True
    stream.cursors["t", partition] = cursor
    return cursor


def test_a_position_from_before_topic_ids_takes_the_id_from_the_metadata() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, version=17, topic_id=TOPIC_ID)
        cursor = cursor_of(stream)
        stream.check_topics(cursor)
        stream.fetch(cursor)
        request = await broker.asked(1)
        assert (request.version, request.offsets) == (17, {(TOPIC_ID, 0): 100})
        stream.source.topics = {"t": Topic("t", b"n" * 16, False, {0: Partition(1, 0, 1)})}
        with pytest.raises(Renumber, match="created again"):
            stream.check_topics(cursor)

    play_source(scene)


def test_an_upgrade_of_the_brokers_gives_an_id_to_a_topic_that_flows() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, version=17)
        cursor = cursor_of(stream)
        stream.fetch(cursor)
        assert (await broker.asked(1)).version == 12
        stream.source.topics = {"t": Topic("t", TOPIC_ID, False, {0: Partition(1, 0, 1)})}
        await stream._source_refreshed({"t"})
        broker.answer()
        request = await broker.asked(2)
        assert (request.version, request.offsets) == (17, {(TOPIC_ID, 0): 100})

    play_source(scene)


def test_many_partitions_without_a_leader_share_one_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetchers_module, "_LEADERLESS_PAUSE", 0.01)

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream, partitions=500)
        led = stream.source.topics["t"]
        refreshed: list[set[str]] = []
        died: list[Exception] = []

        async def refresh(topics: Iterable[str]) -> None:
            refreshed.append(set(topics))
            if len(refreshed) == 3:
                stream.source.topics = {"t": led}
            for cursor in cursors:
                fetchers.fetch(cursor)

        fetchers = Fetchers(stream.source, TASK, stream.buffer, refresh, died.append)
        stream.source.topics = {"t": Topic("t", bytes(16), False, {p: Partition(-1, 0, 1) for p in range(500)})}
        cursors = [cursor_of(stream, partition) for partition in range(500)]
        for cursor in cursors:
            fetchers.fetch(cursor)
        assert cursors[0].note == "source: the partition has no leader"
        assert len((await broker.asked(1)).offsets) == 500
        assert refreshed == [{"t"}] * 3
        assert not cursors[0].note
        await until(lambda: fetchers._looking is not None and fetchers._looking.done())
        assert not died

    play_source(scene)


def test_partitions_without_a_leader_say_that_their_metadata_cannot_be_read_and_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetchers_module, "_LEADERLESS_PAUSE", 0.01)

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        led, refreshes = stream.source.topics["t"], 0

        async def refresh(topics: Iterable[str]) -> None:
            nonlocal refreshes
            refreshes += 1
            if not cursor.note.endswith("unexpected ValueError: a bug"):
                raise ValueError("a bug")
            stream.source.topics = {"t": led}
            fetchers.fetch(cursor)

        fetchers = Fetchers(stream.source, TASK, stream.buffer, refresh, lambda _: None)
        stream.source.topics = {"t": Topic("t", bytes(16), False, {0: Partition(-1, 0, 1)})}
        cursor = cursor_of(stream)
        fetchers.fetch(cursor)
        assert (await broker.asked(1)).offsets == {("t", 0): 100}
        assert refreshes == 2 and not cursor.note

    play_source(scene)


def test_a_fetcher_that_dies_is_not_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the call, the partitions of its broker would wait for ever."""
    died: list[Exception] = []

    def closes_badly(*_: object) -> None:
        raise ValueError("a bug")

    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)

        async def refresh(topics: Iterable[str]) -> None: ...

        fetchers = Fetchers(stream.source, TASK, stream.buffer, refresh, died.append)
        cursor = cursor_of(stream)
        fetchers.fetch(cursor)
        await broker.asked(1)
        monkeypatch.setattr("mirrormaker.worker.fetcher.fetch_again", closes_badly)
        broker.connections[0].close(ConnectionLost("gone"))
        await until(lambda: bool(died))

    play_source(scene)
    assert [type(error) for error in died] == [ValueError]


def test_a_cursor_follows_its_leader_and_forgets_what_the_old_one_still_sends() -> None:
    async def scene(stream: Stream) -> None:
        broker = SourceBroker(stream)
        stream.source.brokers = {1: ("a", 1), 2: ("b", 1)}
        cursor = cursor_of(stream)
        stream.fetch(cursor)
        await broker.asked(1)
        cursor.fetch_from = 150, 0
        stream.source.topics = {"t": Topic("t", bytes(16), False, {0: Partition(2, 1, 1)})}
        before = cursor.fetch_round
        stream.fetch(cursor)
        assert cursor.fetch_round == before + 1
        assert (await broker.asked(2)).offsets == {("t", 0): 100}, "it begins after what it has"
        stream.forget(cursor)
        fetchers = stream._fetchers._by_node
        assert not fetchers[1].cursors and not fetchers[2].cursors and not stream._fetchers._of
        await asyncio.sleep(0)

    play_source(scene)
