"""The options of the status server: its address, and the token that protects it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from mirrormaker.errors import SettingError
from mirrormaker.settings.properties import file_content

# Characters. A shorter token could be guessed over the network.
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class StatusSettings:
    """`--status.address`, `--status.token` and `--metrics.max.partitions`."""

    host: str
    port: int  # 0: a free port
    token: str | None = field(repr=False)
    max_partitions: int  # the most partitions that have metrics of their own

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach the address."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a host name or IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def status_settings(address: str | None, token: str | None, max_partitions: int) -> StatusSettings | None:
    """Return the checked options; None without an address. An address that others can reach needs a token."""
    if address is None:
        if token is not None:
            raise SettingError("--status.token without --status.address: there is no server to protect", option=True)
        return None
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", address)
    if match is None or int(match[3]) > 65535:
        raise SettingError(f"--status.address {address}: this must be host:port, like 127.0.0.1:8080", option=True)
    settings = StatusSettings(match[1] or match[2], int(match[3]), _token(token), max_partitions)
    if settings.token is None and not settings.is_loopback:
        raise SettingError(
            f"--status.address {address}: other machines can reach this address, so --status.token is needed"
            " (or use 127.0.0.1, which only this machine can reach)",
            option=True,
        )
    return settings


def _token(given: str | None) -> str | None:
    """Return the token; @FILE reads it from a file, because everyone can see command lines in the list of processes."""
    if given is None:
        return None
    token = given
    if given.startswith("@"):
        try:
            token = file_content(given[1:]).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
            raise SettingError(f"--status.token {given}: the file cannot be read: {reason}", option=True) from error
    if not re.fullmatch(r"[!-~]+", token) or len(token) < _SHORTEST_TOKEN:
        where = f" {given}" if given.startswith("@") else ""
        raise SettingError(
            f"--status.token{where}: a token needs at least {_SHORTEST_TOKEN} characters, all ASCII and no blanks; make"
            " one with: openssl rand -hex 16",
            option=True,
        )
    return token
