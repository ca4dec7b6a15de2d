"""Who may do what on an embedded cluster."""

from __future__ import annotations

from mirrormaker.embedded.kafka_cluster import Cluster
from mirrormaker.errors import EmbeddedError

# Settings of a cluster (KRaft) on which only what is granted is allowed. Whoever comes through the plain listener may do all.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
}


def grant(cluster: Cluster, principal: str, operation: str, kind: str, name: str) -> None:
    """As `kafka-acls --add` would: `grant(cluster, "User:CN=mirror", "Read", "topic", "orders")`."""
    _alter(cluster, "create_acls", principal, operation, kind, name)


def revoke(cluster: Cluster, principal: str, operation: str, kind: str, name: str) -> None:
    """As `kafka-acls --remove` would."""
    _alter(cluster, "delete_acls", principal, operation, kind, name)


def _alter(cluster: Cluster, how: str, principal: str, operation: str, kind: str, name: str) -> None:
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

    which = ResourcePattern(ResourceType[kind.upper()], name)
    code = ACLOperation[operation.upper() if operation != "DescribeConfigs" else "DESCRIBE_CONFIGS"]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        done = getattr(admin, how)([ACL(principal, "*", code, ACLPermissionType.ALLOW, which)])
    finally:
        admin.close()
    if how == "create_acls" and done["failed"]:
        raise EmbeddedError(f"{operation} on {kind} {name} could not be granted: {done['failed']}")
