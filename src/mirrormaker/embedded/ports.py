"""Free ports for servers that may be stopped and started again."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

_given: set[int] = set()
_lock = threading.Lock()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens, outside of the range for outgoing connections.

    A client that connects to a stopped broker may get the broker's own port as its local port if that port is in the
    range for outgoing connections. It is then connected to itself, and the broker cannot bind its port again.
    """
    with _lock:
        while True:
            # Tests seed the shared generator, and two test runs would then choose the same ports.
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
