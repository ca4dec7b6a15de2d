"""Lists of `host:port` as people write them in files and on command lines."""

from __future__ import annotations

import re

from mirrormaker.errors import SettingError
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port

_PROTOCOL = re.compile(r"[A-Za-z_]+://")
_BROKER_ID = re.compile(r"\d+:(?=.*:)")  # Kafka 0.7 wrote 0:host:9092
_WITH_PORT = re.compile(r"(?:\w+://)?(?:\[.*\]|[^\s:/\[\]]+):([0-9]+)")
_ZOOKEEPER_PORT, _LAST_PORT = 2181, 65535


def addresses(text: str, where: str, key: str) -> tuple[tuple[str, int], ...]:
    """Return the addresses of `host:port,host:port`; errors name the place by `where` and `key`."""
    prefix = _BROKER_ID if key.endswith("broker.list") else _PROTOCOL
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = prefix.match(part)
        address = split_host_port(part[match.end() :] if match else part)
        if address is None:
            raise _no_address(part, text, where, key)
        found.append(address)
    if not found:
        raise SettingError(f"{where}: {key} names no broker; write {key}=host:9092")
    return tuple(dict.fromkeys(found))


def connect_string(text: str, where: str, key: str) -> str:
    """Return ZooKeeper's `host:port,host:port/path` in its normal form; the default port is 2181."""
    servers, slash, path = text.partition("/")
    if "," in path:
        all_servers = ",".join(part.partition("/")[0].strip() for part in text.split(","))
        end = path.partition(",")[0]
        raise SettingError(
            f"{where}: {key}={text}: all servers have the same path, which is written once, at the end:"
            f" {all_servers}/{end}"
        )
    found = []
    for part in filter(None, (p.strip() for p in servers.split(","))):
        server = split_host_port(part, _ZOOKEEPER_PORT)
        if server is None or re.fullmatch(r".*-\d{4,5}", part):
            raise _no_address(part, text, where, key)
        found.append(join_host_port(*server))
    if not found:
        raise SettingError(f"{where}: {key} names no server; write {key}=host:2181")
    path = path.rstrip("/").strip()
    if re.search(r"//|\s", f"/{path}"):
        raise SettingError(
            f"{where}: {key}={text}: '/{path}' is not a path in ZooKeeper; write it like host:2181/kafka"
        )
    return ",".join(dict.fromkeys(found)) + (f"{slash}{path}" if path else "")


def _no_address(part: str, text: str, where: str, key: str) -> SettingError:
    dash = re.fullmatch(r"([A-Za-z0-9_.-]*[A-Za-z0-9_])-(\d{4,5})", part)
    if dash:
        return SettingError(
            f"{where}: {key}={text}: '{part}' has a dash where the colon belongs; write {dash[1]}:{dash[2]}"
        )
    port = _WITH_PORT.fullmatch(part)
    if port and (len(port[1]) > 5 or not 0 < int(port[1]) <= _LAST_PORT):
        return SettingError(f"{where}: {key}={text}: '{part}': a port must be from 1 to {_LAST_PORT}")
    return SettingError(f"{where}: {key}={text}: '{part}' is not host:port")
