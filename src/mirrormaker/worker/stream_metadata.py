"""One stream's metadata of both clusters: topics, refreshed once for all partitions that ask, and the target's settings."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Any, NamedTuple

from mirrormaker.errors import OUTAGE, BrokerError, UnsupportedRequest
from mirrormaker.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol import produce

_REFRESH_PAUSE = 0.1  # seconds between two refreshes of a cluster's metadata, however many partitions ask for one
_TOPICS_PER_REQUEST = 100  # topics whose settings are asked for at once
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


class _SharedCall:
    """Makes one call for the topics of all who ask for it, one call at a time."""

    def __init__(self, call: Callable[[set[str]], Awaitable[None]], pause: float = 0.0) -> None:
        """`pause` are the seconds from the end of a call to the next one."""
        self._call, self._pause = call, pause
        self._topics: set[str] = set()  # of the next call
        self._next: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0
        # The topics of the call under way, and its task.
        self._under_way: tuple[set[str], asyncio.Task[None]] | None = None

    async def __call__(self, topics: Iterable[str], *, may_join: bool = False) -> None:
        """Wait for the next call, which covers these topics too; `may_join`: or for the one under way, if that covers them."""
        topics = set(topics)
        if may_join and self._under_way is not None and topics <= self._under_way[0]:
            await asyncio.shield(self._under_way[1])
            return
        self._topics.update(topics)
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            topics, self._topics, task, self._next = self._topics, set(), self._next, None
            assert task is not None
            self._under_way = topics, task
            try:
                await self._call(topics)
            finally:
                self._under_way = None
                self._not_before = time.monotonic() + self._pause


class StreamMetadata:
    """Refreshes the metadata of source and target, and knows how large a batch each target topic takes."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        on_source: Callable[[set[str]], Awaitable[None]],
        on_target: Callable[[set[str]], None],
    ) -> None:
        """`on_source` and `on_target` are called with the topics after each refresh of the source, and of the target."""
        self.source, self.target = source, target
        self._on_source, self._on_target = on_source, on_target
        self._source_calls = _SharedCall(self._refresh_source, _REFRESH_PAUSE)
        self._target_calls = _SharedCall(self._refresh_target, _REFRESH_PAUSE)
        self._settings_calls = _SharedCall(self._read_settings)
        self._settings: dict[str, TopicSettings] = {}
        self.settings_changes = 0  # of all topics
        self._changed: dict[str, int] = {}  # by topic, the number of its last change
        self._learned: dict[str, int] = {}  # by topic, the size of the last batch that the target has refused, halved

    async def learn(self, source_topic: str, target_topics: Iterable[str]) -> None:
        """Read the metadata of topics that are not known yet, and their settings. Thousands of partitions share few calls."""
        await asyncio.gather(
            self._source_calls({source_topic}, may_join=source_topic not in self.source.topics),
            self._target_calls(target_topics, may_join=not self.target.topics.keys() & set(target_topics)),
        )
        await self._settings_calls(self.target.topics.keys() & set(target_topics), may_join=True)

    async def refresh_source(self, topics: Iterable[str]) -> None:
        """Refresh the source's metadata of some topics; requests that come meanwhile share the next refresh."""
        await self._source_calls(topics)

    async def refresh_target(self, topics: Iterable[str]) -> None:
        """Refresh the target's metadata of some topics; requests that come meanwhile share the next refresh."""
        await self._target_calls(topics)

    async def _refresh_source(self, topics: set[str]) -> None:
        with contextlib.suppress(UnsupportedRequest, *OUTAGE):
            await self.source.refresh(topics)
        await self._on_source(topics)

    async def _refresh_target(self, topics: set[str]) -> None:
        with contextlib.suppress(UnsupportedRequest, *OUTAGE):
            await self.target.refresh(topics)
        self._on_target(topics)

    async def follow_target(self, topics: Callable[[], set[str]]) -> None:
        """Notice within a minute that a topic of the target was created again, or that its settings have changed."""
        while True:
            await asyncio.sleep(_FOLLOW_EVERY)
            try:
                await self.refresh_target(topics())
                await self.read_settings(topics() & self.target.topics.keys())
            except OUTAGE:
                continue  # the next round tries again
            except Exception:  # one bad answer must not end the rounds
                traceback.print_exc()

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

    async def read_settings(self, topics: Iterable[str]) -> None:
        """Read the settings of target topics; partitions that ask meanwhile share the next request."""
        await self._settings_calls(topics)

    async def have_settings_changed(self, topics: Set[str], since: int) -> bool:
        """Read the settings of target topics again; return True if they have changed since so many changes ago.

        `since` is what `settings_changes` was when they were used: another partition may have read the change meanwhile.
        """
        await self.read_settings(topics)
        return any(self._changed.get(topic, 0) > since for topic in topics)

    async def _read_settings(self, topics: set[str]) -> None:
        ordered = sorted(topics)
        failed: BrokerError | None = None
        for at in range(0, len(ordered), _TOPICS_PER_REQUEST):
            some = ordered[at : at + _TOPICS_PER_REQUEST]
            try:
                results = await describe_configs(self.target, TOPIC, some, [_MAX_MESSAGE_BYTES, _CLEANUP_POLICY])
            except UnsupportedRequest:
                return  # before Kafka 0.11
            for result in results:
                error = BrokerError(result.error_code) if result.error_code else None
                if error is not None and error.retriable:
                    failed = error
                else:
                    self._learn_settings(result.resource_name, _UNKNOWN if error is not None else _settings(result))
        if failed is not None:
            raise failed

    def _learn_settings(self, topic: str, found: TopicSettings) -> None:
        if found != self._settings.get(topic, _UNKNOWN):
            self._learned.pop(topic, None)
            self.settings_changes += 1
            self._changed[topic] = self.settings_changes
        self._settings[topic] = found


def _settings(described: Any) -> TopicSettings:
    values = {setting.name: setting.value for setting in described.configs or () if setting.value}
    size = int(values.get(_MAX_MESSAGE_BYTES, _UNLIMITED))
    return TopicSettings(size, "compact" in values.get(_CLEANUP_POLICY, ""))
