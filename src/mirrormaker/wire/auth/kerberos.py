"""The SASL mechanism GSSAPI: Kerberos tickets from a keytab or a ticket cache."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import os
import re
import socket
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from mirrormaker.errors import LoginError
from mirrormaker.wire.auth.mechanisms import Exchange
from mirrormaker.wire.credentials import Kerberos

NEEDED = (
    "Kerberos needs the Python package gssapi: pip install 'mirrormaker[kerberos]' (on Linux it is compiled:"
    " Debian and Ubuntu need the packages gcc, python3-dev and libkrb5-dev for that, and libgssapi-krb5-2 to run it)"
)
_NO_LAYER = 1  # GSSAPI can also sign or encrypt everything after the login; Kafka does neither
_LOCK_TIMEOUT = 4.0  # seconds to wait for another login of the same principal

# One lock per ticket cache: while one login fills the cache, another would find it empty.
_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

_CLOCKS = "this machine's clock and the KDC's differ by more than 5 minutes: set them by NTP"
_NEW_TICKET = "there is no valid ticket: run kinit, or better use a keytab (useKeyTab=true)"
# Advice for libkrb5's error messages: a pattern that finds the message, and the way out.
_ADVICE = (
    (r"Client .* not found in Kerberos database",
     "the KDC does not know the principal: is it spelt as in kadmin's list?"),
    (r"Server .* not found in Kerberos database",
     "the KDC does not know the broker's principal: it is made of the service name (serviceName,"
     " sasl.kerberos.service.name) and the host that bootstrap.servers or the broker itself names"),
    (r"Cannot contact any KDC", "no KDC answers: are the addresses in krb5.conf right, and is it running?"),
    (r"Cannot (find KDC|resolve network address)",
     "krb5.conf names no KDC for this realm: add it, or use another krb5.conf"),
    (r"Decrypt integrity|Preauthentication failed|[Pp]assword incorrect",
     "the KDC has another key by now: write the keytab anew (kadmin: ktadd)"),
    (r"[Cc]lock skew|not yet valid", _CLOCKS),
    (r"[Pp]assword has expired|entry in database has expired",
     "the KDC no longer accepts the principal: renew it there"),
    (r"expired", _NEW_TICKET),
    (r"[Nn]o [Cc]redentials cache|No Kerberos credentials|Credentials cache", _NEW_TICKET),
    (r"revoked|locked", "the KDC has locked the principal"),
)  # fmt: skip


def gssapi_library() -> Any:
    """Return the optional package `gssapi`; raise LoginError with the way to install it if it is missing."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise LoginError(NEEDED + reason) from None
    return gssapi


def gssapi_exchange(login: Kerberos, host: str) -> Exchange:
    """Log in with GSSAPI (RFC 4752); every login asks for new tickets, because a process runs longer than they last."""
    library = gssapi_library()
    try:
        context, token = _first_token(library, login, _host_name(host))
        while not context.complete:
            token = context.step((yield token)) or b""
        layers = context.unwrap((yield token)).message
        answer: bytes = context.wrap(bytes([_NO_LAYER]) + layers[1:4] + login.principal.encode(), False).message
    except library.exceptions.GSSError as error:
        raise LoginError(_explain(error, library, is_new=bool(login.keytab))) from None
    return answer


def _first_token(library: Any, login: Kerberos, host: str) -> tuple[Any, bytes]:
    if login.config:
        os.environ["KRB5_CONFIG"] = _config(login.config_path, login.config)
    name = login.principal and library.Name(login.principal, library.NameType.kerberos_principal)
    service = library.Name(f"{login.service}@{host}", library.NameType.hostbased_service)
    store = _credential_store(login)
    lock = _locks[store.get("ccache", "")]
    if not lock.acquire(timeout=_LOCK_TIMEOUT):
        raise LoginError("no KDC answers: are the addresses in krb5.conf right?")
    try:
        credentials = library.Credentials(name=name or None, usage="initiate", store=store or None)
        context = library.SecurityContext(name=service, creds=credentials, usage="initiate")
        return context, context.step(None)
    finally:
        lock.release()


def _credential_store(login: Kerberos) -> dict[str, str]:
    if not login.keytab:
        return {"ccache": login.cache} if login.cache else {}
    cache_id = hashlib.sha256(login.principal.encode() + login.keytab + login.config).hexdigest()
    return {"client_keytab": f"FILE:{_private_file(login.keytab)}", "ccache": f"MEMORY:mirrormaker-{cache_id}"}


@functools.cache
def _config(path: str, contents: bytes) -> str:
    """Return the path of the user's own krb5.conf if this machine has it unchanged, otherwise the path of a copy."""
    try:
        if Path(path).read_bytes() == contents:
            return str(Path(path).absolute())
    except OSError:
        pass
    return _private_file(contents)


@functools.cache
def _private_file(contents: bytes) -> str:
    """Return the path of a file that only this process can read and that vanishes with it, even if it is killed."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("mirrormaker")
        path = f"/proc/self/fd/{file}"
    else:
        file, path = tempfile.mkstemp(dir=_directory().name)
    os.fchmod(file, 0o600)
    with open(file, "wb", closefd=False) as out:
        out.write(contents)
    return path


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """Return a private directory, removed at exit, for systems without memfd_create."""
    return tempfile.TemporaryDirectory(prefix="mirrormaker-")


def _host_name(host: str) -> str:
    """Return the host's name: brokers' principals hold names, so an IP address is looked up as Java does."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    try:
        return socket.gethostbyaddr(host)[0]
    except OSError:
        return host


def _explain(error: Any, library: Any, *, is_new: bool) -> str:
    """Return libkrb5's own message without GSSAPI's around it, and the way out.

    `is_new`: the ticket comes fresh from the KDC, so it can be expired only if the clocks differ.
    """
    words = " ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else str(error)
    if isinstance(error, library.exceptions.ExpiredCredentialsError):
        words = "the ticket has expired"
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, words)), "")
    advice = _CLOCKS if is_new and advice is _NEW_TICKET else advice
    return f"{words}: {advice}" if advice else words
