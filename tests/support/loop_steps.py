"""How much an event loop does in one go, counted in function calls: seconds would depend on the machine."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any
from unittest import mock


def longest_step(work: Coroutine[Any, Any, Any]) -> int:
    """Run a coroutine in an event loop of its own; return the calls of the longest step without a turn for others.

    Event loops in other threads are not counted.
    """
    calls = longest = 0
    thread = threading.get_ident()

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    run = asyncio.events.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        nonlocal calls, longest
        if threading.get_ident() != thread:
            run(handle)
            return
        calls = 0
        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(None)
            longest = max(longest, calls)

    with mock.patch.object(asyncio.events.Handle, "_run", counted):
        asyncio.run(work)
    return longest


def calls_of(work: Callable[[], object]) -> int:
    """Run a function; return the calls that it makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
