"""Long work on the event loop, in steps: heartbeats, leases and other partitions wait for one step at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

# Partitions that are worked on before the rest of the event loop has its turn. One takes 10 to 50 microseconds.
PARTITIONS_IN_ONE_TURN = 200


async def in_turns(items: Iterable[T], size: int = PARTITIONS_IN_ONE_TURN) -> AsyncIterator[T]:
    """Yield items; the rest of the event loop has its turn after every `size` of them.

    Anything may have changed meanwhile. The items are those that there were at the beginning.
    """
    for number, item in enumerate(list(items), 1):
        yield item
        if number % size == 0:
            await give_way()


async def give_way() -> None:
    """Let the rest of the event loop have its turn."""
    await asyncio.sleep(0)
