"""Calling the user's rebalance listener."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

import kafka

from mirrormaker.events import event
from mirrormaker.events.process_events import ListenerFailed
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.threads import run_in_thread

_LONGEST_CALL = 30.0  # seconds


class RebalanceListener:
    """Tells a `kafka.ConsumerRebalanceListener` what this process mirrors. What it does wrong is reported, and changes nothing."""

    def __init__(self, listener: Any, report: event.Report) -> None:
        """`listener` may be None: then nobody is told."""
        self._listener, self._report = listener, report

    async def assigned(self, keys: Collection[TopicPartition]) -> None:
        """Tell that partitions have come."""
        await self._call("on_partitions_assigned", keys)

    async def revoked(self, keys: Collection[TopicPartition]) -> None:
        """Tell that partitions have gone."""
        await self._call("on_partitions_revoked", keys)

    async def _call(self, method: str, keys: Collection[TopicPartition]) -> None:
        """Call a method in a thread of its own, and go on without it after 30 s."""
        if self._listener is None or not keys:
            return
        try:
            call = run_in_thread(partial(getattr(self._listener, method), {kafka.TopicPartition(*key) for key in keys}))
            await asyncio.wait_for(call, _LONGEST_CALL)
        except asyncio.TimeoutError:
            self._report(ListenerFailed(method, f"takes longer than {_LONGEST_CALL:g} s; going on without it"))
        except Exception as error:
            self._report(ListenerFailed(method, f"raised {type(error).__name__}: {error}"))
