"""The fence of a flow, as a mirror sees it: a row that a failover writes to the end of the offset map's topic.

A mirror that keeps an offset map reads the fence together with the map. `FenceGuard` is for the time in which the map cannot be
read, and for mirrors without one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from mirrormaker.errors import OUTAGE, BrokerError, DataError, FlowClosed, MirrorError, describe
from mirrormaker.events import event
from mirrormaker.events.map_events import FenceReadable, FenceUnreadable
from mirrormaker.events.partition_events import Waiting
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.map_topic import TOPIC
from mirrormaker.model.offset_map_format import Fence, FenceKey, unpack_fence, unpack_key
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.transport.turns import in_turns

_AGAIN_AFTER = 1.0  # seconds between two attempts to read the topic at the start
_LOOK_EVERY = 5.0  # seconds between two looks of a mirror without an offset map
_LOOK_WITHIN = 5.0  # seconds for one of them
_TELL_AFTER = 12.0  # seconds without a successful look: a change of the leader takes less


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


class FenceDoubt:
    """Says once if a running mirror cannot read for a while whether there is a fence, and once when it can again."""

    def __init__(self, target: Cluster, report: event.Report) -> None:
        self._target, self._report = target, report
        self._since: float | None = None
        self._is_told = False

    def failed(self, error: BaseException) -> None:
        """Count a look that failed."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= _TELL_AFTER and not self._is_told:
            self._is_told = True
            self._report(FenceUnreadable(TOPIC, str(self._target.endpoint), self._reason(error)))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
            return denied(self._target.endpoint, ("Describe", "Read"), "topic", TOPIC)
        return "it does not answer in time" if isinstance(error, TimeoutError) else describe(error)

    def passed(self) -> None:
        """Count a look that has told whether there is a fence."""
        if self._is_told:
            self._report(FenceReadable(TOPIC))
        self._since, self._is_told = None, False


class FenceGuard:
    """Keeps a mirror from running while it is not known whether a failover has closed its flow."""

    def __init__(self, target: Cluster, source_id: Callable[[], str], report: event.Report) -> None:
        """`source_id` returns the id of the source cluster, once that is known."""
        self._target, self._source_id, self._report = target, source_id, report
        self._watch: FenceWatch | None = None
        self._doubt = FenceDoubt(target, report)

    async def wait(self) -> bool:
        """Read the fence; raise FlowClosed if there is one. A target that cannot tell now is asked until it can.

        So is one whose topic is damaged: the fence may be in the damaged part. Return False if there is nothing to read: no
        topic, or no right to read it.
        """
        is_reported = False
        while True:
            try:
                return await self._look()
            except (*OUTAGE, MirrorError) as error:
                if isinstance(error, FlowClosed):
                    raise
                if isinstance(error, MirrorError) and not (error.retriable or isinstance(error, DataError)):
                    return False
                if not is_reported:
                    is_reported = True
                    self._report(
                        Waiting(_UNKNOWN.format(topic=TOPIC, target=self._target.endpoint, reason=describe(error)))
                    )
            await asyncio.sleep(_AGAIN_AFTER)

    async def run(self) -> None:
        """Look again and again; raise FlowClosed once there is a fence."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            try:
                await asyncio.wait_for(self._look(), _LOOK_WITHIN)
            except FlowClosed:
                raise
            except (*OUTAGE, MirrorError) as error:
                self._doubt.failed(error)
            else:
                self._doubt.passed()

    async def _look(self) -> bool:
        """Return True if the topic was read and has no fence, False if there is none that this client may see."""
        target = self._target
        await target.refresh([TOPIC])
        if TOPIC not in target.topics:
            refused = target.refused.get(TOPIC)
            if refused:
                raise BrokerError(refused, f"describing {TOPIC}")
            return False
        self._watch = self._watch or FenceWatch(target, self._source_id(), 0)
        fence = await self._watch.look()
        if fence is not None:
            raise closed(fence, target.endpoint)
        return True


_UNKNOWN = (
    "{topic} on {target} cannot be read, so it is not known whether a failover has closed this flow: {reason};"
    " nothing is mirrored until it can be read"
)
