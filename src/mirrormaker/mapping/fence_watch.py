"""The fence of a flow, as a running mirror sees it: a row that a failover writes to the end of the offset map's topic."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mirrormaker.errors import BrokerError, FlowClosed
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE
from mirrormaker.mapping.map_topic import TOPIC
from mirrormaker.model.offset_map_format import Fence, FenceKey, unpack_fence, unpack_key
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.transport.turns import in_turns


def describe_fence(fence: Fence) -> str:
    """Return when a flow was closed, and by whom."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(fence.time / 1000))
    return f"this flow was closed by a failover at {when} UTC (by {fence.by})"


def closed(fence: Fence, target: Endpoint) -> FlowClosed:
    """Return the error of a mirror that must not go on."""
    return FlowClosed(
        f"{describe_fence(fence)}: {target} has writers of its own since then."
        " To mirror again all the same: mirrormaker failover --undo"
    )


class FenceWatch:
    """Reads the end of the topic: one request that brings nothing, as long as no other process writes to it."""

    def __init__(self, target: Cluster, source_id: str, start: int) -> None:
        """`start` is the offset up to which the topic was read; there was no fence."""
        self._target, self._source_id, self._at = target, source_id, start
        self._fence: Fence | None = None
        # True once the topic was seen to end before what was read of it.
        self.is_replaced = False

    def wrote(self, offsets: range) -> None:
        """Pass over rows that this process has written itself, if they follow what was read."""
        if offsets and offsets.start == self._at:
            self._at = offsets.stop

    async def look(self) -> Fence | None:
        """Read what was added since the last time; return the fence if there is one now."""
        while True:
            before = self._at
            try:
                records, self._at = await keyed_topic.read_next(self._target, TOPIC, self._at)
                await self._take(records)
            except BrokerError as error:
                if error.code != OFFSET_OUT_OF_RANGE:
                    raise
                # The topic was deleted and created again, or its beginning was compacted away before it was read.
                async for records, self._at in keyed_topic.scan(self._target, TOPIC, 0):  # noqa: B020
                    await self._take(records)
                self.is_replaced = self.is_replaced or self._at < before
            if self._at == before:
                return self._fence

    async def _take(self, records: Iterable[keyed_topic.KeyedRecord]) -> None:
        async for record in in_turns(records):
            if unpack_key(record.key) == FenceKey(self._source_id):
                self._fence = None if record.value is None else unpack_fence(record.value)
