"""One stream's metadata of both clusters: topics, refreshed once for all partitions that ask, and the target's settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Set
from typing import Any, NamedTuple

from mirrormaker.errors import OUTAGE, BrokerError, UnsupportedRequest
from mirrormaker.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol import produce

_REFRESH_PAUSE = 0.1  # seconds between two refreshes of a cluster's metadata, however many partitions ask for one
_FOLLOW_EVERY = 60.0  # seconds until a change on the target is noticed that causes no error
_FIRST_WITH_ZSTD = 7  # version of Produce (Kafka 2.1)
_UNLIMITED = 1 << 62
_MAX_MESSAGE_BYTES, _CLEANUP_POLICY = "max.message.bytes", "cleanup.policy"


class TopicSettings(NamedTuple):
    """The settings of a target topic that matter to a stream."""

    max_message_bytes: int = _UNLIMITED
    is_compacted: bool = False


# Where settings may not be read, the broker's refusals tell.
_UNKNOWN = TopicSettings()


class StreamMetadata:
    """Refreshes the metadata of source and target, and knows how large a batch each target topic takes."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        source_topics: Callable[[], Iterable[str]],
        target_topics: Callable[[], Iterable[str]],
    ) -> None:
        """`source_topics` and `target_topics` return the topics that the stream mirrors at the moment."""
        self.source, self.target = source, target
        self._source_topics, self._target_topics = source_topics, target_topics
        # Called after each refresh of the source, and of the target.
        self.on_source: Callable[[], None] = lambda: None
        self.on_target: Callable[[], None] = lambda: None
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._learned: dict[str, int] = {}  # by topic, the size of the last batch that the target has refused, halved

    async def refresh_source(self) -> None:
        """Refresh the source's metadata; requests that come meanwhile share one refresh."""
        await self._once("source", self._refresh_source)

    async def refresh_target(self) -> None:
        """Refresh the target's metadata; requests that come meanwhile share one refresh."""
        await self._once("target", self._refresh_target)

    async def _once(self, cluster: str, refresh: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._refreshing.get(cluster)
        if task is None or task.done():
            task = self._refreshing[cluster] = asyncio.create_task(refresh())
        await asyncio.shield(task)

    async def _refresh_source(self) -> None:
        with contextlib.suppress(UnsupportedRequest, *OUTAGE):
            await self.source.refresh(set(self._source_topics()))
        self.on_source()
        await asyncio.sleep(_REFRESH_PAUSE)

    async def _refresh_target(self) -> None:
        with contextlib.suppress(UnsupportedRequest, *OUTAGE):
            await self.target.refresh(set(self._target_topics()))
        self.on_target()
        await asyncio.sleep(_REFRESH_PAUSE)

    async def follow_target(self) -> None:
        """Notice within a minute that a topic of the target was created again, or that its settings have changed."""
        while True:
            await asyncio.sleep(_FOLLOW_EVERY)
            await self.refresh_target()
            await self._once("settings", self._reread_all_settings)

    # -- the target's settings

    def target_id(self, topic: str) -> bytes:
        """Return the id of a target topic."""
        known = self.target.topics.get(topic)
        if known is None:
            raise BrokerError(UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not on the target")
        return known.id

    async def target_takes_zstd(self) -> bool:
        """Return True if the target's brokers know zstd (Kafka 2.1 and later)."""
        connection = await self.target.connection(min(self.target.brokers))
        return produce.version_for(connection) >= _FIRST_WITH_ZSTD

    def max_batch_bytes(self, topic: str) -> int:
        """Return the size of the largest batch to send to a target topic."""
        return min(self.max_message_bytes(topic), self._learned.get(topic, _UNLIMITED))

    def max_message_bytes(self, topic: str) -> int:
        """Return the target topic's max.message.bytes, as far as it could be read."""
        return self._settings.get(topic, _UNKNOWN).max_message_bytes

    def is_compacted(self, topic: str) -> bool:
        """Return True if the target topic is known to be compacted."""
        return self._settings.get(topic, _UNKNOWN).is_compacted

    def learn_limit(self, topic: str, size: int) -> None:
        """Send smaller batches: the target refused a larger one, though its settings allow it or could not be read."""
        self._learned[topic] = min(size, self.max_batch_bytes(topic))

    async def read_settings(self, topics: Set[str]) -> None:
        """Read the settings of target topics that are not known yet; partitions that ask meanwhile share one request."""
        # A request that is under way may have left before the last topic came: then there is a second one.
        for _ in range(2):
            if not topics <= self._settings.keys():
                await self._once("settings", self._reread_all_settings)

    async def reread_settings(self, topics: Collection[str]) -> bool:
        """Read the settings of target topics again, in one request; return True if they have changed."""
        try:
            results = await describe_configs(self.target, TOPIC, topics, [_MAX_MESSAGE_BYTES, _CLEANUP_POLICY])
        except UnsupportedRequest:
            return False  # before Kafka 0.11
        failed: BrokerError | None = None
        changed = False
        for result in results:
            error = BrokerError(result.error_code) if result.error_code else None
            if error is not None and error.retriable:
                failed = error
                continue
            topic, found = result.resource_name, _UNKNOWN if error is not None else _settings(result)
            if found != self._settings.get(topic, _UNKNOWN):
                changed = True
                self._learned.pop(topic, None)
            self._settings[topic] = found
        if failed is not None:
            raise failed
        return changed

    async def _reread_all_settings(self) -> None:
        topics = set(self._target_topics()) & self.target.topics.keys()
        with contextlib.suppress(*OUTAGE):
            if topics:
                await self.reread_settings(topics)


def _settings(described: Any) -> TopicSettings:
    values = {setting.name: setting.value for setting in described.configs or () if setting.value}
    size = int(values.get(_MAX_MESSAGE_BYTES, _UNLIMITED))
    return TopicSettings(size, "compact" in values.get(_CLEANUP_POLICY, ""))
