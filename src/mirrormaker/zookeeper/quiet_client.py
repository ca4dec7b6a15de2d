"""kazoo's client without its log lines and without tracebacks: users get one error instead."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

# kazoo raises these for a response that is damaged, or that belongs to another request.
UNREADABLE = (struct.error, ValueError, TypeError, LookupError, RuntimeError)

# kazoo logs every attempt.
_SILENT = logging.getLogger("mirrormaker.kazoo")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads. A damaged response ends one of them: whoever waits for the response notices that none comes."""

    def spawn(self, func: Callable[..., object], *args: Any, **options: Any) -> threading.Thread:
        """Run a function in a thread."""

        def run(*given: Any, **named: Any) -> None:
            with contextlib.suppress(Exception):
                func(*given, **named)

        thread: threading.Thread = super().spawn(run, *args, **options)
        return thread


def new_client(hosts: str, timeout: float) -> KazooClient:
    """Return a client that is not started yet; `timeout` in seconds is that of its session."""
    retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
    return KazooClient(hosts, timeout, handler=_Handler(), connection_retry=retry, logger=_SILENT)


def close(client: KazooClient) -> None:
    """End the session, and wait for attempts that are under way."""
    with contextlib.suppress(Exception):
        client.stop()
        client.close()
