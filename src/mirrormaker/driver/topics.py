"""Which topics are mirrored, and their counterparts on the target."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.wire.client.acls import TOPIC_DENIED, denied
from mirrormaker.wire.client.cluster import Cluster, Topic
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

# What a target topic inherits, so that a backlog is not deleted or refused on arrival.
INHERITED = (
    "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes",
    "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
_SET_ON_TOPIC, _NOT_TOLD = 1, -1
_EXISTS, _BAD_SETTING, _NOT_CONTROLLER = 36, 40, 41

Elsewhere = Callable[[list[str]], Awaitable[dict[str, dict[str, str]]]]


async def ensure(
    source: Cluster, target: Cluster, topics: list[Topic], grow: set[str], elsewhere: Elsewhere | None = None
) -> list[str]:
    """Create what is missing on the target and grow what has fallen behind; one line for each.

    `elsewhere` tells the settings of topics whose brokers are too old to be asked for them.
    """
    lines: list[str] = []
    missing = [t for t in topics if t.name not in target.topics]
    if missing:
        names = [t.name for t in missing]
        if await source.knows(DescribeConfigsRequest):
            settings = await _inherited(source, names, lines)
        elif elsewhere is not None:
            settings = {name: _of_these(found) for name, found in (await elsewhere(names)).items()}
        else:
            settings = {}
            lines.append(
                f"{source.endpoint} does not tell its topics' settings (before Kafka 0.11; its ZooKeeper would:"
                " zookeeper.connect): new topics get the target's own"
            )
        lines += await _create(target, missing, settings)
    grown = []
    for topic in topics:
        there = target.topics.get(topic.name)
        if there and topic.name in grow and len(there.partitions) < len(topic.partitions):
            if not await target.knows(CreatePartitionsRequest):
                continue  # before 1.0 it cannot be asked for more: records go by key from now on, and that is said
            await _grow(target, topic.name, len(topic.partitions))
            grown.append(topic)
            lines.append(
                f"grew {topic.name} on the target from {len(there.partitions)} to {len(topic.partitions)} partitions"
            )
    if missing or grown:
        await _wait_for(target, [*missing, *grown], {topic.name: len(topic.partitions) for topic in grown})
    return lines


async def _inherited(source: Cluster, names: list[str], lines: list[str]) -> dict[str, dict[str, str]]:
    """The settings that were made on the source topics themselves."""
    results = await describe_configs(source, TOPIC, names, INHERITED)
    lines += [
        f"{result.resource_name} is created with the target's own settings: "
        + denied(source.endpoint, "DescribeConfigs", "topic", result.resource_name)
        for result in results
        if result.error_code == TOPIC_DENIED
    ]
    return {
        result.resource_name: {
            s.name: s.value
            for s in result.configs or ()
            if s.name in INHERITED and s.value is not None and _is_set_on_topic(s)
        }
        for result in results
    }


def _of_these(settings: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key in INHERITED}


def _is_set_on_topic(setting: Any) -> bool:
    """Before Kafka 1.1 brokers only tell whether it is the default."""
    if setting.config_source == _NOT_TOLD:
        return not setting.is_default
    return bool(setting.config_source == _SET_ON_TOPIC)


async def _create(target: Cluster, topics: list[Topic], settings: dict[str, dict[str, str]]) -> list[str]:
    if not await target.knows(CreateTopicsRequest):  # before 0.10.1, who asks for a topic gets it
        await target.refresh([topic.name for topic in topics], create=True)
        return [f"asked for {topic.name} on the target, whose own settings decide what it becomes" for topic in topics]
    lines = []
    partitions = {t.name: len(t.partitions) for t in topics}
    for result in await _ask_for_topics(target, topics, settings):
        if result.error_code == _BAD_SETTING and settings.get(result.name):
            # Another version may not know all of them; without its words it cannot be told which.
            words = set(re.findall(r"[\w.]+", result.error_message or ""))
            unknown = [key for key in settings[result.name] if key in words] or list(settings[result.name])
            for key in unknown:
                del settings[result.name][key]
            lines.append(f"{result.name}: the target does not take {', '.join(unknown)} as on the source; left out")
            lines += await _create(target, [t for t in topics if t.name == result.name], settings)
        elif result.error_code == 0:
            lines.append(f"created {result.name} on the target with {partitions[result.name]} partitions")
        elif result.error_code == TOPIC_DENIED:
            raise ClusterError(denied(target.endpoint, "Create", "topic", result.name))
        elif result.error_code != _EXISTS:
            raise ClusterError(
                f"topic {result.name} cannot be created on {target.endpoint}:"
                f" {BrokerError(result.error_code, result.error_message or '')}"
            )
    return lines


async def _ask_for_topics(target: Cluster, topics: list[Topic], settings: dict[str, dict[str, str]]) -> Any:
    """What the controller says to each of them; controllers move."""
    kind = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            kind(
                name=topic.name,
                num_partitions=len(topic.partitions),
                replication_factor=_replication(topic, target),
                assignments=[],
                configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in settings.get(topic.name, {}).items()],
            )
            for topic in topics
        ],
        timeout_ms=30_000,
    )
    for _ in range(50):
        answer = await target.ask(request, target.controller)
        if not any(t.error_code == _NOT_CONTROLLER for t in answer.topics):
            break
        await asyncio.sleep(0.2)
        await target.refresh()
    return answer.topics


def _replication(topic: Topic, target: Cluster) -> int:
    return max(1, min(len(target.brokers), *(p.replicas for p in topic.partitions.values())))


async def _grow(target: Cluster, name: str, count: int) -> None:
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    answer = await target.ask(
        CreatePartitionsRequest(
            topics=[kind(name=name, count=count, assignments=None)], timeout_ms=30_000, validate_only=False
        ),
        target.controller,
    )
    for result in answer.results:
        if result.error_code == TOPIC_DENIED:
            raise ClusterError(denied(target.endpoint, "Alter", "topic", name))
        if result.error_code not in (0, 37):  # 37: has as many already
            raise ClusterError(f"topic {name} cannot be grown on {target.endpoint}: {BrokerError(result.error_code)}")


async def _wait_for(target: Cluster, topics: list[Topic], counts: dict[str, int]) -> None:
    """Until every partition has a leader; brokers take a moment, and may still show a topic that has grown as it was."""
    for _ in range(300):
        await target.refresh(t.name for t in topics)
        there = [target.topics.get(t.name) for t in topics]
        if all(
            t and len(t.partitions) >= counts.get(t.name, 1) and all(target.leader(t.name, p) for p in t.partitions)
            for t in there
        ):
            return
        await asyncio.sleep(0.1)
    missing = [t.name for t in topics if t.name not in target.topics]
    if missing:
        raise ClusterError(f"{target.endpoint} has no topic {missing[0]} 30 s after it was asked for; create it there")
    raise ClusterError(f"the topics created on {target.endpoint} have no leaders after 30 s")
