"""One TCP connection to a broker: requests leave in order, answers come back in order.

This module opens, closes and sends; `answers` receives. A request leaves as the list of buffers that it is made of,
without a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from mirrormaker.errors import AuthenticationFailed, BadFrame, ConnectionLost, Silent, TlsFailed, UnsupportedRequest
from mirrormaker.wire.credentials import Tls
from mirrormaker.wire.protocol.answer_checks import check_answer
from mirrormaker.wire.protocol.messages import ApiMessage, decode_response, longest_answer
from mirrormaker.wire.transport.answers import BARE, Answered, AnswerReader, Expected, reason_of
from mirrormaker.wire.transport.host_port import join_host_port
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.wire.transport.tls import TlsLayer

__all__ = ["Answered", "Connection", "Lease", "Part", "read_answer"]

Part = bytes | bytearray | memoryview
# Returns True while the connection may send. It is called before each write.
Lease = Callable[[], bool]

# Makes an answer of its request, its bytes and the version of both.
ReadAnswer = Callable[[ApiMessage, memoryview, int], Any]

# Bytes of an answer that takes so long to read, 10 ms or so, that the event loop must have its turns meanwhile.
_LONG_ANSWER = 32 << 10

_INT = struct.Struct(">i")
_HEADER = struct.Struct(">ihhi")  # size, API key, API version, correlation id
_MAX_PARTS = 512  # buffers in one sendmsg: below every system's limit of 1024
_API_VERSIONS = 18
_LONGEST_TOKEN = 1 << 20  # bytes of a SASL token without a header
_LOGIN = (17, 36)  # SaslHandshake, SaslAuthenticate
_TCP_INFO_RTT = 68  # where Linux has the smoothed round trip time, in microseconds, in its struct tcp_info


def read_answer(request: ApiMessage, data: memoryview, version: int) -> Any:
    """Decode an answer; raise BadFrame if it does not fit the request."""
    answer = decode_response(type(request), data, version)
    check_answer(request, answer)
    return answer


class Connection:
    """A non-blocking socket on the running event loop, and the requests that wait for their answers."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        lease: Lease | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.lease = lease
        # Called when everything that was sent has gone to the kernel, after `can_write` was False; and when an error has
        # ended the connection, because a user without requests under way would not hear of it.
        self.on_drain: Callable[[], None] | None = None
        # The error that ended the connection.
        self.error: Exception | None = None
        # The versions of each request that the broker knows, by API key: oldest and newest.
        self.versions: dict[int, tuple[int, int]] = {}
        self._answers = AnswerReader(repr(self), self.close)
        self._waiting = self._answers.waiting
        # Requests that were sent while a login is under way; None while there is none.
        self._held_back: deque[tuple[int, int, bool, Sequence[Part], Answered]] | None = None
        self._client_id = struct.pack(f">h{len(client_id.encode())}s", len(client_id.encode()), client_id.encode())
        self._outgoing: deque[memoryview] = deque()
        self._correlation = 0
        self._sock: socket.socket | None = None
        self._tls_settings = tls
        self._tls: TlsLayer | None = None

    def __repr__(self) -> str:
        return join_host_port(self.host, self.port)

    # -- opening and closing

    async def open(self, timeout: float) -> None:
        """Connect to the first address of the host that answers, and shake hands if there is TLS."""
        self._loop = asyncio.get_running_loop()
        try:
            self._tls = TlsLayer(self._tls_settings, self.host) if self._tls_settings is not None else None
            async with asyncio.timeout(timeout):
                self._sock = await self._connect()
        except TimeoutError as error:
            raise ConnectionLost(f"{self} did not answer within {timeout:g} s") from error
        except OSError as error:
            raise ConnectionLost(f"{self}: {reason_of(error)}") from error
        except TlsFailed as error:
            raise AuthenticationFailed(f"{self}: {error}") from error
        except ValueError as error:  # UnicodeError of the IDNA codec
            raise ConnectionLost(f"{self}: this is not a host name ({error})") from error
        self._answers.start(self._sock, self._tls)

    async def _connect(self) -> socket.socket:
        addresses = await self._loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        error: OSError | None = None
        for family, kind, protocol, _name, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                await self._loop.sock_connect(sock, address)
                if self._tls is not None:
                    await self._tls.handshake(sock)
                return sock
            except OSError as failed:
                sock.close()
                error = failed
            except BaseException:
                sock.close()
                raise
        raise error or OSError("the name has no address")

    @property
    def is_open(self) -> bool:
        """Return True from `open` until the connection ends."""
        return self._sock is not None

    @property
    def is_quiet(self) -> bool:
        """Return True if no part of an answer has arrived that is not delivered yet."""
        return self._answers.is_quiet

    @property
    def bytes_in(self) -> int:
        """Return the number of bytes received so far, also of an answer that has not arrived as a whole."""
        return self._answers.bytes_arrived

    @property
    def last_transfer(self) -> float:
        """Return how many seconds passed between the first and the last byte of the last answer."""
        return self._answers.last_transfer

    @property
    def round_trip(self) -> float:
        """Return how many seconds the kernel takes for a round trip to the peer; 0 if the connection has ended."""
        if self._sock is None:
            return 0.0
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT + 4)
        return int.from_bytes(info[_TCP_INFO_RTT:], sys.byteorder) / 1e6

    @property
    def can_write(self) -> bool:
        """Return True if nothing waits in user space: a request that is sent now goes to the kernel now."""
        return not self._outgoing and self._held_back is None

    def close(self, error: Exception | None = None, *, abort: bool = False) -> None:
        """End the connection, and with `error` every request that waits for its answer.

        `abort` sends a reset, so that the broker drops requests that it has not read yet.
        """
        if self._sock is None:
            return
        sock, self._sock = self._sock, None
        self._answers.stop()
        self._loop.remove_writer(sock.fileno())
        # With a lease, a request that the broker has not read yet must not take effect later.
        if abort or (self.lease is not None and self._waiting):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self.error = error or ConnectionLost(f"{self} was closed")
        self._outgoing.clear()
        held_back, self._held_back = self._held_back or (), None
        while self._waiting:
            self._waiting.popleft().answered(None, self.error)
        for request in held_back:
            request[-1](None, self.error)
        if error is not None and self.on_drain is not None:
            self.on_drain()

    # -- logging in

    def hold_requests(self) -> None:
        """Send only the login's own requests from now on: brokers refuse any other request in the middle of a login."""
        self._held_back = deque() if self._held_back is None else self._held_back

    def release_requests(self) -> None:
        """Send the requests that were held back, in order: the login is over."""
        held_back, self._held_back = self._held_back or deque(), None
        while held_back and self._sock is not None:
            self.send(*held_back.popleft())
        for request in held_back:
            request[-1](None, self.error)
        if self.on_drain is not None and self._sock is not None:
            self.on_drain()

    def send_bare(self, token: bytes, *, is_answered: bool) -> asyncio.Future[memoryview]:
        """Send a SASL token without a request header, for brokers before 1.0; the answer has no header either."""
        if self._sock is None:
            raise self.error or ConnectionLost(f"{self} is not open")
        future, answered = self._future()
        if is_answered:
            self._waiting.append(Expected(BARE, 0, _LONGEST_TOKEN, answered))
        else:
            future.set_result(memoryview(b""))
        self._queue([_INT.pack(len(token)), token], len(token) + 4)
        return future

    # -- requests

    def send(self, api_key: int, api_version: int, flexible: bool, parts: Sequence[Part], answered: Answered) -> None:
        """Send a request whose body is `parts`; `answered` gets the body of the answer, or an error."""
        if self._sock is None:
            raise self.error or ConnectionLost(f"{self} is not open")
        if self._held_back is not None and api_key not in _LOGIN:
            self._held_back.append((api_key, api_version, flexible, parts, answered))
            return
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        size = 8 + len(self._client_id) + flexible + sum(map(len, parts))
        header = _HEADER.pack(size, api_key, api_version, self._correlation) + self._client_id
        if flexible:
            header += b"\0"
        # The answer to ApiVersions always has the old header, so that any client can read "unsupported version".
        header_size = 5 if flexible and api_key != _API_VERSIONS else 4
        longest = longest_answer(api_key)
        self._waiting.append(Expected(self._correlation, header_size, longest, answered))
        self._queue([header, *parts], size + 4)

    def _queue(self, framed: Sequence[Part], size: int) -> None:
        """Send a whole frame, encrypted if there is TLS, after the frames that wait already."""
        if self._tls is not None:
            try:
                framed = self._tls.encrypt(framed)
            except ssl.SSLError as error:
                self.close(ConnectionLost(f"{self}: TLS has ended ({(error.reason or 'unclean').lower()})"))
                return
            size = sum(map(len, framed))
        if self._outgoing:
            self._outgoing += [memoryview(part) for part in framed if part]
        else:
            self._write(framed, size)

    def request(
        self, api_key: int, api_version: int, flexible: bool, parts: Sequence[Part]
    ) -> asyncio.Future[memoryview]:
        """Send a request as `send` does, and return a future for its answer."""
        future, answered = self._future()
        self.send(api_key, api_version, flexible, parts, answered)
        return future

    def _future(self) -> tuple[asyncio.Future[memoryview], Answered]:
        future: asyncio.Future[memoryview] = self._loop.create_future()

        def answered(data: memoryview | None, error: Exception | None) -> None:
            if future.done():
                return
            if data is not None:
                future.set_result(data)
            else:
                future.set_exception(error or ConnectionLost(f"{self} was closed"))
                # Mark the exception as seen: asyncio would log a warning for a future that nobody awaits.
                future.exception()

        return future, answered

    async def answered_within(
        self, timeout: float, name: str, *answers: asyncio.Future[memoryview]
    ) -> list[memoryview]:
        """Return the answers to requests called `name`; close the connection if they take longer than so many seconds."""
        try:
            # In Python 3.11 wait_for loses a cancellation that comes together with the answer.
            async with asyncio.timeout(timeout):
                return await asyncio.gather(*map(asyncio.shield, answers))
        except TimeoutError as error:
            late = Silent(f"{self} did not answer {name} within {timeout:g} s")
            self.close(late)
            raise late from error

    async def ask(
        self, request: ApiMessage, timeout: float, version: int | None = None, read: ReadAnswer = read_answer
    ) -> Any:
        """Send one of kafka-python's requests, by default in the newest version that both sides know; return the answer.

        `read` makes the answer of its bytes. An answer that cannot be decoded, or that does not fit the request, is BadFrame and
        ends the connection.
        """
        return (await self.ask_times(request, 1, timeout, version, read))[0]

    async def ask_times(
        self,
        request: ApiMessage,
        times: int,
        timeout: float,
        version: int | None = None,
        read: ReadAnswer = read_answer,
    ) -> list[Any]:
        """Send the same request so many times as `ask` does, without waiting in between; return the answers."""
        version = self.best_version(type(request)) if version is None else version
        body, flexible = request.encode(version=version), request.flexible_version_q(version)
        answers = [self.request(request.API_KEY, version, flexible, [body]) for _ in range(times)]
        found = await self.answered_within(timeout, request.name, *answers)
        try:
            if max(map(len, found)) > _LONG_ANSWER:
                return await run_in_thread(lambda: [read(request, data, version) for data in found])
            return [read(request, data, version) for data in found]
        except BadFrame as error:
            bad = BadFrame(f"{self}: {error}")
            # The next request goes over another connection, to another broker if any broker will do.
            self.close(ConnectionLost(str(bad)))
            raise bad from error

    def best_version(self, message: type[ApiMessage]) -> int:
        """Return the newest version of a request that broker and client share."""
        if message.API_KEY not in self.versions:
            raise UnsupportedRequest(f"{self} does not know {message.name}")
        low, high = self.versions[message.API_KEY]
        best: int = min(high, message.max_version)
        if best < low:
            raise UnsupportedRequest(f"{self} knows {message.name} only from version {low} on")
        return best

    # -- sending

    def _write(self, parts: Sequence[Part], size: int) -> None:
        """Hand a whole request to the kernel; bytes that it does not take now wait in user space."""
        sent = self._hand_over(parts[:_MAX_PARTS])
        if sent is None or sent == size:
            return
        for part in parts:
            # An empty part must not be queued: writing it alone takes 0 bytes, and the queue would never get past it.
            if sent >= len(part):
                sent -= len(part)
            else:
                self._outgoing.append(memoryview(part)[sent:])
                sent = 0
        assert self._sock is not None
        self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        outgoing = self._outgoing
        while outgoing:
            sent = self._hand_over(list(islice(outgoing, _MAX_PARTS)))
            if not sent:
                return
            while sent and sent >= len(outgoing[0]):
                sent -= len(outgoing.popleft())
            if sent:
                outgoing[0] = outgoing[0][sent:]
        assert self._sock is not None
        self._loop.remove_writer(self._sock.fileno())
        if self.on_drain is not None:
            self.on_drain()

    def _hand_over(self, parts: Sequence[Part]) -> int | None:
        """Write once, and return the number of bytes that the kernel took; None if the connection has ended.

        The lease is checked right before the write: nothing leaves without it.
        """
        assert self._sock is not None
        if self.lease is not None and not self.lease():
            self.close(ConnectionLost(f"{self}: the lease ran out"), abort=True)
            return None
        try:
            return self._sock.sendmsg(parts)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.close(ConnectionLost(f"{self}: {reason_of(error)}"))
            return None
