"""The counterparts of the mirrored topics on the target: creating them with their source's settings, and adding partitions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.events import event
from mirrormaker.events.process_events import (
    SettingsDropped,
    SourceHidesSettings,
    TopicCreated,
    TopicGrown,
    TopicRequested,
    TopicSettingsUnknown,
)
from mirrormaker.kafka_errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    NOT_CONTROLLER,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
)
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster, Topic
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

# Settings that a target topic inherits, so that a backlog is not deleted or refused on arrival.
INHERITED = (
    "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes",
    "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
_SET_ON_TOPIC, _SOURCE_UNKNOWN = 1, -1  # values of a setting's config_source
_TIMEOUT_MS = 30_000

TopicSettings = dict[str, dict[str, str]]
DescribeElsewhere = Callable[[list[str]], Awaitable[TopicSettings]]


class TargetTopics:
    """Creates and grows topics on the target."""

    def __init__(
        self, source: Cluster, target: Cluster, report: event.Report, describe: DescribeElsewhere | None = None
    ) -> None:
        """`describe` returns the settings of topics whose brokers are too old to be asked (from ZooKeeper)."""
        self._source, self._target, self._describe = source, target, describe
        self._report = report
        self._reported: set[event.Event] = set()

    async def ensure(self, topics: list[Topic], grow: set[str]) -> None:
        """Create topics that are missing on the target; add partitions to those of `grow` that have too few."""
        missing = [topic for topic in topics if topic.name not in self._target.topics]
        if missing:
            await self._create(missing, await self._settings_of([topic.name for topic in missing]))
        grown = [topic for topic in topics if topic.name in grow and await self._grow_if_smaller(topic)]
        if missing or grown:
            await self._wait_for_leaders(missing + grown, {topic.name: len(topic.partitions) for topic in grown})

    async def _settings_of(self, names: list[str]) -> TopicSettings:
        """Return the settings to inherit, as far as the source or its ZooKeeper tells them."""
        if await self._source.knows(DescribeConfigsRequest):
            return await self._describe_configs(names)
        if self._describe is not None:
            found = await self._describe(names)
            return {name: {k: v for k, v in of.items() if k in INHERITED} for name, of in found.items()}
        self._report_once(SourceHidesSettings(str(self._source.endpoint)))
        return {}

    async def _describe_configs(self, names: list[str]) -> TopicSettings:
        results = await describe_configs(self._source, TOPIC, names, INHERITED)
        for result in results:
            if result.error_code == TOPIC_AUTHORIZATION_FAILED:
                name = result.resource_name
                reason = denied(self._source.endpoint, "DescribeConfigs", "topic", name)
                self._report_once(TopicSettingsUnknown(name, reason))
        return {
            result.resource_name: {
                s.name: s.value
                for s in result.configs or ()
                if s.name in INHERITED and s.value is not None and _is_set_on_topic(s)
            }
            for result in results
        }

    def _report_once(self, event: event.Event) -> None:
        """Report something that every attempt finds again."""
        if event not in self._reported:
            self._reported.add(event)
            self._report(event)

    async def _create(self, topics: list[Topic], settings: TopicSettings) -> None:
        if not await self._target.knows(CreateTopicsRequest):
            # Before 0.10.1 a broker creates a topic when a client asks for it.
            await self._target.refresh([topic.name for topic in topics], create=True)
            for topic in topics:
                self._report(TopicRequested(topic.name))
            return
        by_name = {topic.name: topic for topic in topics}
        for result in await self._ask_controller(topics, settings):
            topic, code = by_name[result.name], result.error_code
            if code == INVALID_CONFIG and settings.get(topic.name):
                self._drop_refused(topic.name, settings, result.error_message or "")
                await self._create([topic], settings)
            elif code == 0:
                self._report(TopicCreated(topic.name, len(topic.partitions)))
            elif code == TOPIC_AUTHORIZATION_FAILED:
                raise ClusterError(denied(self._target.endpoint, "Create", "topic", topic.name))
            elif code != TOPIC_ALREADY_EXISTS:
                error = BrokerError(code, result.error_message or "")
                raise ClusterError(f"topic {topic.name} cannot be created on {self._target.endpoint}: {error}")

    def _drop_refused(self, name: str, settings: TopicSettings, message: str) -> None:
        """Leave out the settings that the broker's message names; all of them if it names none.

        Brokers of another version may not know a setting, and say which one only in their message.
        """
        words = set(re.findall(r"[\w.]+", message))
        refused = [key for key in settings[name] if key in words] or list(settings[name])
        for key in refused:
            del settings[name][key]
        self._report(SettingsDropped(name, ", ".join(refused)))

    async def _ask_controller(self, topics: list[Topic], settings: TopicSettings) -> Any:
        """Ask the controller to create the topics; return its answer for each. Controllers move."""
        kind = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[
                kind(
                    name=topic.name,
                    num_partitions=len(topic.partitions),
                    replication_factor=self._replication_factor(topic),
                    assignments=[],
                    configs=[
                        kind.CreatableTopicConfig(name=k, value=v) for k, v in settings.get(topic.name, {}).items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        for _ in range(50):
            answer = await self._target.ask(request, self._target.controller)
            if not any(t.error_code == NOT_CONTROLLER for t in answer.topics):
                break
            await asyncio.sleep(0.2)
            await self._target.refresh()
        return answer.topics

    def _replication_factor(self, topic: Topic) -> int:
        """Return the source's replication factor, or the number of target brokers if that is smaller."""
        return max(1, min(len(self._target.brokers), *(p.replicas for p in topic.partitions.values())))

    async def _grow_if_smaller(self, topic: Topic) -> bool:
        counterpart, wanted = self._target.topics.get(topic.name), len(topic.partitions)
        if counterpart is None or len(counterpart.partitions) >= wanted:
            return False
        if not await self._target.knows(CreatePartitionsRequest):
            return False  # before 1.0; records go by key from now on, and that is reported
        await self._grow(topic.name, wanted)
        self._report(TopicGrown(topic.name, len(counterpart.partitions), wanted))
        return True

    async def _grow(self, name: str, count: int) -> None:
        kind = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[kind(name=name, count=count, assignments=None)], timeout_ms=_TIMEOUT_MS, validate_only=False
        )
        answer = await self._target.ask(request, self._target.controller)
        for result in answer.results:
            if result.error_code == TOPIC_AUTHORIZATION_FAILED:
                raise ClusterError(denied(self._target.endpoint, "Alter", "topic", name))
            # INVALID_PARTITIONS: it has as many already.
            if result.error_code not in (0, INVALID_PARTITIONS):
                error = BrokerError(result.error_code, result.error_message or "")
                raise ClusterError(f"topic {name} cannot get more partitions on {self._target.endpoint}: {error}")

    async def _wait_for_leaders(self, topics: list[Topic], counts: dict[str, int]) -> None:
        """Wait until every partition has a leader; brokers may still show a topic that has grown as it was."""
        target = self._target
        for _ in range(300):
            await target.refresh(topic.name for topic in topics)
            found = [target.topics.get(topic.name) for topic in topics]
            if all(
                t and len(t.partitions) >= counts.get(t.name, 1) and all(target.leader(t.name, p) for p in t.partitions)
                for t in found
            ):
                return
            await asyncio.sleep(0.1)
        missing = [topic.name for topic in topics if topic.name not in target.topics]
        if missing:
            raise ClusterError(
                f"{target.endpoint} has no topic {missing[0]} 30 s after it was asked for; create it there"
            )
        raise ClusterError(f"the topics created on {target.endpoint} have no leaders after 30 s")


def _is_set_on_topic(setting: Any) -> bool:
    """Return True if the setting was made on the topic itself. Brokers before 1.1 only tell whether it is the default."""
    if setting.config_source == _SOURCE_UNKNOWN:
        return not setting.is_default
    return bool(setting.config_source == _SET_ON_TOPIC)
