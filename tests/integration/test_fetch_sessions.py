"""Fetch sessions with a real broker: what polls cost, and that partitions which come and go get all their records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.model.position import Cut
from mirrormaker.settings.addresses import addresses
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.protocol import fetch
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.stream import Stream
from tests.support.worker_stage import START, TASK
from tests.support.writing import many, write

PARTITIONS = 60
SETTINGS: dict[str, Any] = {
    "fetch_max_wait_ms": 200, "fetch_max_bytes": 1 << 20, "partition_fetch_bytes": 1 << 20,
}  # fmt: skip


class Readers:
    """Cursors of all partitions of a topic, which only count what they get."""

    def __init__(self, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.topic = cluster, topic
        source = Endpoint(addresses(cluster.bootstrap, "test", "bootstrap.servers"))
        self.stream = Stream(replace(TASK, source=source, **SETTINGS), 0, 0)
        self.polls: list[int] = []  # bytes of each
        encode = fetch.encode_request

        def counted(*args: Any, **settings: Any) -> bytes:
            body = encode(*args, **settings)
            self.polls.append(len(body))
            return body

        async def accept(cursor: Cursor, *_: object) -> None:
            cursor.expected = cursor.fetch_from[0]

        monkeypatch.setattr(fetch, "encode_request", counted)
        monkeypatch.setattr(Cursor, "accept", accept)

    async def start(self) -> None:
        """Fetch all partitions from their first record on."""
        await self.stream.source.refresh([self.topic])
        self.cursors = [self._cursor(partition) for partition in range(PARTITIONS)]
        for cursor in self.cursors:
            self.stream.fetch(cursor)

    def _cursor(self, partition: int) -> Cursor:
        position = replace(START, topic=self.topic, partition=partition, offset=0, cuts=(Cut(partition, 0, 0),))
        cursor = Cursor(self.stream, position, clean=True)
        cursor.flowing = True
        return cursor

    async def write(self, partitions: range) -> None:
        """Write three records to each of these partitions."""
        parts = {partition: [many(3)] for partition in partitions}
        await asyncio.to_thread(write, self.cluster, self.topic, parts)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        while not condition():
            await asyncio.sleep(0.01)

    async def idle_poll(self) -> int:
        """Return the bytes of a poll that follows a poll without news."""
        await self.until(lambda: len(self.polls) > 3)
        seen = len(self.polls)
        await self.until(lambda: len(self.polls) > seen + 2)
        return self.polls[-1]

    def ends(self) -> list[int]:
        """Return up to which offset each cursor has got everything."""
        return [cursor.expected for cursor in self.cursors]


async def scene(readers: Readers) -> int:
    """Let partitions get records, leave and join; return the bytes of an idle poll."""
    await readers.write(range(PARTITIONS))
    await readers.start()
    await readers.until(lambda: readers.ends() == [3] * PARTITIONS)
    idle = await readers.idle_poll()
    await readers.write(range(7, 8))
    await readers.until(lambda: readers.cursors[7].expected == 6)
    half = readers.cursors[::2]
    for cursor in half:
        readers.stream.forget(cursor)
        cursor.fetch_round += 1
    await readers.idle_poll()
    await readers.write(range(PARTITIONS))
    await readers.until(lambda: min(readers.ends()[1::2]) == 6)
    assert {cursor.expected for cursor in half} == {3}
    for cursor in half:
        cursor.fetch_from = cursor.expected, -1
        readers.stream.fetch(cursor)
    await readers.until(lambda: min(readers.ends()) == 6)
    assert [cursor.high_watermark for cursor in readers.cursors] == [6] * 7 + [9] + [6] * (PARTITIONS - 8)
    readers.stream._close()
    return idle


def test_an_idle_poll_names_no_partition(source: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source.create_topic(topic_name, partitions=PARTITIONS)

    async def whole() -> None:
        assert await scene(Readers(source, topic_name, monkeypatch)) < 50

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_broker_without_room_for_a_session_is_asked_for_all_partitions(
    topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(name="sessions", settings={"max.incremental.fetch.session.cache.slots": "0"}) as cluster:
        cluster.create_topic(topic_name, partitions=PARTITIONS)

        async def whole() -> None:
            assert await scene(Readers(cluster, topic_name, monkeypatch)) > 20 * PARTITIONS

        asyncio.run(asyncio.wait_for(whole(), 60))
