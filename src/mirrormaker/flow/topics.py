"""Which topics are mirrored, and their counterparts on the target."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

from mirrormaker.errors import ClusterError, SettingError
from mirrormaker.wire.cluster import Cluster, Topic, error_for
from mirrormaker.wire.configs import TOPIC, describe_configs

# What a target topic inherits, so that a backlog is not deleted or refused on arrival.
INHERITED = (
    "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes",
    "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
_SET_ON_TOPIC = 1
_EXISTS, _NOT_CONTROLLER = 36, 41
_INTERNAL = re.compile(r"__consumer_offsets|__transaction_state|__share_group_state|__cluster_metadata")

Judge = Callable[[str], bool]


def normalised(raw: str) -> str:
    """What every MirrorMaker did to a list of topics before compiling it."""
    text = raw.strip("".join(map(chr, range(33)))).replace(",", "|").replace(" ", "")
    return re.sub(r"[\"']+$", "", re.sub(r"^[\"']+", "", text))


def is_plain(pattern: str) -> bool:
    """A list of names: Java's and Python's ideas of it are the same, and no JVM has to be asked."""
    return re.fullmatch(r"[\w.|-]+|\.\*", pattern, re.ASCII) is not None


@dataclass(frozen=True)
class Filter:
    """The user's choice of topics."""

    pattern: str
    exclude: bool

    @classmethod
    def of(cls, include: str | None, exclude: str | None) -> Filter:
        raw = include if include is not None else exclude or ""
        pattern = normalised(raw)
        if not pattern:
            option = "--whitelist" if include is not None else "--blacklist"
            raise SettingError(f"{option} {raw!r}: this matches no topic; name at least one")
        return cls(pattern, include is None)

    def chosen(self, topics: Iterable[Topic], judge: Judge) -> list[Topic]:
        """Internal topics never: their records mean something to one cluster only."""
        return [
            t
            for t in topics
            if not t.internal and not _INTERNAL.fullmatch(t.name) and judge(t.name) is not self.exclude
        ]


def python_judge(pattern: str) -> Judge:
    compiled = re.compile(pattern, re.ASCII)
    return lambda name: compiled.fullmatch(name) is not None


async def ensure(source: Cluster, target: Cluster, topics: list[Topic], grow: set[str]) -> list[str]:
    """Create what is missing on the target and grow what has fallen behind; one line for each."""
    lines = []
    missing = [t for t in topics if t.name not in target.topics]
    if missing:
        settings = await _inherited(source, [t.name for t in missing])
        lines += await _create(target, missing, settings)
    grown = []
    for topic in topics:
        there = target.topics.get(topic.name)
        if there and topic.name in grow and len(there.partitions) < len(topic.partitions):
            await _grow(target, topic.name, len(topic.partitions))
            grown.append(topic)
            lines.append(
                f"grew {topic.name} on the target from {len(there.partitions)} to {len(topic.partitions)} partitions"
            )
    if missing or grown:
        await _wait_for(target, [*missing, *grown], {topic.name: len(topic.partitions) for topic in grown})
    return lines


async def _inherited(source: Cluster, names: list[str]) -> dict[str, dict[str, str]]:
    """The settings that were made on the source topics themselves; brokers before 0.11 do not tell."""
    if not await source.knows(DescribeConfigsRequest):
        return {}
    results = await describe_configs(source, TOPIC, names, INHERITED)
    return {
        result.resource_name: {
            s.name: s.value
            for s in result.configs or ()
            if s.name in INHERITED
            and s.value is not None
            and (s.config_source == _SET_ON_TOPIC or s.is_default is False)
        }
        for result in results
    }


async def _create(target: Cluster, topics: list[Topic], settings: dict[str, dict[str, str]]) -> list[str]:
    lines = []
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
        if any(t.error_code == _NOT_CONTROLLER for t in answer.topics):
            await asyncio.sleep(0.2)
            await target.refresh()
            continue
        break
    partitions = {t.name: len(t.partitions) for t in topics}
    for result in answer.topics:
        if result.error_code == 0:
            lines.append(f"created {result.name} on the target with {partitions[result.name]} partitions")
        elif result.error_code != _EXISTS:
            error = error_for(result.error_code)
            raise ClusterError(
                f"topic {result.name} cannot be created on {target.endpoint}:"
                f" {result.error_message or type(error).__name__} ({result.error_code})"
            )
    return lines


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
        if result.error_code not in (0, 37):  # 37: has as many already
            error = error_for(result.error_code)
            raise ClusterError(
                f"topic {name} cannot be grown on {target.endpoint}: {type(error).__name__} ({result.error_code})"
            )


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
    raise ClusterError(f"the topics created on {target.endpoint} have no leaders after 30 s")
