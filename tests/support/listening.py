"""The addresses on which processes listen, from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

_LISTENING = "0A"  # a state in /proc/net/tcp


def listening_addresses(pids: Iterable[int]) -> set[str]:
    """Return the addresses on which these processes listen, without their ports."""
    sockets = {socket for pid in pids for socket in _sockets(pid)}
    return {address for inode, address in _listeners() if inode in sockets}


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for file in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.readlink(f"/proc/{pid}/fd/{file}")
                found.add(name.removeprefix("socket:[").rstrip("]"))
    return found


def _listeners() -> list[tuple[str, str]]:
    """Return inode and address of every listening socket."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [(row[9], _address(row[1].partition(":")[0])) for row in rows if row[3] == _LISTENING]


def _address(words: str) -> str:
    """Return an address that the kernel shows as little-endian words."""
    raw = b"".join(bytes.fromhex(words[i : i + 8])[::-1] for i in range(0, len(words), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
