"""How a cluster's brokers are spoken to: in the clear or through TLS, and as whom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tls:
    """What a TLS connection needs, as PEM texts: stores are opened once, on the driver, and executors need no file."""

    trust: str = field(default="", repr=False)  # certificates that are trusted; "" means the machine's own
    chain: str = field(default="", repr=False)  # this client's certificate and those that vouch for it; "" means none
    key: str = field(default="", repr=False)  # its private key, under a password that was made for it
    password: str = field(default="", repr=False)
    subject: str = ""  # whom the certificate names
    checks_host: bool = True  # must the broker's certificate be for its name?
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()  # as Java names them; none named: all that are safe


@dataclass(frozen=True)
class Password:
    """For PLAIN and SCRAM."""

    user: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return f"user {self.user}"

    @property
    def principal_name(self) -> str:
        return f"User:{self.user}"


@dataclass(frozen=True)
class Kerberos:
    """For GSSAPI. Executors have none of the driver's files, so what is in them goes along."""

    service: str  # the first part of the brokers' principals
    principal: str  # "": whomever the ticket cache belongs to
    keytab: bytes = field(default=b"", repr=False)  # b"": tickets come from the cache
    cache: str = ""  # a ticket cache, as kinit names it; "": the machine's own
    config_path: str = ""  # of a krb5.conf; "": the machine's own
    config: bytes = field(default=b"", repr=False)  # what is in it

    def __str__(self) -> str:
        return f"principal {self.principal}" if self.principal else "whoever has the ticket cache"

    @property
    def principal_name(self) -> str:
        """By the brokers' default rule: what stands before the first / or @."""
        return f"User:{re.split('[/@]', self.principal)[0]}" if self.principal else ""


@dataclass(frozen=True)
class Client:
    """For OAUTHBEARER: what an OAuth server gives a token for."""

    token_url: str
    id: str
    secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()  # for the broker

    def __str__(self) -> str:
        return f"client {self.id}"

    @property
    def principal_name(self) -> str:
        return ""  # stands in the token, under a name that the brokers choose


@dataclass(frozen=True)
class Sasl:
    """Who we are, and how the brokers are told."""

    mechanism: str
    login: Password | Kerberos | Client
    where: str = ""  # the file and line that say so, for errors


@dataclass(frozen=True)
class Security:
    """Nothing secret is in its repr."""

    protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    tls: Tls | None = None  # with SSL and SASL_SSL
    sasl: Sasl | None = None  # with SASL_PLAINTEXT and SASL_SSL

    @property
    def principal(self) -> str:
        """As whom the brokers know this client, unless they have rules of their own; "" if it cannot be told."""
        if self.sasl is not None:
            return self.sasl.login.principal_name
        return f"User:{self.tls.subject}" if self.tls and self.tls.subject else "User:ANONYMOUS"


PLAINTEXT = Security()
