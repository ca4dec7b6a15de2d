"""The permissions of this client on a cluster, and the command that grants one that is missing."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from mirrormaker.kafka_errors import GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.messages import DescribeGroupsRequest, MetadataRequest

_OPERATIONS = {"Read": 3, "Write": 4}  # Kafka's codes of ACL operations
# Versions of DescribeGroups that tell permissions (Kafka 2.3), also those on groups that do not exist (up to Kafka 3.9).
_FIRST_WITH_PERMISSIONS, _LAST_FOR_ABSENT_GROUPS = 3, 5


def denied(endpoint: Endpoint, operations: str | Collection[str], kind: str, name: str = "") -> str:
    """Return one line about an operation that is not allowed, with the command that grants it."""
    names = [operations] if isinstance(operations, str) else list(operations)
    principal = endpoint.security.principal
    quoted = shlex.quote(principal) if principal else "User:…"
    resource = f"--{kind}" + (f" {shlex.quote(name)}" if name else "")
    granted = " ".join(f"--operation {operation}" for operation in names)
    return (
        f"{endpoint} does not give {principal or 'this client'} the right to {' and '.join(names)}"
        f" on {f'{kind} {name}'.strip()}; this grants it: kafka-acls --bootstrap-server {endpoint}"
        f" --add --allow-principal {quoted} {granted} {resource}"
    )


async def missing(cluster: Cluster, topics: Iterable[str], needed: Collection[str]) -> dict[str, list[str]]:
    """Return the needed operations that each topic does not allow; a topic that allows all of them is left out.

    Brokers before 2.3 do not tell; there every operation counts as allowed.
    """
    row = MetadataRequest.MetadataRequestTopic
    names = set(topics)
    if not names or not await cluster.lists_permissions():
        return {}
    request = MetadataRequest(
        topics=[row(name=name) for name in sorted(names)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    found: dict[str, list[str]] = {}
    for topic in (await cluster.ask(request)).topics:
        if topic.name not in names:
            continue
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            found[topic.name] = list(needed)
        elif topic.error_code == 0 and topic.authorized_operations is not None:
            found[topic.name] = [name for name in needed if _OPERATIONS[name] not in topic.authorized_operations]
    return {name: operations for name, operations in found.items() if operations}


async def may_not_read_groups(cluster: Cluster, coordinators: Mapping[str, int | None]) -> set[str]:
    """Return the groups whose offsets this client may not commit; None as a coordinator stands for any broker.

    Only a group's coordinator knows the rest, but every broker knows that a client may not even see the group. Brokers before
    2.3 do not tell; there every operation counts as allowed.
    """
    by_node: dict[int | None, list[str]] = defaultdict(list)
    for name, node in coordinators.items():
        by_node[node].append(name)
    found: set[str] = set()
    for node, names in by_node.items():
        request = DescribeGroupsRequest(groups=sorted(names), include_authorized_operations=True)
        connection = await cluster.connection(min(cluster.brokers) if node is None else node)
        version = min(_LAST_FOR_ABSENT_GROUPS, connection.best_version(DescribeGroupsRequest))
        if version < _FIRST_WITH_PERMISSIONS:
            continue
        for group in (await connection.ask(request, cluster.endpoint.request_timeout, version)).groups:
            allowed = group.authorized_operations
            is_told = group.error_code == 0 and allowed is not None
            if group.error_code == GROUP_AUTHORIZATION_FAILED or (is_told and _OPERATIONS["Read"] not in allowed):
                found.add(group.group_id)
    return found & coordinators.keys()
