"""The server in the driver that running streams connect to.

A stream connects, proves that it knows the secret, and then reports. The server answers each report, which extends the stream's
lease, and sends orders unasked. It does not answer while its flow is not certain of its place in the consumer group. Of two
attempts at one stream only the newest counts. A stream that stays silent is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from typing import NamedTuple, Protocol

from mirrormaker.control.control_client import proof
from mirrormaker.control.control_messages import (
    MAX_LINE,
    Challenge,
    Hello,
    Order,
    Report,
    decode_hello,
    decode_report,
    encode,
)
from mirrormaker.control.lease import LEASE
from mirrormaker.errors import BadMessage

_HELLO_WITHIN = 5.0  # seconds for a stranger to prove itself
_SILENT_FOR = LEASE + 2.0  # seconds without a report after which a stream is given up; its lease is over by then


class FlowListener(Protocol):
    """The part of a flow that the control server talks to."""

    @property
    def may_answer(self) -> bool:
        """True while the flow is certain of its place in the group."""

    def stream_arrived(self, stream: int) -> None:
        """A stream is connected."""

    def stream_reported(self, stream: int, report: Report) -> None:
        """A stream has sent a report."""

    def stream_left(self, stream: int) -> None:
        """A stream's connection has ended."""


class _Connected(NamedTuple):
    job: int
    attempt: int
    writer: asyncio.StreamWriter


class ControlServer:
    """One server for all flows of the process."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.address: tuple[str, int] = ("", 0)
        self._flows: dict[int, FlowListener] = {}
        self._streams: dict[tuple[int, int], _Connected] = {}
        self._server: asyncio.Server | None = None

    async def open(self, host: str, advertised: str) -> None:
        """Listen on `host`; streams reach the server under the address `advertised`."""
        self._server = await asyncio.start_server(self._serve, host, 0, limit=MAX_LINE)
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
            _send(connected.writer, order)

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connected in self._streams.values():
            connected.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection from its challenge to its end."""
        key: tuple[int, int] | None = None
        try:
            hello = await asyncio.wait_for(self._greet(reader, writer), _HELLO_WITHIN)
            if hello is None:
                return
            key = (hello.flow, hello.stream)
            if not self._admit(key, _Connected(hello.job, hello.attempt, writer)):
                key = None
                _send(writer, Order(stop=True))
                return
            flow = self._flows[hello.flow]
            flow.stream_arrived(hello.stream)
            while line := await asyncio.wait_for(reader.readline(), _SILENT_FOR):
                if not self._is_current(key, writer):
                    _send(writer, Order(stop=True))
                    continue
                report = decode_report(line)
                flow = self._flows[hello.flow]
                flow.stream_reported(hello.stream, report)
                if flow.may_answer:
                    _send(writer, Order(heard=report.number))
        except (OSError, ValueError, BadMessage, asyncio.TimeoutError):
            pass  # a stranger, or a stream that died in the middle of a line
        except asyncio.CancelledError:
            pass  # the process ends; asyncio would print a trace of cancelled connections
        finally:
            if key is not None and self._is_current(key, writer):
                del self._streams[key]
                self._flows[key[0]].stream_left(key[1])
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Hello | None:
        """Challenge a stranger; return its hello if the proof is right."""
        challenge = Challenge(secrets.token_bytes(32))
        _send(writer, challenge)
        hello = decode_hello(await reader.readline())
        is_known = hmac.compare_digest(hello.proof.encode(), proof(self.secret, challenge.nonce).encode())
        return hello if is_known and hello.flow in self._flows else None

    def _admit(self, key: tuple[int, int], connected: _Connected) -> bool:
        """Let the newest attempt in; send an older one away."""
        before = self._streams.get(key)
        if before is not None:
            if before[:2] > connected[:2]:
                return False
            _send(before.writer, Order(stop=True))
            self._flows[key[0]].stream_left(key[1])
        self._streams[key] = connected
        return True

    def _is_current(self, key: tuple[int, int], writer: asyncio.StreamWriter) -> bool:
        connected = self._streams.get(key)
        return connected is not None and connected.writer is writer


def _send(writer: asyncio.StreamWriter, message: Challenge | Order) -> None:
    if not writer.is_closing():
        writer.write(encode(message))
