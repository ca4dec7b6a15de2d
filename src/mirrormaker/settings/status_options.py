"""Where the status page is, and who may see it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from mirrormaker.errors import SettingError

_SHORTEST = 16  # characters of a token: what is shorter can be guessed over the network


@dataclass(frozen=True)
class StatusSettings:
    """`--status.address` and what belongs to it."""

    host: str
    port: int  # 0: a free one
    token: str | None = field(repr=False)
    max_partitions: int  # with metrics of their own

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def status_settings(address: str | None, token: str | None, max_partitions: int) -> StatusSettings | None:
    """Refuse to show anything to a network without a token."""
    if address is None:
        if token is not None:
            raise SettingError("--status.token without --status.address: there is no page to protect")
        return None
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/\[\]]+)):(\d{1,5})", address)
    if match is None or int(match[3]) > 65535:
        raise SettingError(f"--status.address {address}: this must be host:port, like 127.0.0.1:8080")
    found = StatusSettings(match[1] or match[2], int(match[3]), _token(token), max_partitions)
    if found.token is None and not found.is_loopback:
        raise SettingError(
            f"--status.address {address}: others can reach this address, so --status.token is needed"
            " (or use 127.0.0.1, which only this machine reaches)"
        )
    return found


def _token(given: str | None) -> str | None:
    """Itself, or what is in a file: the list of processes shows command lines to everyone on the machine."""
    if given is None:
        return None
    token = given
    if given.startswith("@"):
        try:
            token = Path(given[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text"
            raise SettingError(f"--status.token {given}: the file cannot be read: {reason}") from error
    if not re.fullmatch(r"[!-~]+", token) or len(token) < _SHORTEST:
        where = f" {given}" if given.startswith("@") else ""
        raise SettingError(
            f"--status.token{where}: a token has at least {_SHORTEST} characters, of ASCII and without blanks; make one with:"
            " openssl rand -hex 16"
        )
    return token
