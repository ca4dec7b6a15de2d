"""Network addresses as text: `host:port`, with brackets around an IPv6 address."""

from __future__ import annotations

import re

_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?")


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`, or `[host]:port` for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str, default_port: int = 0) -> tuple[str, int] | None:
    """Return the host and the port of `host:port` or `[host]:port`; None if the text is not of this form.

    A port that is missing becomes `default_port`; a port that is not between 1 and 65535 is refused.
    """
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        return None
    port = int(match[3] or default_port)
    return (match[1] or match[2], port) if 0 < port < 65536 else None
