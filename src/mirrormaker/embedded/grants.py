"""ACLs of an embedded cluster."""

from __future__ import annotations

from mirrormaker.embedded.kafka_cluster import Cluster
from mirrormaker.errors import EmbeddedError

# Settings of a KRaft cluster that allows only what an ACL allows. Clients of the plain listener may do everything.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
}


def grant(cluster: Cluster, principal: str, operation: str, kind: str, name: str) -> None:
    """Add an ACL as `kafka-acls --add` does: `grant(cluster, "User:CN=mirror", "Read", "topic", "orders")`."""
    _alter(cluster, "create_acls", principal, operation, kind, name)


def revoke(cluster: Cluster, principal: str, operation: str, kind: str, name: str) -> None:
    """Remove an ACL as `kafka-acls --remove` does."""
    _alter(cluster, "delete_acls", principal, operation, kind, name)


def _alter(cluster: Cluster, method: str, principal: str, operation: str, kind: str, name: str) -> None:
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType

    resource = ResourcePattern(ResourceType[kind.upper()], name)
    code = ACLOperation[operation.upper() if operation != "DescribeConfigs" else "DESCRIBE_CONFIGS"]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        done = getattr(admin, method)([ACL(principal, "*", code, ACLPermissionType.ALLOW, resource)])
    finally:
        admin.close()
    if method == "create_acls" and done["failed"]:
        raise EmbeddedError(f"{operation} on {kind} {name} could not be granted to {principal}: {done['failed']}")
