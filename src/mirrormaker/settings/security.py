"""The security settings of a file: stores are opened here, once, and what they hold goes on as values."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirrormaker.errors import SettingError
from mirrormaker.settings.login import LoginFiles, sasl
from mirrormaker.settings.property_file import File
from mirrormaker.wire.credentials import Security, Tls

if TYPE_CHECKING:
    from mirrormaker.wire.auth.keystores import PrivateKey

_TRUST, _KEY, _LOGIN = "ssl.truststore", "ssl.keystore", "sasl.jaas.config"


def security(file: File, logins: LoginFiles) -> Security:
    """What the file says; without TLS its stores are not looked at, and without SASL its logins are not."""
    protocol = file.text("security.protocol")
    return Security(
        protocol,
        tls=_tls(file) if protocol.endswith("SSL") else None,
        sasl=sasl(file, logins) if protocol.startswith("SASL") else None,
    )


def idle_security(file: File) -> list[str]:
    """Stores and logins that are named in vain: someone may believe that records travel encrypted."""
    protocol = file.text("security.protocol")
    named = [f"{store}.location" for store in (_TRUST, _KEY) if file.has(f"{store}.location")]
    notes = []
    if named and not protocol.endswith("SSL"):
        notes.append(
            f"{file.where(named[0])}: {named[0]} is not used: security.protocol is {protocol}, so nothing is encrypted"
        )
    if file.has(_LOGIN) and not protocol.startswith("SASL"):
        notes.append(f"{file.where(_LOGIN)}: {_LOGIN} is not used: security.protocol is {protocol}, so nobody logs in")
    return notes


def _tls(file: File) -> Tls:
    """What cannot work is said now, with the file's name."""
    from mirrormaker.errors import StoreError, TlsFailed
    from mirrormaker.wire.auth.keystores import to_pem
    from mirrormaker.wire.transport.tls import ssl_context

    own, trust = _secret(file), _trusted(file)
    try:
        found = replace(
            _identity(own) if own else Tls(),
            trust=to_pem("CERTIFICATE", trust),
            checks_host=file.text("ssl.endpoint.identification.algorithm") == "https",
            protocols=tuple(name for name in file.value("ssl.enabled.protocols") if name in ("TLSv1.2", "TLSv1.3")),
            ciphers=file.value("ssl.cipher.suites") or (),
        )
        ssl_context(found)
    except (TlsFailed, StoreError) as error:
        raise SettingError(f"{file.properties.path}: TLS does not work with these ssl settings: {error}") from error
    return found


def _identity(own: PrivateKey) -> Tls:
    from mirrormaker.wire.auth.keystores import encrypt_private_key, subject_of, to_pem

    password = secrets.token_urlsafe()
    return Tls(
        chain=to_pem("CERTIFICATE", own.chain),
        key=encrypt_private_key(own.key, password),
        password=password,
        subject=subject_of(own.chain[0]),
    )


def _trusted(file: File) -> list[bytes]:
    from mirrormaker.errors import StoreError
    from mirrormaker.wire.auth.keystores import load_trusted_certificates

    data, name = _content(file, _TRUST, "certificates")
    try:
        return load_trusted_certificates(data, file.text(f"{_TRUST}.password")) if name else []
    except StoreError as error:
        raise _refused(file, name, error, f"{_TRUST}.password") from None


def _secret(file: File) -> PrivateKey | None:
    from mirrormaker.errors import StoreError
    from mirrormaker.wire.auth.keystores import load_pem_private_key, load_private_key

    data, name = _content(file, _KEY, "key")
    if not name:
        return None
    passwords = file.text(f"{_KEY}.password"), file.text("ssl.key.password")
    try:
        if name.endswith("key"):
            chain = file.required(f"{_KEY}.certificate.chain", "-----BEGIN CERTIFICATE-----…")
            return load_pem_private_key(data, chain.encode("latin-1"), passwords[1])
        return load_private_key(data, *passwords)
    except StoreError as error:
        raise _refused(file, name, error, f"{_KEY}.password, ssl.key.password") from None


def _content(file: File, store: str, itself: str) -> tuple[bytes, str]:
    """The bytes of a store, and the setting that holds or names it; "" if there is none."""
    inline, name = f"{store}.{itself}", f"{store}.location"
    path = file.text(name)
    if file.text(inline):
        if path:
            raise SettingError(f"{file.where(inline)}: {inline} and {name} are both given; remove one of them")
        return file.text(inline).encode("latin-1", "replace"), inline
    if not path:
        return b"", ""
    try:
        return Path(path).read_bytes(), name
    except OSError as error:
        raise SettingError(
            f"{file.where(name)}: {name}={file.shown(name)}: {(error.strerror or str(error)).lower()}"
        ) from None


def _refused(file: File, name: str, error: Exception, passwords: str) -> SettingError:
    from mirrormaker.errors import WrongPassword

    what = name if not name.endswith("location") else f"{name}={file.shown(name)}"
    hint = f" (see {passwords})" if isinstance(error, WrongPassword) else ""
    return SettingError(f"{file.where(name)}: {what}: {error}{hint}")
