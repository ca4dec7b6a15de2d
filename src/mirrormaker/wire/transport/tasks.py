"""Tasks that run beside others: one that dies is noticed at once, not when the garbage collector finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def watch(task: asyncio.Future[Any], died: Callable[[Exception], object]) -> None:
    """Call `died` with the error of a task that ends with one.

    To be cancelled is no error, unless nobody has cancelled this task: it has waited for something that was cancelled.
    """

    def ended(_: object) -> None:
        if not task.cancelled():
            error = task.exception()
        elif isinstance(task, asyncio.Task) and not task.cancelling():
            name = getattr(task.get_coro(), "__qualname__", task.get_name())
            error = RuntimeError(f"{name} waited for something that was cancelled")
        else:
            error = None
        if isinstance(error, Exception):
            died(error)

    task.add_done_callback(ended)
