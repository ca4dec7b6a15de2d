"""Ports for servers that stop and come back."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

_given: set[int] = set()
_lock = threading.Lock()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that no outgoing connection will be given.

    From the range for outgoing connections a client that knocks at a stopped broker can be given the very port
    it knocks at, is then connected to itself, and keeps the broker from coming back.
    """
    with _lock:
        while True:
            # Not the shared generator: tests seed it, and two runs would be given the same ports.
            port = random.SystemRandom().randrange(10_000, _first_outgoing())
            if port not in _given and _can_bind(port):
                _given.add(port)
                return port


def _first_outgoing() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 49152


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
