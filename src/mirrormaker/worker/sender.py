"""Writing to one target broker over one connection: several requests under way, each with one batch per partition."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from mirrormaker.errors import BadFrame, BrokerError, ConnectionLost, CorruptBatch
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records import legacy
from mirrormaker.wire.transport.connection import Connection, Part
from mirrormaker.worker.outlet import Outlet

if TYPE_CHECKING:
    from mirrormaker.worker.stream import Stream

_CORRUPT = 2


class Sender:
    """One connection to one target broker; every target partition is pinned to one sender, so its order is the connection's."""

    def __init__(self, stream: Stream, node: int, lane: int) -> None:
        self.stream, self.node, self.lane = stream, node, lane
        self.ready: dict[Outlet, None] = {}  # those with batches that may go out, in turn
        self._under_way: deque[tuple[float, list[Outlet]]] = deque()
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None

    def offer(self, outlet: Outlet) -> None:
        self.ready[outlet] = None
        self.pump()

    def forget(self, outlet: Outlet) -> None:
        self.ready.pop(outlet, None)

    def pump(self) -> None:
        """Send as long as the broker's window is open and the kernel takes it."""
        connection = self._connection
        if connection is None or not connection.is_open:
            if self.ready and (self._opening is None or self._opening.done()):
                self._opening = asyncio.create_task(self._open())
            return
        limit = self.stream.work.max_in_flight
        while self.ready and len(self._under_way) < limit and connection.can_write and connection.is_open:
            if not self._send(connection, limit):
                return

    def _send(self, connection: Connection, limit: int) -> bool:
        """One request: one batch of each partition that has one, as far as they fit."""
        work = self.stream.work
        version = produce.version_for(connection)
        if version < produce.TAKES_BATCHES and any(outlet.channel.identity.is_numbered for outlet in self.ready):
            self._lost(ConnectionLost(f"broker {self.node} says that it is older than 0.11, and the target is not"))
            return False
        topics: dict[tuple[str, bytes], dict[int, Part]] = {}
        outlets: list[Outlet] = []
        room = 1 << 62  # the first batch goes whatever its size
        for outlet in list(self.ready):
            topic = topics.get((outlet.topic, outlet.target_id))
            if topic is not None and outlet.partition in topic:
                continue  # another source partition's batch is in this request: its turn is next
            entry = outlet.next_batch(limit, room) if outlet.ready else None
            if entry is None:
                if not outlet.ready or outlet.ready[0].size <= room:
                    del self.ready[outlet]  # offered again when something is acknowledged
                continue
            room = min(room, work.max_request_bytes) - entry.size
            data: Part = entry.batch.data
            if version < produce.TAKES_BATCHES:
                try:
                    data = legacy.older(entry.batch, 1 if version >= 2 else 0)
                except CorruptBatch as error:
                    outlet.refused(BrokerError(_CORRUPT, str(error)))
                    continue
            if topic is None:
                topic = topics[outlet.topic, outlet.target_id] = {}
            topic[outlet.partition] = data
            outlets.append(outlet)
            if not outlet.ready:
                del self.ready[outlet]
        if not outlets:
            return False
        if room < 0 or len(self.ready) > len(
            outlets
        ):  # some did not fit: those who were served go to the end of the line
            for outlet in filter(self.ready.__contains__, outlets):
                del self.ready[outlet]
                self.ready[outlet] = None
        parts = produce.request(
            version,
            [(*topic, list(batches.items())) for topic, batches in topics.items()],
            acks=work.acks,
            timeout_ms=self.stream.produce_timeout_ms,
        )
        self._under_way.append((time.monotonic(), outlets))
        connection.send(produce.API_KEY, version, produce.is_flexible(version), parts, partial(self._answered, version))
        return True

    def _answered(self, version: int, data: memoryview | None, error: Exception | None) -> None:
        if not self._under_way:
            return  # given up already
        if data is None:
            self._lost(error or ConnectionLost("closed"))
            return
        try:
            results = produce.answer(version, data)
        except BadFrame as bad:
            self._lost(ConnectionLost(str(bad)))
            return
        _, outlets = self._under_way.popleft()
        found = {result[:2]: result for result in results}
        by_id = version >= 13
        for outlet in outlets:
            result = found.get((outlet.target_id if by_id else outlet.topic, outlet.partition))
            if result is not None and result.error == 0 and result.base_offset >= 0:
                outlet.acknowledged(result.base_offset)
            elif result is not None and result.error:
                outlet.refused(BrokerError(result.error, result.message or ""))
            else:
                outlet.refused(ConnectionLost(f"broker {self.node} did not answer for {outlet}"))
            if outlet.ready:
                self.ready[outlet] = None
        self.pump()

    async def _open(self) -> None:
        try:
            self._connection = await self.stream.target.connection(self.node, f"produce-{self.lane}")
            self._connection.on_drain = self.pump
            self.pump()
        except OSError as error:
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        """Everyone whose batches are under way here, or wait for it, has to look at the target's log again."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close(abort=True)
        self._connection = None
        affected = {outlet: None for _, outlets in self._under_way for outlet in outlets} | self.ready
        self._under_way.clear()
        self.ready.clear()
        for outlet in affected:
            outlet.abandoned(error if isinstance(error, Exception) else ConnectionLost(str(error)))

    def tick(self, timeout: float) -> None:
        """Give up on a broker that holds a request for too long."""
        if self._under_way and time.monotonic() - self._under_way[0][0] > timeout:
            self._lost(ConnectionLost(f"broker {self.node} did not acknowledge within {timeout:g} s"))

    def close(self, *, abort: bool) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close(abort=abort)
