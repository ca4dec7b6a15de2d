"""The security settings of a file. Key stores are read here, once; executors get their content and need no files."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirrormaker.errors import SettingError
from mirrormaker.settings.login import LoginFiles, sasl
from mirrormaker.settings.property_file import PropertyFile
from mirrormaker.wire.credentials import Security, Tls

if TYPE_CHECKING:
    from mirrormaker.wire.auth.keystores import Secret

_TRUST, _KEY, _LOGIN = "ssl.truststore", "ssl.keystore", "sasl.jaas.config"


def security(file: PropertyFile, logins: LoginFiles) -> Security:
    """Return how to connect to the brokers. Stores are read only for TLS, logins only for SASL."""
    protocol = file.text("security.protocol")
    return Security(
        protocol,
        tls=_tls(file) if protocol.endswith("SSL") else None,
        sasl=sasl(file, logins) if protocol.startswith("SASL") else None,
    )


def unused_security(file: PropertyFile) -> list[str]:
    """Return notes on stores and logins that the security protocol does not use.

    Without a note, someone may believe that the connections are encrypted.
    """
    protocol = file.text("security.protocol")
    stores = [f"{store}.location" for store in (_TRUST, _KEY) if file.has(f"{store}.location")]
    notes = []
    if stores and not protocol.endswith("SSL"):
        key = stores[0]
        notes.append(f"{file.where(key)}: {key} is not used: security.protocol is {protocol}, so nothing is encrypted")
    if file.has(_LOGIN) and not protocol.startswith("SASL"):
        notes.append(
            f"{file.where(_LOGIN)}: {_LOGIN} is not used: security.protocol is {protocol}, so there is no login"
        )
    return notes


def _tls(file: PropertyFile) -> Tls:
    """Return the TLS settings; raise an error that names the file if TLS does not work with them."""
    from mirrormaker.errors import StoreError, TlsFailed
    from mirrormaker.wire.auth.keystores import pem
    from mirrormaker.wire.transport.tls import context

    own, trust = _secret(file), _trusted(file)
    try:
        found = replace(
            _identity(own) if own else Tls(),
            trust=pem("CERTIFICATE", trust),
            checks_host=file.text("ssl.endpoint.identification.algorithm") == "https",
            protocols=tuple(name for name in file.value("ssl.enabled.protocols") if name in ("TLSv1.2", "TLSv1.3")),
            ciphers=file.value("ssl.cipher.suites") or (),
        )
        context(found)
    except (TlsFailed, StoreError) as error:
        raise SettingError(f"{file.properties.path}: TLS does not work with these ssl settings: {error}") from error
    return found


def _identity(own: Secret) -> Tls:
    """Return TLS settings with this client's key, encrypted with a new password for the way to the executors."""
    from mirrormaker.wire.auth.keystores import encrypted, pem, subject

    password = secrets.token_urlsafe()
    return Tls(
        chain=pem("CERTIFICATE", own.chain),
        key=encrypted(own.key, password),
        password=password,
        subject=subject(own.chain[0]),
    )


def _trusted(file: PropertyFile) -> list[bytes]:
    from mirrormaker.errors import StoreError
    from mirrormaker.wire.auth.keystores import trusted

    data, name = _content(file, _TRUST, "certificates")
    try:
        return trusted(data, file.text(f"{_TRUST}.password")) if name else []
    except StoreError as error:
        raise _store_error(file, name, error, f"{_TRUST}.password") from None


def _secret(file: PropertyFile) -> Secret | None:
    from mirrormaker.errors import StoreError
    from mirrormaker.wire.auth.keystores import secret, secret_of_pem

    data, name = _content(file, _KEY, "key")
    if not name:
        return None
    passwords = file.text(f"{_KEY}.password"), file.text("ssl.key.password")
    try:
        if name.endswith("key"):
            chain = file.required(f"{_KEY}.certificate.chain", "-----BEGIN CERTIFICATE-----…")
            return secret_of_pem(data, chain.encode("latin-1"), passwords[1])
        return secret(data, *passwords)
    except StoreError as error:
        raise _store_error(file, name, error, f"{_KEY}.password, ssl.key.password") from None


def _content(file: PropertyFile, store: str, inline_key: str) -> tuple[bytes, str]:
    """Return the content of a store, and the setting that contains or names it; "" if there is no store."""
    inline, name = f"{store}.{inline_key}", f"{store}.location"
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
            f"{file.where(name)}: {name}={file.as_written(name)}: {(error.strerror or str(error)).lower()}"
        ) from None


def _store_error(file: PropertyFile, name: str, error: Exception, passwords: str) -> SettingError:
    from mirrormaker.errors import WrongPassword

    setting = name if not name.endswith("location") else f"{name}={file.as_written(name)}"
    hint = f" (see {passwords})" if isinstance(error, WrongPassword) else ""
    return SettingError(f"{file.where(name)}: {setting}: {error}{hint}")
