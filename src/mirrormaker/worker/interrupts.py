"""Why a cursor leaves the hot path.

On the hot path a cursor forwards fetched batches to its outlets. Each exception here is a reason to stop doing that.
The cursor then waits for the answers to what it has sent, and either starts again or gives its partition back to the
driver. Outages and errors of Kafka are reasons too: `mirrormaker.errors` has those.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Released(Exception):
    """The driver wants the partition back."""


class Flag:
    """An asyncio.Event in a tenth of the memory: every cursor has some."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def set(self) -> None:
        """Wake up all who wait."""
        self.is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Let everyone wait until it is set again."""
        self.is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self.is_set:
            return
        waiter = self.waiter()
        try:
            await waiter
        finally:
            self.forget(waiter)

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the flag is set the next time; `forget` it afterwards."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters += (waiter,)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Wake this one up no more."""
        self._waiters = tuple(other for other in self._waiters if other is not waiter)


class ReleaseSignal:
    """Is set when the driver wants the partition back; cuts short whatever the cursor waits for."""

    __slots__ = ("_flag", "_since")

    def __init__(self) -> None:
        self._flag, self._since = Flag(), 0.0

    @property
    def is_set(self) -> bool:
        """Return True if the driver wants the partition back."""
        return self._flag.is_set

    def set(self) -> None:
        """Wake up a cursor that waits."""
        if not self.is_set:
            self._since = time.monotonic()
        self._flag.set()

    def was_set_before(self, seconds: float) -> bool:
        """Return True if the driver wants the partition back for so long already."""
        return self.is_set and time.monotonic() - self._since >= seconds

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until the signal."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._flag.wait(), seconds)

    async def wait_for(self, flag: Flag, seconds: float) -> None:
        """Wait until another flag is set, or for so many seconds after the signal."""
        if not self.is_set:
            with contextlib.suppress(Released):
                await self.unless_set(flag.wait())
        if self.is_set and not flag.is_set:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._since + seconds - time.monotonic()):
                    await flag.wait()

    async def unless_set(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of something that may take long; at the signal, cancel it and raise Released."""
        if self.is_set:
            work.close()
            raise Released
        task = asyncio.current_task()
        assert task is not None
        cancelled_before, is_cut_short, is_over = task.cancelling(), False, False

        def cut_short(_: object) -> None:
            nonlocal is_cut_short
            # The signal may have come in the moment in which the work ended.
            is_cut_short = not is_over and task.cancel()

        # As asyncio.timeout does it: a task of its own for the work would cost thousands of partitions half a second.
        waiter = self._flag.waiter()
        waiter.add_done_callback(cut_short)
        try:
            return await work
        except asyncio.CancelledError:
            if is_cut_short and task.uncancel() <= cancelled_before:
                raise Released from None
            raise
        finally:
            is_over = True
            self._flag.forget(waiter)


class AwaitZombies(Exception):
    """Old records must wait until requests of a former sender are appended or dropped, and the log must be read again.

    A broker may forget which producer wrote old records. It would then append a former sender's copy of them a second
    time.
    """


class LookAgain(Exception):
    """A broker's answer cannot be right: it acknowledged a batch where it cannot lie, or a batch is corrupt. Ask again."""


class SplitBatch(Exception):
    """The target refused a batch of several records: they are sent again in smaller batches, to find the bad record."""

    def __init__(self, reason: str, end: int) -> None:
        """`end` is the source offset after the records."""
        super().__init__(reason)
        self.end = end


class RestartAt(IntEnum):
    """Where a partition goes on that needs a new producer identity. The driver gets the number in a stream's report."""

    # At the position; records that the target holds after it may be sent again.
    SAME_PLACE = 0
    # At the log start offset of a source topic that was deleted and created again.
    FROM_THE_START = 1
    # The source no longer has the position's offset: where `auto.offset.reset` says.
    OUT_OF_RANGE = 2
    # The source's log was truncated: where source and target still agree.
    TRUNCATED = 3
    # At the position; the target has forgotten the identity, but it is known which records of it the target holds.
    FORGOTTEN = 4
    # As FORGOTTEN; the target does not take the producer epoch of mirrors, so the identity must have the one that it gives.
    UNMARKED = 5


class Renumber(Exception):
    """The partition needs a new producer identity, because other records follow than the numbers were meant for.

    Only the driver may allocate an identity.
    """

    def __init__(self, where: RestartAt, reason: str, topics: tuple[str, ...] = ()) -> None:
        """`topics` are further topics that a message handler sends to: only they need numbers.

        The records are the same as before then, so records that are ahead of the position stay ahead.
        """
        super().__init__(reason)
        self.where, self.reason, self.topics = where, reason, topics
