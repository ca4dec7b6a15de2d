"""How brokers of every Kafka version register their addresses in ZooKeeper."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mirrormaker.errors import ClusterError
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port

# The name that some distributions of Kafka 0.9 and 0.10 used.
_PROTOCOLS = {"PLAINTEXTSASL": "SASL_PLAINTEXT"}


@dataclass(frozen=True)
class Listener:
    """One listener of a broker."""

    name: str
    protocol: str  # the security protocol
    host: str
    port: int

    def __str__(self) -> str:
        name = self.protocol if self.name == self.protocol else f"{self.name} ({self.protocol})"
        return f"{name} at {join_host_port(self.host, self.port)}"


@dataclass(frozen=True)
class Registration:
    """The registration of one broker."""

    id: int
    version: int  # of the format
    listeners: tuple[Listener, ...]

    def listener(self, protocol: str = "PLAINTEXT") -> Listener | None:
        """Return the first listener with this security protocol; None if there is none."""
        return next((listener for listener in self.listeners if listener.protocol == protocol), None)


def registration(broker: int, data: bytes, where: str) -> Registration:
    """Parse a broker's znode of any Kafka version; `where` names the znode in errors."""
    text = data.decode("utf-8", "replace").strip()
    # Kafka 0.7 wrote creator:host:port.
    if re.fullmatch(r"[^:{]*:[^:]+:\d+", text):
        return Registration(broker, 0, (_endpoint(f"PLAINTEXT://{text.partition(':')[2]}", {}, where),))
    try:
        found = json.loads(text)
        protocols = found.get("listener_security_protocol_map") or {}
        endpoints = found.get("endpoints") or []
        if not endpoints:
            # Kafka 0.8 wrote host and port, and knew one protocol only.
            endpoints = [f"PLAINTEXT://{join_host_port(found['host'], int(found['port']))}"]
        listeners = tuple(_endpoint(endpoint, protocols, where) for endpoint in endpoints)
        return Registration(broker, int(found.get("version", 1)), listeners)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(where, text) from error


def broker_addresses(
    brokers: Mapping[int, Registration], protocol: str = "PLAINTEXT", where: str = "ZooKeeper"
) -> dict[int, tuple[str, int]]:
    """Return each broker's address for a security protocol; `where` names the ZooKeeper in errors.

    Raise ClusterError if there is no broker, or if none has a listener for the protocol.
    """
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


def requests_version(brokers: Mapping[int, Registration]) -> tuple[int, ...] | None:
    """Return the Kafka version whose requests all brokers know, if one of them may be too old to tell its version.

    Return None if all of them can tell. A newer broker that registers like 0.9 (`inter.broker.protocol.version`) knows
    the requests of 0.9, too.
    """
    oldest = min((broker.version for broker in brokers.values()), default=3)
    if oldest == 0:
        raise ClusterError("the brokers run Kafka 0.7: only 0.8.2 and later versions can be asked")
    return {1: (0, 8, 2), 2: (0, 9)}.get(oldest)


def _endpoint(text: str, protocols: Mapping[str, str], where: str) -> Listener:
    """Read a listener. Its name is the protocol before Kafka 0.10.2; later versions map the name to the protocol."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+)://(.+)", text)
    place = split_host_port(match[2]) if match else None
    if match is None or place is None:
        raise _malformed(where, text)
    protocol = protocols.get(match[1], match[1]).upper()
    return Listener(match[1], _PROTOCOLS.get(protocol, protocol), *place)


def _malformed(where: str, text: str) -> ClusterError:
    return ClusterError(f"{where} holds {text[:80]!r}, which is no broker's registration; name the brokers yourself")
