"""Java's key stores and PEM texts, told apart by content: keytool writes PKCS12 under any name, `.jks` too.

JKS is read here: the one library for it was last released in 2020 and brings four others along.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha1
from hmac import compare_digest
from typing import NamedTuple, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import Certificate, load_der_x509_certificate

from mirrormaker.errors import StoreError, WrongPassword

_JKS, _JCEKS, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"
_KEY, _TRUSTED = 1, 2  # kinds of entries
_DIGEST = 20  # bytes of a SHA-1
_WHITENER = b"Mighty Aphrodite"
_NO_KEY = "there is no private key in it, only certificates: is it a truststore?"
_SUN_PROTECTOR = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
# As Kafka reads it: in a properties file a text may have lost its line breaks.
_PEM = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]+)-----\s*((?:[\w-]+: [^\r\n]*\r?\n)*)([A-Za-z0-9+/=\s]*)-----END \1-----", re.ASCII
)


class Secret(NamedTuple):
    """A private key, and the certificates that go with it: the first is the key's own."""

    key: bytes  # PKCS #8, as DER
    chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"Secret({', '.join(map(subject, self.chain[:1]))})"


def trusted(data: bytes, password: str) -> list[bytes]:
    """The certificates that Java trusts who is given this store: also the first one of each key."""
    if data.startswith(_JKS):
        secrets, alone = _load_jks(data, password)
        found = [*alone, *(chain[0] for _, chain in secrets if chain)]
    elif _is_pem(data):
        found = [der for kind, _, der in _pem_blocks(data) if kind.endswith("CERTIFICATE")]
    else:
        one, others = _load_pkcs12(data, password)
        found = [*others, *one.chain[:1]] if one else others
    if not found:
        raise StoreError("there is no certificate in it")
    return list(dict.fromkeys(found))


def secret(data: bytes, password: str, key_password: str = "") -> Secret:
    """The private key of a store; it has the store's password unless another is given."""
    if data.startswith(_JKS):
        secrets, _ = _load_jks(data, password)
        found = [chained for chained in secrets if chained[1]]
        if not found:
            raise StoreError(_NO_KEY)
        sealed, chain = max(found, key=lambda chained: _ends(chained[1][0]))  # of several, the newest
        return Secret(_unprotected(sealed, key_password or password), chain)
    if _is_pem(data):
        return secret_of_pem(data, data, key_password or password)
    one, _ = _load_pkcs12(data, password)
    if one is None:
        raise StoreError(_NO_KEY)
    return one


def secret_of_pem(key: bytes, chain: bytes, password: str) -> Secret:
    """The first key of one PEM text, and the certificates of another, or of the same."""
    keys = [(kind, text) for kind, text, _ in _pem_blocks(key) if kind.endswith("PRIVATE KEY")]
    certificates = tuple(der for kind, _, der in _pem_blocks(chain) if kind.endswith("CERTIFICATE"))
    if not keys or not certificates:
        raise StoreError(_NO_KEY if not keys else "there is no certificate for the private key")
    return Secret(_open_key(keys[0][1], password), certificates)


