"""The server in the driver that running streams connect to.

A stream connects, both sides prove that they know the secret, and then the stream reports. The server answers each report, which
extends the stream's lease, and sends orders unasked. It does not answer while its flow is not certain of its place in the consumer
group. Of two attempts at one stream only the newest counts. A stream that stays silent is given up.
"""

from __future__ import annotations

import asyncio
import secrets
import traceback
from typing import Protocol

from mirrormaker.control.control_encoding import MAX_MESSAGE, DriverEnd
from mirrormaker.control.control_messages import Order, Report
from mirrormaker.control.control_session import HANDSHAKE_BYTES, DriverHandshake, Session, StreamAttempt
from mirrormaker.control.frames import FrameConnection
from mirrormaker.control.lease import LEASE
from mirrormaker.errors import BadMessage
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.wire.transport.turns import give_way

_HELLO_WITHIN = 5.0  # seconds for a stranger to prove itself
# Connections that have not proved themselves. Streams that start at the same moment count too, each for a round trip.
_MAX_STRANGERS = 256
_SILENT_FOR = LEASE + 2.0  # seconds without a report after which a stream is given up; its lease is over by then


class FlowListener(Protocol):
    """The part of a flow that the control server talks to."""

    @property
    def may_answer(self) -> bool:
        """True while the flow is certain of its place in the group."""

    def stream_arrived(self, stream: int) -> None:
        """A stream is connected."""

    def stream_reported(self, stream: int, report: Report) -> None:
        """A stream has sent a report. It must be taken in even if it is not answered: a stream says nothing twice."""

    def stream_left(self, stream: int) -> None:
        """A stream's connection has ended."""


class _ConnectedStream:
    """A connection whose other side has proved which attempt at which stream it is."""

    def __init__(self, attempt: StreamAttempt, connection: FrameConnection, session: Session) -> None:
        self.attempt = attempt
        self._connection, self._session, self._end = connection, session, DriverEnd()

    @property
    def key(self) -> tuple[int, int]:
        return self.attempt.flow, self.attempt.stream

    @property
    def age(self) -> tuple[int, int]:
        return self.attempt.job, self.attempt.attempt

    def send(self, order: Order) -> None:
        self._connection.write(*map(self._session.seal, self._end.orders(order)))

    async def next_report(self) -> Report:
        async with asyncio.timeout(_SILENT_FOR):
            message = await self._connection.read()
        return self._end.report(self._session.open(message))

    def close(self) -> None:
        self._connection.close()


class ControlServer:
    """One server for all flows of the process."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.address: tuple[str, int] = ("", 0)
        self._flows: dict[int, FlowListener] = {}
        self._streams: dict[tuple[int, int], _ConnectedStream] = {}
        self._strangers: dict[FrameConnection, None] = {}  # the oldest first
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, advertised: str) -> None:
        """Listen on `host`; streams reach the server under the address `advertised`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: FrameConnection(HANDSHAKE_BYTES, self._admit_stranger), host, 0)
        self.address = (advertised, self._server.sockets[0].getsockname()[1])

    def register(self, flow: int, listener: FlowListener) -> None:
        """Send the events of a flow's streams to `listener`."""
        self._flows[flow] = listener

    def is_connected(self, flow: int, stream: int) -> bool:
        """Return True if the stream is connected."""
        return (flow, stream) in self._streams

    def order(self, flow: int, stream: int, order: Order) -> None:
        """Send an order now; it is lost if the stream is not connected."""
        connected = self._streams.get((flow, stream))
        if connected is not None:
            connected.send(order)

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connected in self._streams.values():
            connected.close()
        for stranger in list(self._strangers):
            stranger.abort()

    def _admit_stranger(self, connection: FrameConnection) -> None:
        """Serve a new connection. If there are too many strangers, the oldest one goes: a stream proves itself at once."""
        if len(self._strangers) >= _MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()
        self._strangers[connection] = None
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        # The stream finds its connection closed, and Spark starts it again.
        watch(task, traceback.print_exception)

    async def _serve(self, connection: FrameConnection) -> None:
        """Serve one connection from its challenge to its end."""
        try:
            async with asyncio.timeout(_HELLO_WITHIN):
                connected = await self._greet(connection)
            self._strangers.pop(connection, None)
            await self._listen(connected)
        except (OSError, BadMessage, TimeoutError):
            pass  # a stranger, or a stream that died
        finally:
            self._strangers.pop(connection, None)
            connection.close()

    async def _greet(self, connection: FrameConnection) -> _ConnectedStream:
        """Let a stranger prove that it is one of our streams, and prove to it that this is its driver."""
        handshake = DriverHandshake(self.secret)
        connection.write(handshake.challenge())
        attempt, welcome, session = handshake.accept(await connection.read())
        connection.write(welcome)
        connection.max_bytes = MAX_MESSAGE
        return _ConnectedStream(attempt, connection, session)

    async def _listen(self, connected: _ConnectedStream) -> None:
        """Take in a stream's reports until its connection ends."""
        flow, stream = connected.key
        if flow not in self._flows:
            return
        if not self._admit(connected):
            connected.send(Order(stop=True))
            return
        try:
            self._flows[flow].stream_arrived(stream)
            while True:
                report = await connected.next_report()
                if self._streams.get(connected.key) is not connected:
                    connected.send(Order(stop=True))
                    continue
                self._flows[flow].stream_reported(stream, report)
                if report.number and self._flows[flow].may_answer:
                    connected.send(Order(heard=report.number))
                # The pieces of a long report may all be here already.
                await give_way()
        finally:
            if self._streams.get(connected.key) is connected:
                del self._streams[connected.key]
                self._flows[flow].stream_left(stream)

    def _admit(self, connected: _ConnectedStream) -> bool:
        """Let the newest attempt in; return False for an older one."""
        before = self._streams.get(connected.key)
        if before is not None:
            if before.age > connected.age:
                return False
            before.send(Order(stop=True))
            self._flows[connected.attempt.flow].stream_left(connected.attempt.stream)
        self._streams[connected.key] = connected
        return True
