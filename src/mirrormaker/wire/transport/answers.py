"""The receiving half of a connection: it cuts the byte stream into frames and hands each answer to its request.

kafka-python reads 4096 bytes at a time and copies each frame twice (9.3 s of CPU for 2 GB; this way under 3 s). Here
small frames share one read, and a large frame is received straight into a buffer of its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import ssl
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mirrormaker.errors import AuthenticationFailed, ConnectionLost, HungUp
from mirrormaker.wire.transport.tls import TlsLayer

# A request's callback gets the body of the answer, or the error that ended the connection before there was one.
Answered = Callable[[memoryview | None, Exception | None], None]

# In place of a correlation id: the answer is a SASL token without a header.
BARE = -1

_INT = struct.Struct(">i")
_SMALL = 16 * 1024  # bytes: answers up to this size share one read; larger frames get a buffer of their own
_LOW_WATER = 512 * 1024  # bytes that make a read worthwhile in the middle of a large frame
_READS_IN_A_ROW = 8  # then the other connections get their turn
_TLS_ALERTS = range(0x150300, 0x150305)  # the first three bytes of a TLS alert, for SSL 3.0 to TLS 1.3


class Expected(NamedTuple):
    """The answer that a request waits for."""

    correlation: int
    header_size: int
    longest: int  # bytes; a longer frame ends the connection before any memory is set aside for it
    answered: Answered


class AnswerReader:
    """Receives on one socket, from `start` to `stop`; `fail` is called with the error that ends the connection."""

    def __init__(self, peer: str, fail: Callable[[Exception], None]) -> None:
        """`peer` names the broker in errors."""
        self.waiting: deque[Expected] = deque()  # in the order of the requests
        self.bytes_in = 0
        # The seconds from the first byte of the last answer to its last one; 0 if it came in one read.
        self.last_transfer = 0.0
        self._peer, self._fail = peer, fail
        self._sock: socket.socket | None = None
        self._tls: TlsLayer | None = None
        self._small = memoryview(bytearray(_SMALL))
        self._held = 0  # bytes of _small that are not yet a whole frame
        self._frame: memoryview | None = None  # the large frame that is being received
        self._got = 0  # bytes of _frame that have arrived
        self._frame_began = 0.0

    def start(self, sock: socket.socket, tls: TlsLayer | None) -> None:
        """Receive from a connected socket whenever the event loop finds it readable."""
        self._loop = asyncio.get_running_loop()
        self._sock, self._tls = sock, tls
        self._receive = sock.recv_into if tls is None else tls.recv_into
        self._loop.add_reader(sock.fileno(), self._readable)

    def stop(self) -> None:
        """Receive no more; the socket is about to be closed."""
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock = None

    @property
    def is_quiet(self) -> bool:
        """Return True if no part of an answer has arrived that is not delivered yet."""
        return self._frame is None and self._held == 0 and not (self._tls and self._tls.pending)

    @property
    def bytes_arrived(self) -> int:
        """Return the number of bytes received so far, with those that the kernel holds back until there are enough."""
        if self._sock is None:
            return self.bytes_in
        waiting = fcntl.ioctl(self._sock, termios.FIONREAD, bytes(_INT.size))
        return self.bytes_in + int.from_bytes(waiting, sys.byteorder)

    def _readable(self) -> None:
        for _ in range(_READS_IN_A_ROW):
            if self._sock is None:
                return
            frame = self._frame
            into = self._small[self._held :] if frame is None else frame[self._got :]
            try:
                count = self._receive(into)
            except BlockingIOError:
                return
            except OSError as error:
                self._end(error)
                return
            if count == 0:
                self._end(None)
                return
            self.bytes_in += count
            if frame is None:
                self._held += count
                self._take_small_frames()
            else:
                self._got += count
                if self._got == len(frame):
                    self._frame = None
                    self._wake_me_for(1)
                    self.last_transfer = time.monotonic() - self._frame_began
                    self._deliver(frame)
                elif len(frame) - self._got < _LOW_WATER:
                    self._wake_me_for(len(frame) - self._got)
            if count < len(into):
                return  # the kernel has no more
        if self._tls is not None and self._tls.pending:
            self._loop.call_soon(self._readable)

    def _end(self, error: OSError | None) -> None:
        """End the connection after a read that failed, or after the last byte (None).

        A TLS 1.3 client considers the handshake done before the broker has checked its certificate: the broker's
        refusal arrives here, as an alert or as nothing at all.
        """
        if self._tls is not None and isinstance(error, ssl.SSLError):
            self._fail(AuthenticationFailed(f"{self._peer}: {self._tls.reason(error)}"))
        elif self._tls is not None and not self.bytes_in:
            self._fail(AuthenticationFailed(f"{self._peer}: it hangs up after the TLS handshake: {self._tls.hint}"))
        elif error is not None:
            self._fail(ConnectionLost(f"{self._peer}: {reason_of(error)}"))
        else:
            self._fail(HungUp(f"{self._peer} closed the connection"))

    def _wake_me_for(self, size: int) -> None:
        """Wake the event loop only when `size` bytes are there, at most 512 KB: a large frame takes few large reads."""
        # The kernel does not count bytes that the TLS layer holds.
        if self._sock is not None and self._tls is None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(size, _LOW_WATER))

    def _take_small_frames(self) -> None:
        """Cut whole frames out of the shared buffer; a frame that does not fit continues in a buffer of its own."""
        at, held, small = 0, self._held, self._small
        while held - at >= 4:
            size = _INT.unpack_from(small, at)[0]
            expected = self.waiting[0] if self.waiting else _NOTHING
            if not (0 if expected.correlation == BARE else 4) <= size <= expected.longest:
                self._refuse_size(size)
                return
            at += 4
            if size > held - at and size > _SMALL - 4:
                frame = np.empty(size, np.uint8).data
                self._got = held - at
                frame[: self._got] = small[at:held]
                self._frame, self._held, self._frame_began = frame, 0, time.monotonic()
                self._wake_me_for(size - self._got)
                return
            if size > held - at:
                at -= 4
                break
            self.last_transfer = 0.0
            self._deliver(memoryview(bytearray(small[at : at + size])))
            if self._sock is None:
                return
            at += size
        if at:
            small[: held - at] = bytes(small[at:held])
        self._held = held - at

    def _refuse_size(self, size: int) -> None:
        if self._tls is None and size >> 8 in _TLS_ALERTS:
            advice = "use a listener without TLS, or set security.protocol to SSL or SASL_SSL"
            self._fail(AuthenticationFailed(f"{self._peer}: it speaks TLS: {advice}"))
        else:
            text = f"{self._peer} sent a frame of {size} bytes: is that a Kafka broker, without TLS?"
            self._fail(ConnectionLost(text))

    def _deliver(self, frame: memoryview) -> None:
        expected = self.waiting[0] if self.waiting else _NOTHING
        correlation = BARE if expected.correlation == BARE else _INT.unpack_from(frame)[0]
        if not self.waiting or expected.correlation != correlation:
            self._fail(ConnectionLost(f"{self._peer} sent an answer that belongs to no request"))
            return
        self.waiting.popleft()
        expected.answered(frame[expected.header_size :], None)


def _ignore(_data: memoryview | None, _error: Exception | None) -> None:
    """Take no notice of an answer."""


_NOTHING = Expected(0, 0, _SMALL, _ignore)  # while no request waits


def reason_of(error: OSError) -> str:
    """Return why a call to the operating system failed, in its own words."""
    if isinstance(error, socket.gaierror):
        return (error.strerror or str(error)).lower()
    return (os.strerror(error.errno) if error.errno else str(error)).lower()
