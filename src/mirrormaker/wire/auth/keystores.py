"""Certificates and private keys from Java's key stores (JKS, PKCS12) and from PEM texts.

The content tells the formats apart, not the file's name: keytool writes PKCS12 into files named `.jks` too. JKS is
decoded here: the one library for it was last released in 2020 and depends on four others.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha1
from hmac import compare_digest
from typing import NamedTuple, NoReturn, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import Certificate, InvalidVersion, load_der_x509_certificate

from mirrormaker.errors import StoreError, WrongPassword

T = TypeVar("T")

# What the cryptography library raises for bytes that are not what they should be.
_DAMAGED = (ValueError, UnsupportedAlgorithm, InvalidVersion)
_JKS, _JCEKS, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"
_KEY, _TRUSTED = 1, 2  # kinds of entries in a JKS store
_DIGEST = 20  # bytes of a SHA-1
_WHITENER = b"Mighty Aphrodite"  # a constant of the JKS format
_NO_KEY = "there is no private key in it, only certificates: is it a truststore?"
_SUN_PROTECTOR = bytes.fromhex("2b060104012a02110101")  # the object identifier 1.3.6.1.4.1.42.2.17.1.1
# Line breaks are optional, as in Kafka: a PEM text in a properties file may have lost them.
_PEM = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]+)-----\s*((?:[\w-]+: [^\r\n]*\r?\n)*)([A-Za-z0-9+/=\s]*)-----END \1-----", re.ASCII
)


class PrivateKey(NamedTuple):
    """A private key and its certificate chain; the first certificate is the key's own."""

    key: bytes  # PKCS #8, as DER
    chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"PrivateKey({', '.join(map(subject_of, self.chain[:1]))})"


def load_trusted_certificates(data: bytes, password: str) -> list[bytes]:
    """Return the certificates that Java trusts if this is its truststore, also the first one of each key."""
    if data.startswith(_JKS):
        keys, certificates = _load_jks(data, password)
        found = [*certificates, *(chain[0] for _, chain in keys if chain)]
    elif _is_pem(data):
        found = [der for kind, _, der in _pem_blocks(data) if kind.endswith("CERTIFICATE")]
    else:
        key, others = _load_pkcs12(data, password)
        found = [*others, *key.chain[:1]] if key else others
    if not found:
        raise StoreError("there is no certificate in it")
    return list(dict.fromkeys(found))


def load_private_key(data: bytes, password: str, key_password: str = "") -> PrivateKey:
    """Return the private key of a store; of several keys in a JKS store, the one that is valid for longest.

    Without a password of its own, the key has the store's.
    """
    if data.startswith(_JKS):
        keys, _ = _load_jks(data, password)
        usable = [(protected, chain) for protected, chain in keys if chain]
        if not usable:
            raise StoreError(_NO_KEY)
        protected, chain = max(usable, key=lambda entry: _valid_until(entry[1][0]))
        return PrivateKey(_unprotect(protected, key_password or password), chain)
    if _is_pem(data):
        return load_pem_private_key(data, data, key_password or password)
    key, _ = _load_pkcs12(data, password)
    if key is None:
        raise StoreError(_NO_KEY)
    return key


def load_pem_private_key(key: bytes, chain: bytes, password: str) -> PrivateKey:
    """Return the first key of one PEM text with the certificates of another, which may be the same."""
    keys = [(kind, text) for kind, text, _ in _pem_blocks(key) if kind.endswith("PRIVATE KEY")]
    certificates = tuple(der for kind, _, der in _pem_blocks(chain) if kind.endswith("CERTIFICATE"))
    if not keys or not certificates:
        raise StoreError(_NO_KEY if not keys else "there is no certificate for the private key")
    return PrivateKey(_open_key(keys[0][1], password), certificates)


