"""Calls that block, beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run something that blocks; in a daemon thread, so that a hanging JVM or KDC cannot keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits for it any more
        if error is not None:
            future.set_exception(error)
            future.exception()
        else:
            future.set_result(result)

    def body() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=body, daemon=True).start()
    return future
