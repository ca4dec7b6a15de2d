"""The security settings of a file. Key stores are read here, once; executors get their content and need no files."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrormaker.errors import SettingError, StoreError, TlsFailed, WrongPassword
from mirrormaker.settings.login import TOKEN_URL, LoginFiles, sasl
from mirrormaker.settings.properties import file_content
from mirrormaker.settings.property_file import PropertyFile
from mirrormaker.wire.credentials import TLS_VERSIONS, Security, Tls

# The modules for TLS load the cryptography library, so they are imported only for files that use TLS.
if TYPE_CHECKING:
    from mirrormaker.wire.auth.keystores import PrivateKey

_TRUST, _KEY, _LOGIN = "ssl.truststore", "ssl.keystore", "sasl.jaas.config"
_SENT_AS_IT_IS = {"PLAIN": "password", "OAUTHBEARER": "token"}


def security(file: PropertyFile, logins: LoginFiles) -> Security:
    """Return how to connect to the brokers. Stores are read only for TLS, logins only for SASL."""
    protocol = file.text("security.protocol")
    return Security(
        protocol,
        tls=_tls(file) if protocol.endswith("SSL") else None,
        sasl=sasl(file, logins) if protocol.startswith("SASL") else None,
    )


def security_notes(file: PropertyFile) -> list[str]:
    """Return notes on stores and logins that the security protocol does not use, and on secrets that everybody can read.

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
    mechanism = file.text("sasl.mechanism") if protocol.startswith("SASL") else ""
    if protocol == "SASL_PLAINTEXT" and mechanism in _SENT_AS_IT_IS:
        notes.append(
            f"{file.where('security.protocol')}: security.protocol={protocol} sends the {_SENT_AS_IT_IS[mechanism]} of"
            f" sasl.mechanism={mechanism} unencrypted; use SASL_SSL"
        )
    if mechanism == "OAUTHBEARER" and file.text(TOKEN_URL).lower().startswith("http:"):
        notes.append(
            f"{file.where(TOKEN_URL)}: {TOKEN_URL} is http: the client's secret is sent unencrypted; use https"
        )
    return notes


def _tls(file: PropertyFile) -> Tls:
    """Return the TLS settings; raise an error that names the file if TLS does not work with them."""
    from mirrormaker.wire.auth.keystores import to_pem
    from mirrormaker.wire.transport.tls import ssl_context

    private_key, trusted = _private_key(file), _trusted_certificates(file)
    try:
        tls = replace(
            _client_tls(private_key) if private_key else Tls(),
            trust=to_pem("CERTIFICATE", trusted),
            checks_host=file.text("ssl.endpoint.identification.algorithm") == "https",
            protocols=tuple(name for name in file.value("ssl.enabled.protocols") if name in TLS_VERSIONS),
            ciphers=file.value("ssl.cipher.suites") or (),
        )
        ssl_context(tls)
    except (TlsFailed, StoreError) as error:
        raise SettingError(f"{file.properties.path}: TLS does not work with these ssl settings: {error}") from error
    return tls


def _client_tls(private_key: PrivateKey) -> Tls:
    """Return TLS settings with this client's key, encrypted with a new password for the way to the executors."""
    from mirrormaker.wire.auth.keystores import encrypt_private_key, subject_of, to_pem

    password = secrets.token_urlsafe()
    return Tls(
        chain=to_pem("CERTIFICATE", private_key.chain),
        key=encrypt_private_key(private_key.key, password),
        password=password,
        subject=subject_of(private_key.chain[0]),
    )


def _trusted_certificates(file: PropertyFile) -> list[bytes]:
    from mirrormaker.wire.auth.keystores import load_trusted_certificates

    data, name = _content(file, _TRUST, "certificates")
    try:
        return load_trusted_certificates(data, file.text(f"{_TRUST}.password")) if name else []
    except StoreError as error:
        raise _store_error(file, name, error, f"{_TRUST}.password") from None


def _private_key(file: PropertyFile) -> PrivateKey | None:
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
        return file_content(path), name
    except OSError as error:
        raise SettingError(
            f"{file.where(name)}: {name}={file.as_written(name)}: {(error.strerror or str(error)).lower()}"
        ) from None


def _store_error(file: PropertyFile, name: str, error: Exception, passwords: str) -> SettingError:
    setting = name if not name.endswith("location") else f"{name}={file.as_written(name)}"
    hint = f" (see {passwords})" if isinstance(error, WrongPassword) else ""
    return SettingError(f"{file.where(name)}: {setting}: {error}{hint}")
