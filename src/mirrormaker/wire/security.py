"""How a cluster's brokers are spoken to: in the clear or through TLS, and as whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tls:
    """What a TLS connection needs, as PEM texts: stores are opened once, on the driver, and executors need no file."""

    trust: str = ""  # certificates that are trusted; "" means the machine's own
    chain: str = ""  # this client's certificate and those that vouch for it
    key: str = field(default="", repr=False)  # this client's private key, not encrypted any more
    checks_host: bool = True  # must the certificate be for the broker's name?
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()  # IANA names; none named: all that are safe


@dataclass(frozen=True)
class Security:
    """Nothing secret is in its repr."""

    protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    tls: Tls | None = None  # with SSL and SASL_SSL
    sasl: Any = field(default=None, repr=False)  # with SASL_PLAINTEXT and SASL_SSL


PLAINTEXT = Security()
