"""The permissions of this client on consumer groups: DescribeGroups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from mirrormaker.kafka_errors import GROUP_AUTHORIZATION_FAILED
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.messages import DescribeGroupsRequest

_READ = 3  # Kafka's code of the ACL operation
# Versions that tell permissions (Kafka 2.3), also those on groups that do not exist.
_FIRST_WITH_PERMISSIONS, _LAST_FOR_ABSENT_GROUPS = 3, 5


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
            if group.error_code == GROUP_AUTHORIZATION_FAILED or (is_told and _READ not in allowed):
                found.add(group.group_id)
    return found & coordinators.keys()
