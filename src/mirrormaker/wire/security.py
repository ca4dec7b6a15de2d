"""How a cluster's brokers are spoken to: in the clear or through TLS, and as whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
class Security:
    """Nothing secret is in its repr."""

    protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    tls: Tls | None = None  # with SSL and SASL_SSL
    sasl: Any = field(default=None, repr=False)  # with SASL_PLAINTEXT and SASL_SSL

    @property
    def principal(self) -> str:
        """As whom the brokers know this client, unless they have rules of their own; "" if it cannot be told."""
        if self.protocol.startswith("SASL"):
            return ""
        return f"User:{self.tls.subject}" if self.tls and self.tls.subject else "User:ANONYMOUS"


PLAINTEXT = Security()
