"""What a cluster lets this client do, and the command that would let it do more."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from kafka.protocol.metadata import MetadataRequest

from mirrormaker.wire.client.cluster import Cluster, Endpoint

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31  # error codes
_CODES = {"Read": 3, "Write": 4}


def denied(endpoint: Endpoint, operations: str | Collection[str], kind: str, name: str = "") -> str:
    """One line: who may not do what, to what, where; and the command that grants it."""
    names = [operations] if isinstance(operations, str) else list(operations)
    who = endpoint.security.principal
    principal = shlex.quote(who) if who else "User:…"
    resource = f"--{kind}" + (f" {shlex.quote(name)}" if name else "")
    granted = " ".join(f"--operation {operation}" for operation in names)
    return (
        f"{endpoint} does not give {who or 'this client'} the right to {' and '.join(names)} on {f'{kind} {name}'.strip()}; this"
        f" grants it: kafka-acls --bootstrap-server {endpoint} --add --allow-principal {principal} {granted} {resource}"
    )


async def missing(cluster: Cluster, topics: Iterable[str], needed: Collection[str]) -> dict[str, list[str]]:
    """Of each topic, the rights that are needed and not there. What brokers do not tell is taken for granted."""
    row = MetadataRequest.MetadataRequestTopic
    names = list(topics)
    if not names or not await cluster.tells_rights():
        return {}
    request = MetadataRequest(
        topics=[row(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    found = {}
    for topic in (await cluster.ask(request)).topics:
        if topic.error_code == TOPIC_DENIED:
            found[topic.name] = list(needed)
        elif topic.error_code == 0 and topic.authorized_operations is not None:
            found[topic.name] = [right for right in needed if _CODES[right] not in topic.authorized_operations]
    return {name: rights for name, rights in found.items() if rights}
