"""TLS between a connection and its socket.

`ssl.SSLSocket` reads twice from the kernel for each TLS record of 16 KB, and writes each record by itself. Here a read
takes 256 KB at a time, and requests are encrypted before they are sent, so that a connection sends and counts as it
does without TLS.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mirrormaker.errors import TlsFailed
from mirrormaker.wire.credentials import TLS_VERSIONS, Tls

Part = bytes | bytearray | memoryview

_CHUNK = 256 * 1024  # bytes in one read, and in one call that encrypts
_RECORD = 16 * 1024  # bytes in a TLS record, at most
_VERSIONS = {name: ssl.TLSVersion[name.replace(".", "_")] for name in TLS_VERSIONS}
_TLS_1_3_SUITE = re.compile(r"TLS_(AES|CHACHA20)_[A-Z0-9_]*")
_USE_ANOTHER_LISTENER = "use a listener with TLS, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
# X.509's verification results (OpenSSL's X509_V_ERR_...).
_NOT_VALID_NOW = (9, 10)  # not valid yet, expired
_UNKNOWN_SIGNER = (2, 18, 19, 20, 21)
_HOST_MISMATCH = (62, 64)  # of a host name, of an IP address
# Alerts by which a broker refuses the client's certificate, or its absence.
_CERTIFICATE_ALERTS = (
    "bad certificate", "certificate required", "certificate unknown", "certificate expired", "certificate revoked",
    "unsupported certificate", "unknown ca", "access denied", "no certificate",
)  # fmt: skip


class TlsLayer:
    """The TLS state of one connection: decrypts the bytes that it receives, and encrypts those that it sends."""

    def __init__(self, tls: Tls, host: str) -> None:
        self._tls, self._host = tls, host
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = ssl_context(tls).wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._raw = memoryview(bytearray(_CHUNK))
        self._sock: socket.socket | None = None

    async def handshake(self, sock: socket.socket) -> None:
        """Negotiate the keys and check the broker's certificate; raise TlsFailed if that fails."""
        loop, received = asyncio.get_running_loop(), 0
        while True:
            try:
                self._object.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(sock, self._outgoing.read())
            except ssl.SSLError as error:
                await self._send_alert(sock)
                raise TlsFailed(self.reason(error)) from error
            try:
                count = await loop.sock_recv_into(sock, self._raw)
            except ConnectionError:
                # A broker that shuts down resets connections too.
                if not received:
                    raise
                count = 0
            if count == 0 and received:
                raise TlsFailed("it hangs up in the middle of the TLS handshake")
            if count == 0:
                cause = "that listener speaks plain text, it seems"
                raise TlsFailed(f"it hangs up when TLS begins: {cause}; {_USE_ANOTHER_LISTENER}")
            received += count
            self._incoming.write(self._raw[:count])
        await loop.sock_sendall(sock, self._outgoing.read())
        self._sock = sock

    async def _send_alert(self, sock: socket.socket) -> None:
        """Send the reason for the failure, so that it is in the broker's log too."""
        try:
            await asyncio.get_running_loop().sock_sendall(sock, self._outgoing.read())
        except OSError:
            return

    @property
    def pending(self) -> bool:
        """Return True if bytes have been read from the kernel that the connection has not taken yet."""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def recv_into(self, into: memoryview) -> int:
        """Receive like `socket.recv_into`; less than the size of `into` means no more for now, and 0 the end."""
        assert self._sock is not None
        got = 0
        while got < len(into):
            try:
                count: Any = self._object.read(len(into) - got, into[got:])
                if not count:
                    break
                got += count
            except ssl.SSLWantReadError:
                try:
                    count = self._sock.recv_into(self._raw)
                except OSError:
                    # Nothing is there for now, or the connection broke: the next call raises it again.
                    if got:
                        break
                    raise
                if count:
                    self._incoming.write(self._raw[:count])
                else:
                    self._incoming.write_eof()
            except ssl.SSLEOFError:
                break
        return got

    def encrypt(self, parts: Sequence[Part]) -> list[bytes]:
        """Return the same bytes encrypted, together with messages that TLS itself has to send."""
        encrypted = []
        for piece in _pieces(parts):
            self._object.write(piece)
            encrypted.append(self._outgoing.read())
        return encrypted

    def reason(self, error: ssl.SSLError) -> str:
        """Return why TLS failed, and the setting that can change it."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._not_trusted(error)
        name = (error.reason or "").upper()
        alert = name.partition("ALERT_")[2].lower().replace("_", " ")
        if name == "WRONG_VERSION_NUMBER":
            return f"it does not answer in TLS; {_USE_ANOTHER_LISTENER}"
        if alert in _CERTIFICATE_ALERTS:
            return self._certificate_refused(alert)
        if "protocol version" in alert or "PROTOCOL" in name:
            enabled = " and ".join(self._tls.protocols)
            return f"no protocol in common: this side speaks {enabled} (ssl.enabled.protocols)"
        if alert in ("handshake failure", "insufficient security"):
            return "no cipher suite in common, or none for the broker's kind of certificate (ssl.cipher.suites)"
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> str:
        message = error.verify_message
        if error.verify_code in _NOT_VALID_NOW:
            return f"its certificate is not valid now: {message} (or the clock of this machine is wrong)"
        if error.verify_code in _HOST_MISMATCH:
            return (
                f"its certificate is not for {self._host}: use a name of the certificate in bootstrap.servers and"
                " advertised.listeners, or switch the check off with an empty ssl.endpoint.identification.algorithm"
            )
        if error.verify_code not in _UNKNOWN_SIGNER:
            return f"its certificate is not accepted: {message}"
        if self._tls.trust:
            cause = "its signer is not in the truststore; add it to the one that ssl.truststore.location names"
        else:
            cause = "this machine does not know its signer, and there is no ssl.truststore.location; add one"
        return f"its certificate is not trusted ({message}): {cause}"

    def _certificate_refused(self, alert: str) -> str:
        if not self._tls.chain:
            return f"it wants a client certificate ({alert}): ssl.keystore.location must name a store with one"
        return (
            f"it refuses the certificate of {self._tls.subject} ({alert}): the broker's truststore must hold its"
            " signer, and the certificate must be valid now and issued for clients"
        )

    @property
    def hint(self) -> str:
        """Return the likely reason of a broker that hangs up after the handshake without an alert."""
        if not self._tls.chain:
            return "it may want a client certificate; name a store with one in ssl.keystore.location"
        return (
            f"it may refuse the certificate of {self._tls.subject} (ssl.keystore.location); the broker's log says why"
        )


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield what one call encrypts: small parts together, large parts cut."""
    small = bytearray()
    for part in parts:
        if len(part) < _RECORD:
            small += part
            if len(small) < _RECORD:
                continue
        if small:
            yield small
            small = bytearray()
        if len(part) >= _RECORD:
            view = memoryview(part)
            for at in range(0, len(view), _CHUNK):
                yield view[at : at + _CHUNK]
    if small:
        yield small


