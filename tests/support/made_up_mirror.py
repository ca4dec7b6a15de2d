"""A real status server with made-up figures, for tests of the status page, its documents and its metrics."""

from __future__ import annotations

import asyncio
import random
import threading
import time

from mirrormaker.control.control_messages import CounterReport
from mirrormaker.settings.status_options import StatusSettings
from mirrormaker.status.counts import Counts
from mirrormaker.status.documents import Status
from mirrormaker.status.event_log import EventLog
from mirrormaker.status.http_server import StatusServer
from mirrormaker.status.snapshot import FLOWING, WAITING, GroupFigures, GroupRow, Partition, Snapshot, Source, Stream


class MadeUpMirror:
    """The figures of a mirror with this many partitions. Each snapshot shows more records than the last one."""

    def __init__(self, partitions: int, streams: int = 4, topics: int = 20) -> None:
        self.counts, self.events = Counts(), EventLog()
        self.keys = [(f"topic-{n % topics:02d}", n // topics) for n in range(partitions)]
        self.streams = streams
        self.waiting: set[tuple[str, int]] = set()  # partitions that do not flow
        self.mirrored = 0
        synced = GroupRow("billing", "topic-00", "synced", True, 70, 67, 0, 0, time.time())
        owned = GroupRow("shipping", "topic-01", "owned by the target", False, 40, 3, 34, 0, 0.0)
        self.groups: GroupFigures | None = GroupFigures(
            {"synced": 1, "owned by the target": 1, "active on the target": 0}, 1, 34, 0, 0.02, time.time(), "", (owned, synced), 2,
        )  # fmt: skip
        self._random = random.Random(7)
        for stream in range(streams):
            self.counts.streams[stream].arrived()

    def mirror(self) -> None:
        """Count the records of one more second."""
        for key in self.keys:
            if key in self.waiting:
                continue
            records = self._random.randrange(1, 50)
            late = tuple((5 + at, records) for at in range(self._random.randrange(1, 6)))
            counters = CounterReport(1, records % 2, late, 40 * records, 0, 0)
            self.counts.add(key, records, records * 1000, counters)
            self.mirrored += records

    def snapshot(self) -> Snapshot:
        """Return the figures after one more second."""
        self.mirror()
        source = Source("old", "old1:9092", "mirror", "c1", "here-0", "", True, (), 0, 0, self.counts, self.groups)
        streams = [
            Stream("old", n, len(self.keys) // self.streams, self.counts.streams[n]) for n in range(self.streams)
        ]
        return Snapshot(
            (source,), "new1:9092", "c2", "exactly once, in order", "acks=all", 32 << 20, tuple(streams),
            tuple(self._partition(at, key) for at, key in enumerate(self.keys)),
        )  # fmt: skip

    def _partition(self, at: int, key: tuple[str, int]) -> Partition:
        state, why = (WAITING, "NOT_ENOUGH_REPLICAS (19)") if key in self.waiting else (FLOWING, "")
        return Partition("old", *key, at % self.streams, state, why, 1000, (at * 7919) % 1000)


class ServedStatus:
    """Serves the status of a made-up mirror from a thread, inside `with`."""

    def __init__(
        self, mirror: MadeUpMirror, token: str | None = None, host: str = "127.0.0.1", max_partitions: int = 1000
    ) -> None:
        self._settings = StatusSettings(host, 0, token, max_partitions)
        self.status = Status(mirror.snapshot, mirror.events, max_partitions)
        self._opened = threading.Event()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ServedStatus:
        self._thread.start()
        assert self._opened.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)
        self.loop.close()

    @property
    def port(self) -> int:
        """The port of the server."""
        return self.server.port

    def _run(self) -> None:
        self.loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self.server = StatusServer(self._settings, self.status)
        self.url = await self.server.open()
        self._opened.set()
        await self._stopping.wait()
        self.server.close()
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        deadline = time.monotonic() + 5
        while any(not task.done() for task in others) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
