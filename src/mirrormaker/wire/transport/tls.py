"""TLS between a connection and its socket.

Why not `ssl.SSLSocket`: it asks the kernel twice for each record of 16 KB, and writes each one by itself. Here the kernel is
asked for 256 KB at a time, and what leaves is encrypted beforehand, so that a connection sends and counts as it does without TLS.
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
from mirrormaker.wire.credentials import Tls

Part = bytes | bytearray | memoryview

_CHUNK = 256 * 1024  # bytes of one read, and of one piece of what is encrypted
_RECORD = 16 * 1024  # what TLS encrypts at a time, at most
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_1_3 = re.compile(r"TLS_(AES|CHACHA20)_[A-Z0-9_]*")  # the suites of TLS 1.3
_IN_THE_CLEAR = "name one that speaks TLS, or set security.protocol to PLAINTEXT or SASL_PLAINTEXT"


class TlsLayer:
    """One connection's state: what comes in is decrypted, what goes out is encrypted."""

    def __init__(self, tls: Tls, host: str) -> None:
        self._tls, self._host = tls, host
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context(tls).wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._raw = memoryview(bytearray(_CHUNK))
        self._sock: socket.socket | None = None

    async def handshake(self, sock: socket.socket) -> None:
        """Agree on keys; afterwards the broker is who its certificate says."""
        loop, heard = asyncio.get_running_loop(), 0
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
                if not heard:
                    raise  # it may just be going down
                count = 0
            if count == 0:
                raise TlsFailed(
                    "it hangs up in the middle of the TLS handshake" if heard
                    else f"it hangs up when TLS begins: that listener speaks plain text, it seems; {_IN_THE_CLEAR}"
                )  # fmt: skip
            heard += count
            self._incoming.write(self._raw[:count])
        await loop.sock_sendall(sock, self._outgoing.read())
        self._sock = sock

    async def _send_alert(self, sock: socket.socket) -> None:
        """So that the broker's log says it too."""
        try:
            await asyncio.get_running_loop().sock_sendall(sock, self._outgoing.read())
        except OSError:
            return

    @property
    def pending(self) -> bool:
        """Is something here that the kernel knows nothing of?"""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def recv_into(self, into: memoryview) -> int:
        """As a socket's: less than there is room for means that there is no more for now, and 0 the end."""
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
                except OSError:  # there is none for now, or it is broken: the next call will tell
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

    def sealed(self, parts: Sequence[Part]) -> list[bytes]:
        """The same bytes, encrypted; also what TLS itself has to say."""
        found = []
        for piece in _pieces(parts):
            self._object.write(piece)
            found.append(self._outgoing.read())
        return found

    def reason(self, error: ssl.SSLError) -> str:
        """What went wrong, and which setting has to do with it."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._not_trusted(error)
        name = (error.reason or "").upper()
        alert = name.partition("ALERT_")[2].lower().replace("_", " ")
        if name == "WRONG_VERSION_NUMBER":
            return f"it does not answer in TLS; {_IN_THE_CLEAR}"
        if alert in _ABOUT_US:
            return self._refused(alert)
        if "protocol version" in alert or "PROTOCOL" in name:
            spoken = " and ".join(self._tls.protocols)
            return f"no protocol in common: this side speaks {spoken} (ssl.enabled.protocols)"
        if alert in ("handshake failure", "insufficient security"):
            return "no cipher suite in common, or none for its kind of certificate (ssl.cipher.suites)"
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> str:
        message = error.verify_message
        if error.verify_code in _EXPIRED:
            return f"its certificate is not valid now: {message} (or the clock of this machine is wrong)"
        if error.verify_code in _MISMATCH:
            return (
                f"its certificate is not for {self._host}: use a name that it has in bootstrap.servers and advertised.listeners, or"
                " switch the check off with an empty ssl.endpoint.identification.algorithm"
            )
        if error.verify_code not in _UNKNOWN_SIGNER:
            return f"its certificate is not accepted: {message}"
        where = "the truststore" if self._tls.trust else "this machine, and there is no ssl.truststore.location"
        return (
            f"its certificate is not trusted ({message}): whoever signed it is not known to {where}; ssl.truststore.location"
            " names the store to put it into"
        )

    def _refused(self, alert: str) -> str:
        if not self._tls.chain:
            return f"it wants a client certificate ({alert}): ssl.keystore.location must name a store with one"
        return (
            f"it refuses the certificate of {self._tls.subject} ({alert}): whoever signed it must be in the broker's truststore,"
            " and it must be valid and made for clients"
        )

    @property
    def hint(self) -> str:
        """What a broker may have against us that says nothing."""
        if not self._tls.chain:
            return "it may want a client certificate; ssl.keystore.location would name a store with one"
        return f"it may not take the certificate of {self._tls.subject} (ssl.keystore.location); its log tells"


_EXPIRED = (9, 10)  # not yet, no longer
_UNKNOWN_SIGNER = (2, 18, 19, 20, 21)
_MISMATCH = (62, 64)  # of a host's name, of an address
_ABOUT_US = (
    "bad certificate", "certificate required", "certificate unknown", "certificate expired", "certificate revoked",
    "unsupported certificate", "unknown ca", "access denied", "no certificate",
)  # fmt: skip


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """What is encrypted at a time: small parts together, large ones cut."""
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
def context(tls: Tls) -> ssl.SSLContext:
    """OpenSSL's settings; what is wrong with ours is raised as TlsFailed."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.checks_host
    made.options |= ssl.OP_NO_RENEGOTIATION
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: whatever is in the store is trusted, root or not
    _set_ciphers(made, tls)
    try:
        if tls.trust:
            made.load_verify_locations(cadata=tls.trust)
        else:
            made.load_default_certs()
        if tls.chain:
            _load_identity(made, tls)
    except ssl.SSLError as error:
        raise TlsFailed((error.reason or str(error)).lower().replace("_", " ")) from None
    return made


def _set_ciphers(made: ssl.SSLContext, tls: Tls) -> None:
    """Those of TLS 1.3 cannot be chosen one by one: named are all of them, or none."""
    versions = {_VERSIONS[name] for name in tls.protocols}
    newest = [name for name in tls.ciphers if _OF_1_3.fullmatch(name)]
    older = [name for name in tls.ciphers if name not in newest]
    if tls.ciphers:
        versions -= {ssl.TLSVersion.TLSv1_3} if not newest else set()
        versions -= {ssl.TLSVersion.TLSv1_2} if not older else set()
    if not versions:
        raise TlsFailed("ssl.cipher.suites has none for ssl.enabled.protocols")
    for name in older:
        try:
            made.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise TlsFailed(f"{name} is not a cipher suite that can be used here; remove it") from None
    if older:
        made.set_ciphers(":".join(map(openssl_name, older)))
    made.minimum_version, made.maximum_version = min(versions), max(versions)


def openssl_name(suite: str) -> str:
    """ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    name = re.sub("^(TLS|SSL)_", "", suite).replace("_WITH_", "_").replace("AES_", "AES").replace("_CBC", "")
    return name.removeprefix("RSA_").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")


def _load_identity(made: ssl.SSLContext, tls: Tls) -> None:
    """OpenSSL takes a key only from a file: for a moment, in a directory of ours alone, and encrypted even there."""
    with tempfile.TemporaryDirectory(prefix="mirrormaker-") as directory:
        path = Path(directory, "identity.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(tls.key + tls.chain)
        made.load_cert_chain(path, password=tls.password)
