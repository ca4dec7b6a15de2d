"""The counterparts of the mirrored topics on the target: creating them with their source's settings, and adding partitions."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mirrormaker.errors import OUTAGE, BrokerError, describe
from mirrormaker.events import event
from mirrormaker.events.topic_events import (
    SettingsDropped,
    SourceHidesSettings,
    TopicCreated,
    TopicGrown,
    TopicRequested,
    TopicSettingsUnknown,
    TopicsFailed,
)
from mirrormaker.kafka_errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    NOT_CONTROLLER,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
)
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.cluster_description import Topic
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DescribeConfigsRequest

# Settings that a target topic inherits, so that a backlog is not deleted or refused on arrival.
INHERITED = (
    "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes",
    "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
)  # fmt: skip
_SET_ON_TOPIC, _SOURCE_UNKNOWN = 1, -1  # values of a setting's config_source
_TIMEOUT_MS = 30_000
_CREATED_AT_ONCE = 1000  # partitions in one request
_CONTROLLER_ATTEMPTS = 25  # times 0.2 s: a controller moves in less
_LEADERS_WITHIN = 5.0  # seconds
_OUTAGE_WITHIN = 5.0  # seconds for which all topics wait for an answer about missing ones

TopicSettings = dict[str, dict[str, str]]
DescribeElsewhere = Callable[[list[str]], Awaitable[TopicSettings]]


@dataclass(frozen=True)
class TopicTrouble:
    """Why a topic is not mirrored at the moment. `is_passing`: nobody has to do anything about it."""

    reason: str
    is_passing: bool = False


Troubles = dict[str, TopicTrouble]


class TargetTopics:
    """Creates and grows topics on the target. A topic that fails does not keep the others waiting."""

    def __init__(
        self, source: Cluster, target: Cluster, report: event.Report, describe: DescribeElsewhere | None = None
    ) -> None:
        """`describe` returns the settings of topics whose brokers are too old to be asked (from ZooKeeper)."""
        self._source, self._target, self._describe = source, target, describe
        self._report = report
        self._reported: set[event.Event] = set()
        self._failing_since = math.inf  # when the first attempt began that came to nothing

    async def ensure(self, topics: list[Topic], grow: set[str]) -> Troubles:
        """Create topics that are missing on the target, and add partitions to those of `grow` that have too few.

        Return the topics that are not there, or not ready, and why. If brokers do not answer about some, the others go on.
        """
        troubles: Troubles = {}
        missing = [topic for topic in topics if topic.name not in self._target.topics]
        failing_since = math.inf
        for chunk in _chunks(missing):
            began = time.monotonic()
            try:
                settings = await self._settings_of([topic.name for topic in chunk], troubles)
                wanted = [topic for topic in chunk if topic.name not in troubles]
                troubles |= await self._create(wanted, settings) if wanted else {}
            except OUTAGE as error:
                self._failing_since = failing_since = min(began, self._failing_since)
                if time.monotonic() - failing_since < _OUTAGE_WITHIN:
                    raise
                for name in {topic.name for topic in chunk} - troubles.keys():
                    reason = f"topic {name} cannot be created on {self._target.endpoint} now: {describe(error)}"
                    troubles[name] = TopicTrouble(reason, is_passing=True)
        self._failing_since = failing_since
        created = [topic for topic in missing if topic.name not in troubles]
        grown = [topic for topic in topics if topic.name in grow and await self._grow_if_smaller(topic)]
        if created or grown:
            counts = {topic.name: len(topic.partitions) for topic in grown}
            troubles |= await self._wait_for_leaders({topic.name for topic in created + grown}, counts)
        return troubles

    async def _settings_of(self, names: list[str], troubles: Troubles) -> TopicSettings:
        """Return the settings to inherit, as far as the source or its ZooKeeper tells them.

        A source that will tell them in a moment is waited for: without them, a backlog might be deleted on arrival.
        """
        if await self._source.knows(DescribeConfigsRequest):
            return await self._describe_configs(names, troubles)
        if self._describe is not None:
            found = await self._describe(names)
            return {name: {k: v for k, v in of.items() if k in INHERITED} for name, of in found.items()}
        self._report_once(SourceHidesSettings(str(self._source.endpoint)))
        return {}

    async def _describe_configs(self, names: list[str], troubles: Troubles) -> TopicSettings:
        results = await describe_configs(self._source, TOPIC, names, INHERITED)
        for result in results:
            name, error = result.resource_name, BrokerError(result.error_code)
            if result.error_code == TOPIC_AUTHORIZATION_FAILED:
                reason = denied(self._source.endpoint, "DescribeConfigs", "topic", name)
                self._report_once(TopicSettingsUnknown(name, reason))
            elif result.error_code and error.retriable:
                reason = f"topic {name}: {self._source.endpoint} does not tell its settings: {error}"
                troubles[name] = TopicTrouble(reason, is_passing=True)
            elif result.error_code:
                self._report_once(TopicSettingsUnknown(name, describe(error)))
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

    async def _create(self, topics: list[Topic], settings: TopicSettings) -> Troubles:
        """Ask for topics; return those that the target refuses."""
        if not await self._target.knows(CreateTopicsRequest):
            # Before 0.10.1 a broker creates a topic when a client asks for it.
            await self._target.refresh([topic.name for topic in topics], create=True)
            for topic in topics:
                self._report_once(TopicRequested(topic.name))
            return {}
        by_name = {topic.name: topic for topic in topics}
        troubles: Troubles = {}
        again: list[Topic] = []
        for result in await self._ask_controller(topics, settings):
            code = result.error_code
            if result.name not in by_name:
                continue
            topic = by_name[result.name]
            if code == INVALID_CONFIG and settings.get(topic.name):
                self._drop_refused(topic.name, settings, result.error_message or "")
                again.append(topic)
            elif code == 0:
                self._report(TopicCreated(topic.name, len(topic.partitions)))
            elif code != TOPIC_ALREADY_EXISTS:
                troubles[topic.name] = self._refusal(topic, BrokerError(code, result.error_message or ""))
        return troubles | (await self._create(again, settings) if again else {})

    def _refusal(self, topic: Topic, error: BrokerError) -> TopicTrouble:
        """Return why a topic cannot be created, and the way out."""
        endpoint = self._target.endpoint
        if error.code == TOPIC_AUTHORIZATION_FAILED:
            return TopicTrouble(denied(endpoint, "Create", "topic", topic.name))
        reason = f"topic {topic.name} cannot be created on {endpoint}: {error}"
        if error.retriable:
            return TopicTrouble(reason, is_passing=True)
        command = f"kafka-topics --bootstrap-server {endpoint} --create --topic {topic.name} --partitions {len(topic.partitions)}"
        return TopicTrouble(f"{reason}; create it there ({command}), or do not choose it")

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
        for _ in range(_CONTROLLER_ATTEMPTS):
            answer = await self._target.ask(request, self._target.controller)
            if not all(t.error_code == NOT_CONTROLLER for t in answer.topics):
                break
            await asyncio.sleep(0.2)
            await self._target.refresh()
        return answer.topics

    def _replication_factor(self, topic: Topic) -> int:
        """Return the source's replication factor, or the number of target brokers if that is smaller."""
        return max(1, min(len(self._target.brokers), *(p.replicas for p in topic.partitions.values())))

    async def _grow_if_smaller(self, topic: Topic) -> bool:
        """Add partitions to a topic; return False if it needs none, or gets none: its records go by key then."""
        counterpart, wanted = self._target.topics.get(topic.name), len(topic.partitions)
        if counterpart is None or len(counterpart.partitions) >= wanted:
            return False
        if not await self._target.knows(CreatePartitionsRequest):
            return False  # before 1.0
        error = await self._grow(topic.name, wanted)
        if error is None:
            self._report(TopicGrown(topic.name, len(counterpart.partitions), wanted))
            return True
        if error.code == TOPIC_AUTHORIZATION_FAILED:
            reason = denied(self._target.endpoint, "Alter", "topic", topic.name)
        else:
            reason = f"topic {topic.name} cannot get more partitions on {self._target.endpoint}: {error}"
        self._report_once(TopicsFailed(reason))
        return False

    async def _grow(self, name: str, count: int) -> BrokerError | None:
        """Ask for partitions; return the error if the target refuses."""
        kind = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[kind(name=name, count=count, assignments=None)], timeout_ms=_TIMEOUT_MS, validate_only=False
        )
        answer = await self._target.ask(request, self._target.controller)
        codes = [(result.error_code, result.error_message or "") for result in answer.results if result.name == name]
        # INVALID_PARTITIONS: it has as many already.
        errors = [BrokerError(code, message) for code, message in codes if code not in (0, INVALID_PARTITIONS)]
        return errors[0] if errors else None

    async def _wait_for_leaders(self, names: set[str], counts: dict[str, int]) -> Troubles:
        """Wait until every partition has a leader; brokers may still show a topic that has grown as it was.

        Return the topics that take longer than 5 s: the next look at the topics finds them.
        """
        target = self._target
        deadline = time.monotonic() + _LEADERS_WITHIN
        while True:
            await target.refresh(names)
            names = {name for name in names if not self._is_led(name, counts.get(name, 1))}
            if not names or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        return {
            name: TopicTrouble(
                f"{target.endpoint} shows topic {name} without leaders for all partitions"
                if name in target.topics
                else f"{target.endpoint} does not show topic {name}, which it was asked for; create it there",
                is_passing=True,
            )
            for name in names
        }

    def _is_led(self, name: str, count: int) -> bool:
        topic = self._target.topics.get(name)
        if topic is None or len(topic.partitions) < count:
            return False
        return all(self._target.leader(name, partition) for partition in topic.partitions)


def _chunks(topics: list[Topic]) -> Iterator[list[Topic]]:
    """Cut topics into lists of bounded size: controllers refuse a request for more than 10,000 partitions."""
    chunk: list[Topic] = []
    size = 0
    for topic in topics:
        if chunk and size + len(topic.partitions) > _CREATED_AT_ONCE:
            yield chunk
            chunk, size = [], 0
        chunk.append(topic)
        size += len(topic.partitions)
    if chunk:
        yield chunk


def _is_set_on_topic(setting: Any) -> bool:
    """Return True if the setting was made on the topic itself. Brokers before 1.1 only tell whether it is the default."""
    if setting.config_source == _SOURCE_UNKNOWN:
        return not setting.is_default
    return bool(setting.config_source == _SET_ON_TOPIC)
