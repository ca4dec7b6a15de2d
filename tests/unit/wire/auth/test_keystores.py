"""Java's key stores: ours against keytool's and cryptography's view of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_der_private_key
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.embedded.certificates import Authority, Identity, keytool
from mirrormaker.errors import StoreError, WrongPassword
from mirrormaker.wire.auth import keystores
from mirrormaker.wire.auth.keystores import (
    load_pem_private_key,
    load_private_key,
    load_trusted_certificates,
    subject_of,
)

STORE, KEY = "store-password", "key-passwörd"


class Made:
    """Stores, once for all tests: each keytool takes half a second."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.identity: Identity = self.authority.issue("client")
        self.jks = self.identity.jks(STORE, KEY).read_bytes()
        self.pkcs12 = self.identity.pkcs12(STORE).read_bytes()
        self.pem = self.identity.pem.read_bytes()
        self.trust_jks = self.authority.truststore(STORE).read_bytes()
        self.trust_pkcs12 = self.authority.truststore(STORE, "PKCS12").read_bytes()
        self.key = self.identity.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.anchor = self.authority.certificate.public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("stores"))


def test_a_key_is_the_same_from_every_format(made: Made) -> None:
    found = [
        load_private_key(made.jks, STORE, KEY),
        load_private_key(made.pkcs12, STORE),
        load_private_key(made.pem, ""),
    ]
    for one in found:
        loaded = load_der_private_key(one.key, None)
        assert loaded.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ) == made.key  # fmt: skip
        assert [subject_of(certificate) for certificate in one.chain] == ["CN=client,O=test", "CN=authority"]


def test_trusted_certificates_are_the_same_from_every_format(made: Made) -> None:
    for data, password in ((made.trust_jks, STORE), (made.trust_pkcs12, STORE), (made.authority.pem.read_bytes(), "")):
        assert load_trusted_certificates(data, password) == [made.anchor]


def test_a_jks_truststore_opens_without_its_password_as_in_java(made: Made) -> None:
    assert load_trusted_certificates(made.trust_jks, "") == [made.anchor]


def test_a_keystore_as_truststore_needs_no_key_password(made: Made) -> None:
    assert [subject_of(certificate) for certificate in load_trusted_certificates(made.jks, STORE)] == [
        "CN=client,O=test"
    ]


def test_of_several_keys_the_one_that_was_made_last_counts(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "two.jks"
    for alias, days in (("a", "10"), ("b", "20"), ("c", "15")):
        keytool(
            "-genkeypair", "-keyalg", "EC", "-alias", alias, "-dname", f"CN={alias}", "-validity", days, "-keystore", str(store),
            "-storetype", "JKS", "-storepass", STORE, "-keypass", STORE,
        )  # fmt: skip
    assert subject_of(load_private_key(store.read_bytes(), STORE).chain[0]) == "CN=b"


@pytest.mark.parametrize(
    ("store", "password", "key_password", "said"),
    [
        ("jks", "other", KEY, "does not open this JKS store"),
        ("jks", STORE, "other", "does not open the private key"),
        ("jks", STORE, "", "does not open the private key"),
        ("pkcs12", "other", "", "does not open this PKCS12 store"),
        ("pkcs12", "", "", "does not open this PKCS12 store"),
    ],
)
def test_a_wrong_password_is_said_and_not_shown(
    made: Made, store: str, password: str, key_password: str, said: str
) -> None:
    with pytest.raises(WrongPassword, match=said) as error:
        load_private_key(getattr(made, store), password, key_password)
    assert "other" not in str(error.value)


def test_a_truststore_in_the_place_of_a_keystore_is_named_as_such(made: Made) -> None:
    for store in (made.trust_jks, made.trust_pkcs12, made.authority.pem.read_bytes()):
        with pytest.raises(StoreError, match="no private key in it"):
            load_private_key(store, STORE)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"hello", "neither a JKS nor a PKCS12 store nor PEM"),
        (b"\xce\xce\xce\xce\0\0\0\2", "JCEKS store; turn it into PKCS12"),
        (b"\xfe\xed\xfe\xed", "damaged"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "certificate in this PEM text is damaged"),
        (b"-----BEGIN CERTIFICATE-----", "no certificate in it"),
    ],
)
def test_what_is_no_store_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        load_trusted_certificates(data, "")


@given(st.data())
def test_a_damaged_jks_store_is_never_a_crash(made: Made, data: st.DataObject) -> None:
    """Without a password there is no checksum, and any byte may be anything."""
    damaged = bytearray(made.jks)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(5, len(damaged))) :]
    for read in (
        lambda: load_trusted_certificates(bytes(damaged), ""),
        lambda: load_private_key(bytes(damaged), "", KEY),
    ):
        with contextlib.suppress(StoreError):
            read()


def of_the_future(store: bytes) -> bytes:
    """Return a store whose certificates have an X.509 version that does not exist."""
    return store.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07")


def test_a_certificate_of_an_unknown_version_is_refused(made: Made) -> None:
    # Without the store's password its checksum does not count.
    with pytest.raises(StoreError, match="a certificate in it is damaged, or of a kind that cannot be used"):
        load_private_key(of_the_future(made.jks), "", KEY)
    with pytest.raises(StoreError, match="a certificate in it is damaged"):
        subject_of(of_the_future(made.anchor))
    pem = keystores.to_pem("CERTIFICATE", [of_the_future(made.anchor)]).encode()
    with pytest.raises(StoreError, match="a certificate in this PEM text is damaged"):
        load_trusted_certificates(pem, "")


def test_pem_without_line_breaks_is_read(made: Made) -> None:
    """As a properties file's continuation lines leave it."""
    flat = made.pem.replace(b"\n", b"")
    assert load_private_key(flat, "") == load_private_key(made.pem, "")
    assert load_trusted_certificates(made.authority.pem.read_bytes().replace(b"\n", b" "), "") == [made.anchor]


def test_an_encrypted_pem_key_opens_with_its_password(made: Made) -> None:
    hidden = keystores.encrypt_private_key(made.key, KEY).encode()
    assert load_pem_private_key(hidden, made.pem, KEY) == load_private_key(made.pem, "")
    with pytest.raises(WrongPassword, match="does not open the private key"):
        load_pem_private_key(hidden, made.pem, "other")
    with pytest.raises(WrongPassword, match="there is no password"):
        load_pem_private_key(hidden, made.pem, "")


def test_a_secret_is_not_in_its_repr(made: Made) -> None:
    assert repr(load_private_key(made.pem, "")) == "PrivateKey(CN=client,O=test)"
