"""The permissions of this client on a cluster, and the command that grants one that is missing."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.messages import MetadataRequest

_OPERATIONS = {"Read": 3, "Write": 4}  # Kafka's codes of ACL operations
# An answer names the partitions of its topics too.
_TOPICS_AT_A_TIME = 1000


def denied(endpoint: Endpoint, operations: str | Collection[str], kind: str, name: str = "") -> str:
    """Return one line about an operation that is not allowed, with the command that grants it."""
    names = [operations] if isinstance(operations, str) else list(operations)
    return (
        f"{endpoint} does not give {endpoint.security.principal or 'this client'} the right to {' and '.join(names)}"
        f" on {f'{kind} {name}'.strip()}; this grants it: {granting(endpoint, names, kind, name)}"
    )


def granting(endpoint: Endpoint, operations: Collection[str], kind: str, name: str = "") -> str:
    """Return the command that grants operations to this client."""
    principal = endpoint.security.principal
    quoted = shlex.quote(principal) if principal else "User:…"
    resource = f"--{kind}" + (f" {shlex.quote(name)}" if name else "")
    granted = " ".join(f"--operation {operation}" for operation in operations)
    return f"kafka-acls --bootstrap-server {endpoint} --add --allow-principal {quoted} {granted} {resource}"


async def missing(cluster: Cluster, topics: Iterable[str], needed: Collection[str]) -> dict[str, list[str]]:
    """Return the needed operations that each topic does not allow; a topic that allows all of them is left out.

    Brokers before 2.3 do not tell; there every operation counts as allowed.
    """
    names = sorted(set(topics))
    if not names or not await cluster.lists_permissions():
        return {}
    found: dict[str, list[str]] = {}
    for first in range(0, len(names), _TOPICS_AT_A_TIME):
        found |= await _missing(cluster, names[first : first + _TOPICS_AT_A_TIME], needed)
    return found


async def _missing(cluster: Cluster, names: list[str], needed: Collection[str]) -> dict[str, list[str]]:
    row = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[row(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    found, asked = dict[str, list[str]](), set(names)
    for topic in (await cluster.ask(request)).topics:
        if topic.name not in asked:
            continue
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            found[topic.name] = list(needed)
        elif topic.error_code == 0 and topic.authorized_operations is not None:
            found[topic.name] = [name for name in needed if _OPERATIONS[name] not in topic.authorized_operations]
    return {name: operations for name, operations in found.items() if operations}
