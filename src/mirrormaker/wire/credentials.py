"""How to talk to a cluster's brokers: with or without TLS, and with which login.

These are plain values: the driver reads the files that they come from, and executors get the values, not the files. No
secret is part of a repr.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# The TLS versions that can be used, under Java's names.
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True)
class Tls:
    """The settings of a TLS connection, with certificates and keys as PEM texts."""

    # Trusted certificates; "" means those of the machine.
    trust: str = field(default="", repr=False)
    # This client's certificate, followed by those of its issuers; "" means that it has none.
    chain: str = field(default="", repr=False)
    # The private key, encrypted with `password`.
    key: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    # The subject of this client's certificate.
    subject: str = ""
    # Whether the broker's certificate must be issued for its host name.
    checks_host: bool = True
    protocols: tuple[str, ...] = TLS_VERSIONS
    # Cipher suites by Java's names; empty means all that OpenSSL considers safe.
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Password:
    """A login for PLAIN and SCRAM."""

    user: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return f"user {self.user}"

    @property
    def principal_name(self) -> str:
        """Return the principal that brokers make of this login."""
        return f"User:{self.user}"


@dataclass(frozen=True)
class Kerberos:
    """A login for GSSAPI; the contents of keytab and krb5.conf are included."""

    # The first part of the brokers' principals.
    service: str
    # "" means the principal of the ticket cache.
    principal: str
    # b"" means that tickets come from the ticket cache.
    keytab: bytes = field(default=b"", repr=False)
    # A ticket cache, as kinit names it; "" means the machine's default.
    cache: str = ""
    # The path and the contents of krb5.conf; empty means the machine's default.
    config_path: str = ""
    config: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"principal {self.principal}" if self.principal else "the principal of the ticket cache"

    @property
    def principal_name(self) -> str:
        """Return the principal by the brokers' default rule, the text before the first / or @, or "" if unknown."""
        return f"User:{re.split('[/@]', self.principal)[0]}" if self.principal else ""


@dataclass(frozen=True)
class OAuthClient:
    """A login for OAUTHBEARER: the client to which an OAuth server gives a token."""

    token_url: str
    id: str
    secret: str = field(repr=False)
    scope: str = ""
    # SASL extensions for the broker: names and values.
    extensions: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"client {self.id}"

    @property
    def principal_name(self) -> str:
        """Return "": the principal is in the token, in a claim that the brokers choose."""
        return ""


@dataclass(frozen=True)
class Sasl:
    """A SASL mechanism and the login to use with it."""

    mechanism: str
    login: Password | Kerberos | OAuthClient
    # The file and line that define the login, for error messages.
    where: str = ""


@dataclass(frozen=True)
class Security:
    """A security protocol and what it needs: TLS settings, a login, both or neither."""

    protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    tls: Tls | None = None  # with SSL and SASL_SSL
    sasl: Sasl | None = None  # with SASL_PLAINTEXT and SASL_SSL

    @property
    def principal(self) -> str:
        """Return the principal by which brokers know this client, by their default rules; "" if it is not known."""
        if self.sasl is not None:
            return self.sasl.login.principal_name
        return f"User:{self.tls.subject}" if self.tls and self.tls.subject else "User:ANONYMOUS"


PLAINTEXT = Security()
