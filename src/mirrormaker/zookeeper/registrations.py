"""How brokers of every version of Kafka tell ZooKeeper where they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mirrormaker.errors import ClusterError
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port

_PROTOCOLS = {"PLAINTEXTSASL": "SASL_PLAINTEXT"}  # as some distributions of 0.9 and 0.10 called it


@dataclass(frozen=True)
class Listener:
    """One of the addresses of a broker."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        name = self.protocol if self.name == self.protocol else f"{self.name} ({self.protocol})"
        return f"{name} at {join_host_port(self.host, self.port)}"


@dataclass(frozen=True)
class Registration:
    """A broker as it has registered itself."""

    id: int
    version: int  # of the registration's layout
    listeners: tuple[Listener, ...]

    def listener(self, protocol: str = "PLAINTEXT") -> Listener | None:
        """Where it speaks this protocol, if it does."""
        return next((listener for listener in self.listeners if listener.protocol == protocol), None)


def registration(broker: int, data: bytes, where: str) -> Registration:
    """A broker's znode, of whichever version of Kafka; `where` names it in errors."""
    text = data.decode("utf-8", "replace").strip()
    if re.fullmatch(r"[^:{]*:[^:]+:\d+", text):  # 0.7 wrote creator:host:port
        return Registration(broker, 0, (_endpoint(f"PLAINTEXT://{text.partition(':')[2]}", {}, where),))
    try:
        found = json.loads(text)
        protocols = found.get("listener_security_protocol_map") or {}
        endpoints = found.get("endpoints") or []
        if not endpoints:  # 0.8 had a host and a port, and one protocol
            endpoints = [f"PLAINTEXT://{join_host_port(found['host'], int(found['port']))}"]
        listeners = tuple(_endpoint(endpoint, protocols, where) for endpoint in endpoints)
        return Registration(broker, int(found.get("version", 1)), listeners)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_registration(where, text) from error


def broker_addresses(
    brokers: Mapping[int, Registration], protocol: str = "PLAINTEXT", where: str = "ZooKeeper"
) -> dict[int, tuple[str, int]]:
    """Where each broker speaks `protocol`; an error that names what there is, if none does."""
    if not brokers:
        raise ClusterError(
            f"{where} knows no broker: either none runs, or its brokers are below a chroot; write host:2181/chroot"
        )
    found = {number: broker.listener(protocol) for number, broker in brokers.items()}
    fitting = {number: (listener.host, listener.port) for number, listener in found.items() if listener}
    if not fitting:
        others = sorted({str(listener) for broker in brokers.values() for listener in broker.listeners})
        raise ClusterError(
            f"{where}: no broker has a listener for security.protocol={protocol}; there are {', '.join(others)}"
        )
    return fitting


def requests_of(brokers: Mapping[int, Registration]) -> tuple[int, ...] | None:
    """The version of Kafka whose requests all of these brokers know, where they might be too old to be asked for it.

    Newer ones that still register like 0.9 (`inter.broker.protocol.version`) know its requests too.
    """
    oldest = min((broker.version for broker in brokers.values()), default=3)
    if oldest == 0:
        raise ClusterError("these are brokers of Kafka 0.7: only those from 0.8.2 on can be asked")
    return {1: (0, 8, 2), 2: (0, 9)}.get(oldest)


def _endpoint(text: str, protocols: Mapping[str, str], where: str) -> Listener:
    """Until 0.10.2 a listener was named after its protocol; since then a map says which one it speaks."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+)://(.+)", text)
    place = split_host_port(match[2]) if match else None
    if match is None or place is None:
        raise _no_registration(where, text)
    protocol = protocols.get(match[1], match[1]).upper()
    return Listener(match[1], _PROTOCOLS.get(protocol, protocol), *place)


def _no_registration(where: str, text: str) -> ClusterError:
    return ClusterError(f"{where} holds {text[:80]!r}, which is no broker's registration; name the brokers yourself")
