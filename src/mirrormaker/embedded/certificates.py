"""Certificates, key stores and trust stores for brokers and clients on this machine, made when they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from mirrormaker.embedded.java_runtime import java
from mirrormaker.errors import EmbeddedError

_VALID = timedelta(days=30)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate. They are in a PEM file; other formats are written beside it."""

    pem: Path  # the key, its certificate and the certificate of the authority
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    def pkcs12(self, password: str) -> Path:
        """Write a PKCS12 key store and return its path."""
        name, encryption = self.pem.stem.encode(), serialization.BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(name, self.key, self.certificate, [self.issuer], encryption)
        return _write_private(self.pem.with_suffix(".p12"), data)

    def jks(self, password: str, key_password: str) -> Path:
        """Write a JKS key store with keytool and return its path."""
        file = self.pem.with_suffix(".jks")
        file.unlink(missing_ok=True)
        source = ["-srckeystore", str(self.pkcs12(password)), "-srcstorepass", password, "-srcalias", self.pem.stem]
        target = ["-destkeystore", str(file), "-deststoretype", "JKS", "-deststorepass", password]
        keytool("-importkeystore", *source, *target, "-destkeypass", key_password)
        return file


class Authority:
    """A certificate authority. Clients and brokers trust its certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = directory / f"{name}.pem"
        self.pem.write_bytes(_pem(self.certificate))

    def issue(
        self, name: str, *, host: str = "localhost", since: datetime | None = None, organisation: str = "test"
    ) -> Identity:
        """Issue a certificate for a broker at this host or for a client: CN=name,O=organisation, valid for 30 days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation), x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        try:
            alternative: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        builder = _builder(subject, self._name, key, since).add_extension(
            x509.SubjectAlternativeName([alternative]), critical=False
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = _write_private(self.directory / f"{name}.pem", key_pem + _pem(certificate) + _pem(self.certificate))
        return Identity(file, key, certificate, self.certificate)

    def truststore(self, password: str, kind: str = "JKS") -> Path:
        """Write a trust store with keytool and return its path. Its name ends in .jks also if `kind` is PKCS12."""
        file = self.pem.with_suffix(f".{kind.lower()}.jks")
        file.unlink(missing_ok=True)
        store = ["-keystore", str(file), "-storetype", kind, "-storepass", password]
        keytool("-importcert", "-noprompt", "-alias", "authority", "-file", str(self.pem), *store)
        return file

    def listener(self, name: str, identity: Identity, *, client_auth: str = "required") -> dict[str, str]:
        """Return a broker's settings for a TLS listener."""
        prefix = f"listener.name.{name.lower()}.ssl"
        return {
            f"{prefix}.client.auth": client_auth,
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": str(identity.pem),
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": str(self.pem),
        }


def keytool(*args: str) -> None:
    """Run Java's keytool from the directory of `java`, or from the PATH."""
    beside = Path(java()).with_name("keytool")
    tool = str(beside) if beside.exists() else shutil.which("keytool")
    if tool is None:
        raise EmbeddedError(f"keytool was not found beside {java()} or on the PATH: install a Java that has it")
    done = subprocess.run([tool, *args], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise EmbeddedError(f"keytool {args[0]} failed with exit code {done.returncode}: {done.stdout}{done.stderr}")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime | None = None
) -> x509.CertificateBuilder:
    begin = since or datetime.now(timezone.utc) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _VALID)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private(file: Path, data: bytes) -> Path:
    """Write a file that only this user can read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as private:
        private.write(data)
    return file