def pem(kind: str, ders: Iterable[bytes]) -> str:
    """DER as PEM texts."""
    return "".join(f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n" for der in ders)


def encrypted(key: bytes, password: str) -> str:
    """A key as PEM that only this password opens."""
    try:
        loaded = serialization.load_der_private_key(key, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StoreError("its private key is of a kind that cannot be used") from error
    hidden = serialization.BestAvailableEncryption(password.encode())
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden).decode()


def _ends(certificate: bytes) -> datetime:
    return _parsed(certificate).not_valid_after_utc


def _parsed(certificate: bytes) -> Certificate:
    try:
        return load_der_x509_certificate(certificate)
    except ValueError:
        raise StoreError("a certificate in it is damaged") from None


def subject(certificate: bytes) -> str:
    """Whose certificate it is, as Kafka names its principal."""
    return _parsed(certificate).subject.rfc4514_string()


# -- PEM


def _is_pem(data: bytes) -> bool:
    """PEM, and not PKCS12; whatever is neither is refused."""
    if data.startswith(_JCEKS):
        raise StoreError(
            "this is a JCEKS store; turn it into PKCS12: keytool -importkeystore -srckeystore FILE -destkeystore NEW"
            " -deststoretype PKCS12"
        )
    if b"-----BEGIN " in data:
        return True
    if not data.startswith(_DER_SEQUENCE):
        raise StoreError("this is neither a JKS nor a PKCS12 store nor PEM" if data.strip() else "it is empty")
    return False


def _pem_blocks(data: bytes) -> list[tuple[str, bytes, bytes]]:
    """Kind, text with its line breaks in place, and content."""
    found = []
    for kind, headers, body in _PEM.findall(data):
        digits = b"".join(body.split())
        lines = b"\n".join(digits[at : at + 64] for at in range(0, len(digits), 64))
        text = b"-----BEGIN %s-----\n%s%s\n-----END %s-----\n" % (kind, headers + b"\n" * bool(headers), lines, kind)
        try:
            der = base64.b64decode(digits, validate=True)
            if kind.endswith(b"CERTIFICATE"):
                load_der_x509_certificate(der)
        except ValueError:
            raise StoreError(f"a {kind.decode().lower()} in this PEM text is damaged") from None
        found.append((kind.decode(), text, der))
    return found


def _open_key(text: bytes, password: str) -> bytes:
    is_encrypted = b"ENCRYPTED" in text
    if is_encrypted and not password:
        raise WrongPassword("the private key is encrypted, and there is no password for it")
    try:
        key = serialization.load_pem_private_key(text, password.encode() if is_encrypted else None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        if is_encrypted:
            raise WrongPassword("the password does not open the private key") from None
        raise StoreError("the private key in this PEM text is damaged, or of a kind that cannot be used") from None
    return _pkcs8(key)


# -- PKCS12


def _load_pkcs12(data: bytes, password: str) -> tuple[Secret | None, list[bytes]]:
    """The key if there is one, and all other certificates."""
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except (ValueError, UnsupportedAlgorithm):
        raise WrongPassword("the password does not open this PKCS12 store, or it is damaged") from None
    own = [_encoded(found.cert.certificate)] if found.cert else []
    others = [_encoded(entry.certificate) for entry in found.additional_certs]
    if found.key is None:
        return None, own + others
    if not own:
        raise StoreError("this PKCS12 store has a key and no certificate for it")
    return Secret(_pkcs8(found.key), (*own, *others)), others


def _encoded(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pkcs8(key: object) -> bytes:
    assert hasattr(key, "private_bytes")
    found: bytes = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return found


# -- JKS


def _load_jks(data: bytes, password: str) -> tuple[list[tuple[bytes, tuple[bytes, ...]]], list[bytes]]:
    """Protected keys with their chains, and trusted certificates. Without a password nothing is checked, as in Java."""
    if password and not compare_digest(sha1(_utf16(password) + _WHITENER + data[:-_DIGEST]).digest(), data[-_DIGEST:]):
        raise WrongPassword("the password does not open this JKS store, or it is damaged")
    try:
        return _entries(_Reader(data[4:-_DIGEST]))
    except IndexError:
        raise StoreError("this JKS store is damaged") from None


def _entries(reader: _Reader) -> tuple[list[tuple[bytes, tuple[bytes, ...]]], list[bytes]]:
    secrets, alone = [], []
    version, count = reader.number(), reader.number()
    for _ in range(count):
        kind = reader.number()
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if kind == _TRUSTED:
            alone.append(reader.certificate(version))
        elif kind == _KEY:
            sealed = reader.take(reader.number())
            secrets.append((sealed, tuple(reader.certificate(version) for _ in range(reader.number()))))
        else:
            raise StoreError(f"this JKS store holds an entry of an unknown kind ({kind})")
    return secrets, alone


class _Reader:
    """Java's DataInputStream."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise IndexError(count)
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "big"))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # X.509, always
        return self.take(self.number())


def _unprotected(blob: bytes, password: str) -> bytes:
    """The key out of Sun's own protection: salt, key under a stream of SHA-1s, and a check."""
    sealed = _content(_content(blob, 0x30), 0x30, 0x04, must_have=_SUN_PROTECTOR)
    salt, hidden, check = sealed[:_DIGEST], sealed[_DIGEST:-_DIGEST], sealed[-_DIGEST:]
    secret = _utf16(password)
    stream, last = b"", salt
    while len(stream) < len(hidden):
        last = sha1(secret + last).digest()
        stream += last
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not compare_digest(sha1(secret + key).digest(), check):
        raise WrongPassword("the password does not open the private key")
    return key


def _content(der: bytes, *tags: int, must_have: bytes = b"") -> bytes:
    """What the last of these elements holds, which stand one after the other."""
    at, found = 0, b""
    try:
        for tag in tags:
            size, start = der[at + 1], at + 2
            if size > 0x80:
                start += size & 0x7F
                size = int.from_bytes(der[at + 2 : start], "big")
            if der[at] != tag or start + size > len(der):
                _bad_key()
            if must_have and tag == 0x30 and must_have not in der[start : start + size]:
                _bad_key()
            found, at = der[start : start + size], start + size
    except IndexError:
        _bad_key()
    return found


def _bad_key() -> NoReturn:
    raise StoreError("a private key in this JKS store is damaged, or protected in a way that is not Java's own")


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
