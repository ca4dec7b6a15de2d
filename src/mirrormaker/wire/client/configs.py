"""The settings of topics and brokers: DescribeConfigs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from mirrormaker.errors import OUTAGE, UnsupportedRequest
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.messages import DescribeConfigsRequest

TOPIC, BROKER = 2, 4  # Kafka's types of resources


async def describe_configs(
    cluster: Cluster, kind: int, names: Iterable[str], keys: Sequence[str], node: int | None = None
) -> list[Any]:
    """Return the settings `keys` of each named topic or broker, as one result for each name."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    resources = [resource(resource_type=kind, resource_name=name, configuration_keys=list(keys)) for name in names]
    answer = await cluster.ask(DescribeConfigsRequest(resources=resources), node)
    return list(answer.results)


async def broker_number(cluster: Cluster, key: str, default: int) -> int:
    """Return a setting of the brokers that is a number, as the first of them tells it; the default if it does not."""
    broker = min(cluster.brokers, default=0)
    with contextlib.suppress(*OUTAGE, UnsupportedRequest):
        for result in await describe_configs(cluster, BROKER, [str(broker)], [key], broker):
            for setting in result.configs or ():
                if setting.name == key and (setting.value or "").isdecimal():
                    return int(setting.value)
    return default
