"""Where running streams report to the driver, and hear what to do.

A stream connects, proves that it knows the secret, and from then on reports; the desk answers each report (that is the stream's
lease, counted from when the report was sent) and speaks up unasked when it has an order. It does not answer while its flow is not
sure of its seat in the group. Of two attempts at one stream only the newest is listened to; one that falls silent is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
from typing import Any, Protocol

from mirrormaker.control.control_client import MAX_LINE, proof
from mirrormaker.worker.stream_task import LEASE

_HELLO_WITHIN = 5.0  # seconds for a stranger to prove itself
_SILENT_FOR = LEASE + 2.0  # seconds without a report: the stream's lease is long over, whatever became of it


class Listener(Protocol):
    """A flow, as the desk sees it."""

    @property
    def may_go_on(self) -> bool: ...
    def arrived(self, stream: int) -> None: ...
    def reported(self, stream: int, message: dict[str, Any]) -> None: ...
    def left(self, stream: int) -> None: ...


class ControlServer:
    """One server for all flows of the process."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.address: tuple[str, int] = ("", 0)
        self._flows: dict[int, Listener] = {}
        self._seats: dict[tuple[int, int], tuple[int, int, asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None

    async def open(self, host: str, advertised: str) -> None:
        self._server = await asyncio.start_server(self._serve, host, 0, limit=MAX_LINE)
        self.address = (advertised, self._server.sockets[0].getsockname()[1])

    def register(self, flow: int, listener: Listener) -> None:
        self._flows[flow] = listener

    def is_seated(self, flow: int, stream: int) -> bool:
        return (flow, stream) in self._seats

    def order(self, flow: int, stream: int, **order: Any) -> None:
        """Tell a stream something now; it is lost if the stream is not there."""
        seat = self._seats.get((flow, stream))
        if seat is not None:
            _say(seat[2], order)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for _, _, writer in self._seats.values():
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seat: tuple[int, int] | None = None
        attempt = (-1, -1)
        try:
            hello = await asyncio.wait_for(self._welcome(reader, writer), _HELLO_WITHIN)
            if hello is None:
                return
            seat, attempt = (hello["flow"], hello["stream"]), (hello["epoch"], hello["attempt"])
            if not self._sit(seat, attempt, writer):
                _say(writer, {"stop": True})
                return
            self._flows[seat[0]].arrived(seat[1])
            while line := await asyncio.wait_for(reader.readline(), _SILENT_FOR):
                if self._seats.get(seat, (0, 0, None))[2] is not writer:
                    _say(writer, {"stop": True})  # a newer attempt has taken the seat
                    continue
                report = json.loads(line)
                self._flows[seat[0]].reported(seat[1], report)
                if self._flows[seat[0]].may_go_on:
                    _say(writer, {"heard": report["number"]})
        except (OSError, ValueError, KeyError, asyncio.TimeoutError):
            pass  # a stranger, or a stream that died in the middle of a word
        except asyncio.CancelledError:
            pass  # the process ends: asyncio prints a trace of connections that are cancelled
        finally:
            if seat is not None and self._seats.get(seat, (0, 0, None))[2] is writer:
                del self._seats[seat]
                self._flows[seat[0]].left(seat[1])
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        challenge = secrets.token_bytes(32)
        _say(writer, {"challenge": challenge.hex()})
        hello: dict[str, Any] = json.loads(await reader.readline())
        if (
            not hmac.compare_digest(str(hello["proof"]), proof(self.secret, challenge))
            or hello["flow"] not in self._flows
        ):
            return None
        return hello

    def _sit(self, seat: tuple[int, int], attempt: tuple[int, int], writer: asyncio.StreamWriter) -> bool:
        """The newest attempt gets the seat; an older one is sent away."""
        taken = self._seats.get(seat)
        if taken is not None:
            if taken[:2] > attempt:
                return False
            _say(taken[2], {"stop": True})
            self._flows[seat[0]].left(seat[1])
        self._seats[seat] = (*attempt, writer)
        return True


def _say(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
