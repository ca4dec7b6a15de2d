"""Blocking calls in a thread beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Run a blocking call in a daemon thread, so that a JVM or a KDC that hangs cannot keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # the caller was cancelled
        if error is not None:
            future.set_exception(error)
            # Mark the exception as seen: asyncio would log a warning for a future that nobody awaits.
            future.exception()
        else:
            future.set_result(result)

    def body() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        # A loop that has ended raises RuntimeError; then nobody waits for the result.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=body, daemon=True).start()
    return future
