"""Settings of a topic or a broker: DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest

from mirrormaker.wire.client.cluster import Cluster

TOPIC, BROKER = 2, 4  # the kinds of resources


async def describe_configs(
    cluster: Cluster, kind: int, names: Iterable[str], keys: Sequence[str], node: int | None = None
) -> list[Any]:
    """What the cluster says of these settings, one result for each name."""
    ask = DescribeConfigsRequest.DescribeConfigsResource
    resources = [ask(resource_type=kind, resource_name=name, configuration_keys=list(keys)) for name in names]
    answer = await cluster.ask(DescribeConfigsRequest(resources=resources), node)
    return list(answer.results)