@functools.lru_cache(maxsize=16)
def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return OpenSSL's settings for these TLS settings; raise TlsFailed if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Java trusts every certificate of the truststore, also one that is not a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_ciphers(context, tls)
    try:
        if tls.trust:
            context.load_verify_locations(cadata=tls.trust)
        else:
            context.load_default_certs()
        if tls.chain:
            _load_identity(context, tls)
    except OSError as error:  # also ssl.SSLError, and a temporary directory that cannot be written
        raise TlsFailed((getattr(error, "reason", None) or str(error)).lower().replace("_", " ")) from None
    return context


def _set_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    """Enable the cipher suites and protocol versions that the settings name.

    Python cannot choose the suites of TLS 1.3 one by one: if the settings name none of them, TLS 1.3 is off; otherwise
    all are on.
    """
    versions = {_VERSIONS[name] for name in tls.protocols}
    newest = [name for name in tls.ciphers if _TLS_1_3_SUITE.fullmatch(name)]
    older = [name for name in tls.ciphers if name not in newest]
    if tls.ciphers:
        versions -= {ssl.TLSVersion.TLSv1_3} if not newest else set()
        versions -= {ssl.TLSVersion.TLSv1_2} if not older else set()
    if not versions:
        raise TlsFailed("ssl.cipher.suites has no suite for the protocols in ssl.enabled.protocols")
    for name in older:
        try:
            context.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise TlsFailed(f"{name} is not a cipher suite that can be used here; remove it") from None
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    name = re.sub("^(TLS|SSL)_", "", suite).replace("_WITH_", "_").replace("AES_", "AES").replace("_CBC", "")
    return name.removeprefix("RSA_").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")


def _load_identity(context: ssl.SSLContext, tls: Tls) -> None:
    """Load the client's certificate and key.

    Python's `ssl` takes a key only from a file. The file exists for a moment, in a directory that only this user can
    read, and the key in it is encrypted.
    """
    with tempfile.TemporaryDirectory(prefix="mirrormaker-") as directory:
        path = Path(directory, "identity.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(tls.key + tls.chain)
        context.load_cert_chain(path, password=tls.password)
