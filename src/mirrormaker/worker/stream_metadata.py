"""One stream's metadata of both clusters: topics, refreshed once for all partitions that ask, and the target's limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from mirrormaker.errors import OUTAGE, UnsupportedRequest, WireError
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol import produce

_REFRESH_PAUSE = 0.1  # seconds between two refreshes of a cluster's metadata, however many partitions ask for one
_FIRST_WITH_ZSTD = 7  # version of Produce (Kafka 2.1)
_UNLIMITED = 1 << 62


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
        self._max_message_bytes: dict[str, int] = {}
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
        with contextlib.suppress(*OUTAGE):
            await self.source.refresh(set(self._source_topics()))
        self.on_source()
        await asyncio.sleep(_REFRESH_PAUSE)

    async def _refresh_target(self) -> None:
        with contextlib.suppress(*OUTAGE):
            await self.target.refresh(set(self._target_topics()))
        self.on_target()
        await asyncio.sleep(_REFRESH_PAUSE)

    # -- the target's limits

    def target_id(self, topic: str) -> bytes:
        """Return the id of a target topic."""
        return self.target.topics[topic].id

    async def target_takes_zstd(self) -> bool:
        """Return True if the target's brokers know zstd (Kafka 2.1 and later)."""
        connection = await self.target.connection(min(self.target.brokers))
        return produce.version_for(connection) >= _FIRST_WITH_ZSTD

    def max_batch_bytes(self, topic: str) -> int:
        """Return the size of the largest batch to send to a target topic."""
        return min(self.max_message_bytes(topic), self._learned.get(topic, _UNLIMITED))

    def max_message_bytes(self, topic: str) -> int:
        """Return the target topic's max.message.bytes, as far as it could be read."""
        return self._max_message_bytes.get(topic, _UNLIMITED)

    def learn_limit(self, topic: str, size: int) -> None:
        """Send smaller batches: the target refused a larger one, though its settings allow it or could not be read."""
        self._learned[topic] = min(size, self.max_batch_bytes(topic))

    async def read_limit(self, topic: str) -> None:
        """Read a target topic's max.message.bytes. Where that is not allowed, the broker's refusals tell."""
        with contextlib.suppress(WireError, UnsupportedRequest):
            for result in await describe_configs(self.target, TOPIC, [topic], ["max.message.bytes"]):
                for setting in result.configs or ():
                    if setting.name == "max.message.bytes" and setting.value:
                        self._max_message_bytes[topic] = int(setting.value)
