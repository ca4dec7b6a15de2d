"""The reading half of a stream: a fetcher for each source broker, and every cursor at the fetcher of its leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirrormaker.errors import describe_any
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.worker.buffer import Buffer
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetcher import Fetcher
from mirrormaker.worker.intake import fetch_again
from mirrormaker.worker.stream_task import StreamTask

_LEADERLESS_PAUSE = 0.5  # seconds until the metadata of partitions without a leader are refreshed


class Fetchers:
    """Starts a fetcher when a broker leads its first partition, and moves cursors when leaders change."""

    def __init__(
        self,
        source: Cluster,
        task: StreamTask,
        buffer: Buffer,
        refresh: Callable[[set[str]], Awaitable[None]],
        fail: Callable[[Exception], None],
    ) -> None:
        """`refresh` reads the source's metadata of some topics again, and calls `fetch` for each of their cursors.

        `fail` ends the stream, because a task died without which partitions would not be fetched.
        """
        self._source, self._task, self._buffer, self._refresh, self._fail = source, task, buffer, refresh, fail
        self._by_node: dict[int, Fetcher] = {}
        self._of: dict[Cursor, Fetcher] = {}
        self._leaderless: dict[Cursor, None] = {}
        self._looking: asyncio.Task[None] | None = None

    def fetch(self, cursor: Cursor) -> None:
        """Bring a cursor to the fetcher of its leader."""
        leader = self._source.leader(cursor.topic, cursor.partition)
        fetcher = self._of.get(cursor)
        if fetcher is not None and (leader is None or fetcher.node != leader.leader):
            self.forget(cursor)
            fetch_again(cursor)
        if leader is None:
            cursor.note = "source: the partition has no leader"
            self._leaderless[cursor] = None
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_for_leaders())
                watch(self._looking, self._fail)
            return
        self._leaderless.pop(cursor, None)
        fetcher = self._of[cursor] = self._by_node.get(leader.leader) or self._start(leader.leader)
        fetcher.join(cursor)

    def _start(self, node: int) -> Fetcher:
        fetcher = self._by_node[node] = Fetcher(
            node, self._source, self._task, self._buffer, room_to_fetch=self._room_to_fetch, refresh=self._refresh
        )
        watch(fetcher.task, self._fail)
        return fetcher

    def forget(self, cursor: Cursor) -> None:
        """Fetch nothing more for a cursor."""
        self._leaderless.pop(cursor, None)
        fetcher = self._of.pop(cursor, None)
        if fetcher is not None:
            fetcher.leave(cursor)

    async def _look_for_leaders(self) -> None:
        """Refresh the metadata of partitions without a leader until all have one."""
        while self._leaderless:
            await asyncio.sleep(_LEADERLESS_PAUSE)
            if self._leaderless:
                topics = {cursor.topic for cursor in self._leaderless}
                refresh = asyncio.ensure_future(self._refresh(topics))
                watch(refresh, self._note_no_refresh)
                # A refresh that fails is no reason to stop looking.
                await asyncio.wait([refresh])

    def _note_no_refresh(self, error: Exception) -> None:
        for cursor in self._leaderless:
            cursor.note = f"source: the partition has no leader, and its metadata cannot be read: {describe_any(error)}"

    def _room_to_fetch(self) -> int:
        polls = sum(bool(fetcher.cursors) for fetcher in self._by_node.values())
        return min(self._task.fetch_max_bytes, self._buffer.room_for_poll(polls))

    def close(self) -> None:
        """Fetch nothing more for any cursor."""
        for fetcher in self._by_node.values():
            fetcher.task.cancel()
        if self._looking is not None:
            self._looking.cancel()
