"""One stream's metadata of both clusters: topics, refreshed once for all partitions that ask, and the target's limits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable

from mirrormaker.errors import OUTAGE, UnsupportedRequest, WireError
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol import produce

_REFRESH_PAUSE = 0.1  # seconds between two refreshes of a cluster's metadata, however many partitions ask for one
_TOPICS_PER_REQUEST = 100  # topics whose settings are asked for at once
_FIRST_WITH_ZSTD = 7  # version of Produce (Kafka 2.1)
_UNLIMITED = 1 << 62


class _SharedCall:
    """Makes one call for the topics of all who ask for it, one call at a time."""

    def __init__(self, call: Callable[[set[str]], Awaitable[None]], pause: float = 0.0) -> None:
        """`pause` are the seconds from the end of a call to the next one."""
        self._call, self._pause = call, pause
        self._topics: set[str] = set()  # of the next call
        self._next: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self, topics: Iterable[str]) -> None:
        """Wait for the next call, which covers these topics too."""
        self._topics.update(topics)
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            topics, self._topics, self._next = self._topics, set(), None
            await self._call(topics)
            self._not_before = time.monotonic() + self._pause


class StreamMetadata:
    """Refreshes the metadata of source and target, and knows how large a batch each target topic takes."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        on_source: Callable[[set[str]], None],
        on_target: Callable[[set[str]], None],
    ) -> None:
        """`on_source` and `on_target` are called with the topics after each refresh of the source, and of the target."""
        self.source, self.target = source, target
        self._on_source, self._on_target = on_source, on_target
        self._source_calls = _SharedCall(self._refresh_source, _REFRESH_PAUSE)
        self._target_calls = _SharedCall(self._refresh_target, _REFRESH_PAUSE)
        self._limit_calls = _SharedCall(self._read_limits)
        self._max_message_bytes: dict[str, int] = {}
        self._learned: dict[str, int] = {}  # by topic, the size of the last batch that the target has refused, halved

    async def refresh_source(self, topics: Iterable[str]) -> None:
        """Refresh the source's metadata of some topics; requests that come meanwhile share the next refresh."""
        await self._source_calls(topics)

    async def refresh_target(self, topics: Iterable[str]) -> None:
        """Refresh the target's metadata of some topics; requests that come meanwhile share the next refresh."""
        await self._target_calls(topics)

    async def _refresh_source(self, topics: set[str]) -> None:
        with contextlib.suppress(*OUTAGE):
            await self.source.refresh(topics)
        self._on_source(topics)

    async def _refresh_target(self, topics: set[str]) -> None:
        with contextlib.suppress(*OUTAGE):
            await self.target.refresh(topics)
        self._on_target(topics)

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

    async def read_limits(self, topics: Iterable[str]) -> None:
        """Read max.message.bytes of target topics. Where that is not allowed, the broker's refusals tell."""
        await self._limit_calls(topics)

    async def _read_limits(self, topics: set[str]) -> None:
        ordered = sorted(topics)
        with contextlib.suppress(WireError, UnsupportedRequest):
            for at in range(0, len(ordered), _TOPICS_PER_REQUEST):
                some = ordered[at : at + _TOPICS_PER_REQUEST]
                for result in await describe_configs(self.target, TOPIC, some, ["max.message.bytes"]):
                    for setting in result.configs or ():
                        if setting.name == "max.message.bytes" and setting.value:
                            self._max_message_bytes[result.resource_name] = int(setting.value)