def to_pem(kind: str, ders: Iterable[bytes]) -> str:
    """Return DER encodings as PEM texts of this kind, such as CERTIFICATE."""
    return "".join(f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n" for der in ders)


def encrypt_private_key(key: bytes, password: str) -> str:
    """Return a key as a PEM text that only this password opens."""
    try:
        loaded = serialization.load_der_private_key(key, None)
    except _DAMAGED as error:
        raise StoreError("its private key is of a kind that cannot be used") from error
    encryption = serialization.BestAvailableEncryption(password.encode())
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def _valid_until(certificate: bytes) -> datetime:
    return _from_certificate(certificate, lambda parsed: parsed.not_valid_after_utc)


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in the form that Kafka uses for principals."""
    return _from_certificate(certificate, lambda parsed: parsed.subject.rfc4514_string())


def _from_certificate(certificate: bytes, get: Callable[[Certificate], T]) -> T:
    """Return a part of a certificate; some parts are decoded only when somebody asks for them."""
    try:
        return get(load_der_x509_certificate(certificate))
    except _DAMAGED:
        raise StoreError("a certificate in it is damaged, or of a kind that cannot be used") from None


# -- PEM


def _is_pem(data: bytes) -> bool:
    """Return True for PEM and False for PKCS12; raise StoreError for anything else."""
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
    """Return each block of a PEM text: its kind, its text with line breaks restored, and its content."""
    blocks = []
    for kind, headers, body in _PEM.findall(data):
        digits = b"".join(body.split())
        lines = b"\n".join(digits[at : at + 64] for at in range(0, len(digits), 64))
        text = b"-----BEGIN %s-----\n%s%s\n-----END %s-----\n" % (kind, headers + b"\n" * bool(headers), lines, kind)
        try:
            der = base64.b64decode(digits, validate=True)
            if kind.endswith(b"CERTIFICATE"):
                load_der_x509_certificate(der)
        except _DAMAGED:
            raise StoreError(f"a {kind.decode().lower()} in this PEM text is damaged") from None
        blocks.append((kind.decode(), text, der))
    return blocks


def _open_key(text: bytes, password: str) -> bytes:
    is_encrypted = b"ENCRYPTED" in text
    if is_encrypted and not password:
        raise WrongPassword("the private key is encrypted, and there is no password for it")
    try:
        key = serialization.load_pem_private_key(text, password.encode() if is_encrypted else None)
    except (TypeError, *_DAMAGED):
        if is_encrypted:
            raise WrongPassword("the password does not open the private key") from None
        raise StoreError("the private key in this PEM text is damaged, or of a kind that cannot be used") from None
    return _pkcs8(key)


# -- PKCS12


def _load_pkcs12(data: bytes, password: str) -> tuple[PrivateKey | None, list[bytes]]:
    """Return the key if there is one, and all other certificates."""
    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except _DAMAGED:
        raise WrongPassword("the password does not open this PKCS12 store, or it is damaged") from None
    own = [_der(store.cert.certificate)] if store.cert else []
    others = [_der(entry.certificate) for entry in store.additional_certs]
    if store.key is None:
        return None, own + others
    if not own:
        raise StoreError("this PKCS12 store has a key and no certificate for it")
    return PrivateKey(_pkcs8(store.key), (*own, *others)), others


def _der(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pkcs8(key: object) -> bytes:
    assert hasattr(key, "private_bytes")
    der: bytes = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return der


# -- JKS


def _load_jks(data: bytes, password: str) -> tuple[list[tuple[bytes, tuple[bytes, ...]]], list[bytes]]:
    """Return the protected keys with their chains, and the trusted certificates.

    Without a password the store's checksum is not verified, as in Java.
    """
    if password and not compare_digest(sha1(_utf16(password) + _WHITENER + data[:-_DIGEST]).digest(), data[-_DIGEST:]):
        raise WrongPassword("the password does not open this JKS store, or it is damaged")
    try:
        return _entries(_Reader(data[4:-_DIGEST]))
    except IndexError:
        raise StoreError("this JKS store is damaged") from None


def _entries(reader: _Reader) -> tuple[list[tuple[bytes, tuple[bytes, ...]]], list[bytes]]:
    keys, certificates = [], []
    version, count = reader.number(), reader.number()
    for _ in range(count):
        kind = reader.number()
        reader.text()  # the alias
        reader.take(8)  # the time of its creation
        if kind == _TRUSTED:
            certificates.append(reader.certificate(version))
        elif kind == _KEY:
            protected = reader.take(reader.number())
            keys.append((protected, tuple(reader.certificate(version) for _ in range(reader.number()))))
        else:
            raise StoreError(f"this JKS store holds an entry of an unknown kind ({kind})")
    return keys, certificates


class _Reader:
    """Reads the types of Java's DataInputStream; raises IndexError at the end."""

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
            self.text()  # the certificate's type, always X.509
        return self.take(self.number())


def _unprotect(blob: bytes, password: str) -> bytes:
    """Decrypt a key in Sun's own format: a salt, the key XORed with a stream of SHA-1 digests, a checksum."""
    protected = _content(_content(blob, 0x30), 0x30, 0x04, must_have=_SUN_PROTECTOR)
    salt, hidden, checksum = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    secret = _utf16(password)
    stream, last = b"", salt
    while len(stream) < len(hidden):
        last = sha1(secret + last).digest()
        stream += last
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not compare_digest(sha1(secret + key).digest(), checksum):
        raise WrongPassword("the password does not open the private key")
    return key


def _content(der: bytes, *tags: int, must_have: bytes = b"") -> bytes:
    """Return the content of the last of several DER elements that follow one another and have these tags."""
    at, content = 0, b""
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
            content, at = der[start : start + size], start + size
    except IndexError:
        _bad_key()
    return content


def _bad_key() -> NoReturn:
    raise StoreError("a private key in this JKS store is damaged, or protected in a way that is not Java's own")


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
