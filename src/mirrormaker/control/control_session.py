"""How driver and stream prove to each other who they are, and how each message proves where it belongs.

Both know a secret that never crosses the network. The driver says `challenge`, the stream answers with `hello`, the driver with
`welcome`. Each side sends a random nonce, and proves that it knows the secret by an HMAC over its role, both nonces, and the flow,
job, stream and attempt. From then on every message carries a MAC under a key of this connection alone, over its direction, its
number and its bytes. So nobody in between can add, change, repeat, reorder or leave out a message: the connection ends instead.
Messages are not encrypted.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from typing import Any, NamedTuple

from mirrormaker.errors import BadMessage

VERSION = 3
HANDSHAKE_BYTES = 256  # the longest message of a stranger

_MAGIC = b"MMcc"
_NONCE, _PROOF = 32, 32  # bytes
_MAC = 16  # bytes
_CHALLENGE = struct.Struct(f">4sH{_NONCE}s")
_HELLO = struct.Struct(f">4sH{_NONCE}s4q{_PROOF}s")
_WELCOME = struct.Struct(f">4sH{_PROOF}s")
_TRANSCRIPT = struct.Struct(f">H{_NONCE}s{_NONCE}s4q")
_HEAD = struct.Struct(">4sH")

# What an HMAC is for: one that was made for one of these is worth nothing for another.
_STREAM_PROOF, _DRIVER_PROOF, _SESSION_KEY = b"stream proof", b"driver proof", b"session key"
_TO_DRIVER, _TO_STREAM = b">", b"<"


class StreamAttempt(NamedTuple):
    """Which attempt at which stream of which job."""

    flow: int
    job: int
    stream: int
    attempt: int


class Session:
    """One end of a connection on which both sides have proved who they are."""

    def __init__(self, key: bytes, sends: bytes, receives: bytes) -> None:
        """`sends` and `receives` tell the two directions apart."""
        self._key, self._sends, self._receives = key, sends, receives
        self._sent = self._received = 0

    def seal(self, body: bytes) -> bytes:
        """Return the next message with its MAC."""
        mac = self._mac(self._sends, self._sent, body)
        self._sent += 1
        return mac + body

    def open(self, message: bytes) -> bytes:
        """Return what the other side has sealed as its next message; the connection must end if it did not."""
        mac, body = message[:_MAC], message[_MAC:]
        if not hmac.compare_digest(mac, self._mac(self._receives, self._received, body)):
            raise BadMessage("a control message does not come from the other side, or not in its turn")
        self._received += 1
        return body

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + number.to_bytes(8, "big") + body, "sha256")[:_MAC]


class DriverHandshake:
    """The driver's half of one handshake."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._nonce = secret, secrets.token_bytes(_NONCE)

    def challenge(self) -> bytes:
        """Return the first message."""
        return _CHALLENGE.pack(_MAGIC, VERSION, self._nonce)

    def accept(self, hello: bytes) -> tuple[StreamAttempt, bytes, Session]:
        """Check a stream's answer; return who it is, the welcome, and the session."""
        nonce, *names, proof = _unpack(_HELLO, hello, "the stream")
        attempt = StreamAttempt(*names)
        transcript = _transcript(self._nonce, nonce, attempt)
        if not hmac.compare_digest(proof, _hmac(self._secret, _STREAM_PROOF, transcript)):
            raise BadMessage("a stranger does not know the secret")
        welcome = _WELCOME.pack(_MAGIC, VERSION, _hmac(self._secret, _DRIVER_PROOF, transcript))
        return attempt, welcome, Session(_hmac(self._secret, _SESSION_KEY, transcript), _TO_STREAM, _TO_DRIVER)


class StreamHandshake:
    """A stream's half of one handshake."""

    def __init__(self, secret: bytes, attempt: StreamAttempt) -> None:
        self._secret, self._attempt = secret, attempt
        self._transcript = b""

    def hello(self, challenge: bytes) -> bytes:
        """Return the answer to the driver's challenge."""
        (theirs,) = _unpack(_CHALLENGE, challenge, "the driver")
        ours = secrets.token_bytes(_NONCE)
        self._transcript = _transcript(theirs, ours, self._attempt)
        return _HELLO.pack(_MAGIC, VERSION, ours, *self._attempt, _hmac(self._secret, _STREAM_PROOF, self._transcript))

    def session(self, welcome: bytes) -> Session:
        """Check that the driver knows the secret too; return the session."""
        (proof,) = _unpack(_WELCOME, welcome, "the driver")
        if not hmac.compare_digest(proof, _hmac(self._secret, _DRIVER_PROOF, self._transcript)):
            raise BadMessage("the control server does not know the secret: it is not our driver")
        return Session(_hmac(self._secret, _SESSION_KEY, self._transcript), _TO_DRIVER, _TO_STREAM)


def _transcript(driver: bytes, stream: bytes, attempt: StreamAttempt) -> bytes:
    return _TRANSCRIPT.pack(VERSION, driver, stream, *attempt)


def _hmac(secret: bytes, purpose: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, purpose + transcript, "sha256")


def _unpack(layout: struct.Struct, message: bytes, who: str) -> tuple[Any, ...]:
    """Return the fields after magic bytes and version, which must be ours."""
    if len(message) < _HEAD.size or message[: len(_MAGIC)] != _MAGIC:
        raise BadMessage(f"{who} does not speak version {VERSION} of mirrormaker's control protocol")
    _, version = _HEAD.unpack_from(message)
    if version != VERSION:
        raise BadMessage(
            f"{who} speaks version {version} of the control protocol, and this process speaks version {VERSION}:"
            " driver and executors need the same version of mirrormaker"
        )
    if len(message) != layout.size:
        raise BadMessage(f"{who} has sent a message of {len(message)} bytes where {layout.size} are expected")
    return layout.unpack(message)[2:]
