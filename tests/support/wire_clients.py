"""Our own wire client, connected to an embedded cluster."""

from __future__ import annotations

from mirrormaker.settings.addresses import addresses
from mirrormaker.wire.client.cluster import Cluster, Endpoint


def wire_client(bootstrap: str, client_id: str = "test", request_timeout: float = 30.0) -> Cluster:
    """Return a client of the cluster at these plain-text addresses."""
    return Cluster(Endpoint(addresses(bootstrap, "test", "bootstrap.servers"), client_id, request_timeout))
