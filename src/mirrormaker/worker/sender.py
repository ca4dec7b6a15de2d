"""Writing to one target broker over one connection: several requests in flight, with one batch per partition each."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial

from mirrormaker.errors import BrokerError, ConnectionLost, DataError
from mirrormaker.kafka_errors import CORRUPT_MESSAGE
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records import legacy
from mirrormaker.wire.transport.connection import Connection, Part
from mirrormaker.worker.outlet import Outlet
from mirrormaker.worker.stream_task import StreamTask

# Bytes of one partition's batches that are sent at once. Fewer wait for the batches of other partitions, microseconds later.
_LARGE = 64 << 10


class Sender:
    """One connection to one target broker. Every outlet keeps to one sender, so its batches arrive in order."""

    def __init__(self, node: int, lane: int, target: Cluster, task: StreamTask, produce_timeout_ms: int) -> None:
        """`lane` tells several connections to one broker apart; the first batch opens the connection."""
        self.node, self.lane = node, lane
        # Outlets with batches that may be sent, in turn.
        self.ready: dict[Outlet, None] = {}
        self._target, self._task, self._produce_timeout_ms = target, task, produce_timeout_ms
        self._in_flight: deque[tuple[float, list[Outlet]]] = deque()  # (when it was sent, its outlets)
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        # The call that sends small batches, once a fetch has brought its last one.
        self._pump_soon: asyncio.Handle | None = None
        # Since when batches are ready and nothing is in flight, as `tick` has seen it.
        self._stuck_since: float | None = None

    def offer(self, outlet: Outlet) -> None:
        """Send the outlet's batches as soon as possible.

        A fetch at the live end brings one small batch of each partition, and all of them go in one request.
        """
        self.ready[outlet] = None
        if outlet.ready[0].size * len(outlet.ready) >= _LARGE:
            self.pump()
        elif self._pump_soon is None:
            self._pump_soon = asyncio.get_running_loop().call_soon(self.pump)

    def forget(self, outlet: Outlet) -> None:
        """Send no more batches of the outlet; answers to those in flight still come."""
        self.ready.pop(outlet, None)

    def pump(self) -> None:
        """Send requests until too many are in flight or the kernel's send buffer is full."""
        if self._pump_soon is not None:
            self._pump_soon.cancel()
            self._pump_soon = None
        try:
            self._pump()
        except Exception as error:  # whatever it is, no cursor must wait for a batch that nobody sends
            self._lost(error)

    def _pump(self) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            if self.ready and (self._opening is None or self._opening.done()):
                self._opening = asyncio.create_task(self._open())
            return
        limit = self._task.max_in_flight
        while self.ready and len(self._in_flight) < limit and connection.can_write and connection.is_open:
            if not self._send(connection, limit):
                return

    def _send(self, connection: Connection, limit: int) -> bool:
        """Send one request with a batch of each outlet that has one ready and fits; return False if there is none."""
        version = produce.version_for(connection, (outlet.target_id for outlet in self.ready))
        if version < produce.FIRST_WITH_RECORD_BATCHES and any(
            outlet.channel.identity.is_numbered for outlet in self.ready
        ):
            self._lost(ConnectionLost(f"broker {self.node} says that it is older than 0.11, and the target is not"))
            return False
        topics: dict[tuple[str, bytes], dict[int, Part]] = {}
        outlets: list[Outlet] = []
        # From now on: `_lost` must find these outlets if the request cannot be made.
        self._in_flight.append((time.monotonic(), outlets))
        room = 1 << 62  # the first batch is sent whatever its size
        for outlet in list(self.ready):
            topic = topics.get((outlet.topic, outlet.target_id))
            if topic is not None and outlet.partition in topic:
                continue  # the request has a batch of another source partition for this one; the next request is for it
            entry = outlet.next_batch(limit, room) if outlet.ready else None
            if entry is None:
                if not outlet.ready or outlet.ready[0].size <= room:
                    del self.ready[outlet]  # an acknowledgement will offer it again
                continue
            room = min(room, self._task.max_request_bytes) - entry.size
            data: Part = entry.batch.data
            if version < produce.FIRST_WITH_RECORD_BATCHES:
                try:
                    data = legacy.to_message_set(entry.batch, 1 if version >= 2 else 0)
                except DataError as error:
                    outlet.refused(BrokerError(CORRUPT_MESSAGE, str(error)))
                    continue
            if topic is None:
                topic = topics[outlet.topic, outlet.target_id] = {}
            topic[outlet.partition] = data
            outlets.append(outlet)
            if not outlet.ready:
                del self.ready[outlet]
        if not outlets:
            self._in_flight.pop()
            return False
        # If some did not fit, those that were served go to the end of the line.
        if room < 0 or len(self.ready) > len(outlets):
            for outlet in filter(self.ready.__contains__, outlets):
                del self.ready[outlet]
                self.ready[outlet] = None
        parts = produce.encode_request(
            version,
            [(*topic, list(batches.items())) for topic, batches in topics.items()],
            acks=self._task.acks,
            timeout_ms=self._produce_timeout_ms,
        )
        connection.send(produce.API_KEY, version, produce.is_flexible(version), parts, partial(self._answered, version))
        return True

    def _answered(self, version: int, data: memoryview | None, error: Exception | None) -> None:
        if not self._in_flight:
            return  # the connection was given up already
        try:
            if data is None:
                raise error or ConnectionLost("closed")
            results = produce.decode_response(version, data, len(self._in_flight[0][1]))
            self._take_results(results, by_id=version >= produce.FIRST_WITH_TOPIC_IDS)
        except Exception as reason:  # whatever it is, no cursor must wait for an answer that nobody reads
            self._lost(reason)
        else:
            self.pump()

    def _take_results(self, results: list[produce.Appended], *, by_id: bool) -> None:
        """Give each outlet of the oldest request its result."""
        by_partition = {result[:2]: result for result in results}
        for outlet in self._in_flight[0][1]:
            result = by_partition.get((outlet.target_id if by_id else outlet.topic, outlet.partition))
            if result is not None and result.error == 0 and result.base_offset >= 0:
                outlet.acknowledged(result.base_offset)
            elif result is not None and result.error:
                outlet.refused(BrokerError(result.error, result.message or ""))
            else:
                outlet.refused(ConnectionLost(f"broker {self.node} did not answer for {outlet}"))
            if outlet.ready:
                self.ready[outlet] = None
        # Only now: `_lost` must find all outlets of the request if one of them fails.
        self._in_flight.popleft()

    async def _open(self) -> None:
        try:
            self._connection = await self._target.connection(self.node, f"produce-{self.lane}")
            if not self._connection.is_open:
                raise self._connection.error or ConnectionLost(f"broker {self.node} closed the connection")
            self._connection.on_drain = self.pump
        except Exception as error:  # a version that does not fit, an answer that cannot be read, and so on
            self._lost(error)
        else:
            self.pump()

    def _lost(self, error: Exception) -> None:
        """Close the connection, and interrupt every cursor that has batches in flight or ready here."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close(abort=True)
        self._connection = None
        affected = {outlet: None for _, outlets in self._in_flight for outlet in outlets} | self.ready
        self._in_flight.clear()
        self.ready.clear()
        for outlet in affected:
            outlet.abandoned(error)

    def tick(self, timeout: float) -> None:
        """Give up the connection if for so many seconds the broker has not answered, or nothing could be sent to it.

        Nothing can be sent while a connection is being opened, or while a login is renewed on it.
        """
        now = time.monotonic()
        if self._in_flight or not self.ready:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        if self._in_flight and now - self._in_flight[0][0] > timeout:
            self._lost(ConnectionLost(f"broker {self.node} did not acknowledge within {timeout:g} s"))
        elif self._stuck_since is not None and now - self._stuck_since > timeout:
            if self._opening is not None:
                self._opening.cancel()
            self._stuck_since = None
            self._lost(ConnectionLost(f"nothing could be sent to broker {self.node} for {timeout:g} s"))

    def close(self, *, abort: bool) -> None:
        """Close the connection; `abort` resets it, so that the broker drops what it has not read."""
        if self._pump_soon is not None:
            self._pump_soon.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close(abort=abort)
