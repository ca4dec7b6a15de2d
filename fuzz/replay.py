"""Conversations with peers in the same event loop that repeat recorded answers, one of them damaged.

Nobody waits: whenever every task waits for a moment that is to come, the clock is set forward to it. So timeouts, pauses and
heartbeats happen as they would, and a minute of them takes milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import socket
import struct
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from typing import Any
from unittest import mock

from tests.support.peer import correlation_of, frame, hear
from tests.support.scripted_broker import API_VERSIONS, FETCH, is_flexible

from fuzz.conversations import CONVERSATIONS, Conversation
from fuzz.mutations import mutate, mutate_fields
from fuzz.recording import Recorded, known_nonce
from fuzz.runner import ALLOWED, CPU_SECONDS, Attempt, Case
from mirrormaker.driver import process
from mirrormaker.groups import sync
from mirrormaker.groups.planning import Planner
from mirrormaker.groups.sync import GroupSync
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.wire.auth import sasl
from mirrormaker.worker import fetcher, stream
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.sender import Sender

# What the handlers of `except Exception` call that go on: with the error, or while it is being handled.
LAST_HANDLERS: tuple[tuple[Any, str], ...] = (
    (traceback, "print_exc"),
    (fetcher, "describe"),
    (stream, "describe"),
    (sasl, "_as_lost"),
    (sasl, "_failed"),
    (MapKeeper, "_note_failed"),
    (GroupSync, "_reason"),
    (sync, "describe_any"),
    (Planner, "_note_trouble"),
    (process, "_failure_of"),
    (Cursor, "interrupt"),
    (Sender, "_lost"),
)

_LONGEST = 60.0  # seconds of a conversation, on its own clock
# A damaged answer may come again and again in that time, with hundreds of others in between. Each has a second: `_Peers.settle`.
_CPU_SECONDS = 5.0
_MOST_REQUESTS = 400  # of a conversation
_MOST_BYTES = 4 << 20  # of all answers of a conversation: one long answer again and again only takes time
_SOON = 5.0  # seconds: so many requests in a shorter time are an endless loop
_FETCH_WAIT = 0.5  # seconds that a broker keeps a fetch request without news
_THREAD_TURN = 0.001  # seconds to wait for another thread before looking again
_STUCK_AFTER = 10.0  # seconds without anything that could happen


class SlowAnswer(Exception):
    """The code under test computes for more than a second before it asks for anything else."""


class EndlessConversation(Exception):
    """The code under test asks again and again without a pause, or never ends."""


def cases(recorded: Sequence[Recorded]) -> list[Case]:
    """Return a case for each conversation."""
    everything = [row.answer for row in recorded]
    by_name: dict[str, list[Recorded]] = defaultdict(list)
    for row in recorded:
        by_name[row.conversation].append(row)
    return [
        Case(f"talk-{name}", partial(_attempt, CONVERSATIONS[name], rows, everything))
        for name, rows in by_name.items()
        if name in CONVERSATIONS
    ]


def _attempt(conversation: Conversation, rows: Sequence[Recorded], others: Sequence[bytes], dice: Random) -> Attempt:
    # Each kind of request has the same chance, however often it is sent.
    kind = dice.choice(sorted({(row.port, row.api_key) for row in rows}))
    chosen = dice.choice([number for number, row in enumerate(rows) if (row.port, row.api_key) == kind])
    row = rows[chosen]
    damaged = mutate_fields(row.answer, row.api_key, row.version, dice) if dice.random() < 0.5 else None
    damaged = damaged or mutate(row.answer, dice, others)
    # A peer may go on like that: all later answers to this request are the damaged one.
    lasts = dice.random() < 0.3
    changed = [
        row._replace(answer=damaged)
        if number == chosen or (lasts and number > chosen and (row.port, row.api_key) == kind)
        else row
        for number, row in enumerate(rows)
    ]
    return Attempt(damaged, partial(talk, conversation, changed), _CPU_SECONDS)


def talk(conversation: Conversation, rows: Sequence[Recorded], *, may_fail: bool = True) -> None:
    """Have a conversation with peers that give these answers. Raise what it raises, unless that is allowed."""
    peers = _Peers(rows)
    with _fast_clock() as clock, _loops_with(peers, clock), _no_silent_bugs(peers.escaped), known_nonce():
        began = time.monotonic()
        with suppress(*ALLOWED if may_fail else ()):
            conversation.run(peers.ports, _LONGEST)
        if peers.requests >= _MOST_REQUESTS and time.monotonic() - began < _SOON:
            raise EndlessConversation(f"{_MOST_REQUESTS} requests in {time.monotonic() - began:.1f} s")
        peers.settle()
    # A task that nobody waits for tells its exception when it is collected.
    gc.collect()
    for error in peers.escaped:
        raise error


@contextmanager
def _no_silent_bugs(escaped: list[BaseException]) -> Iterator[None]:
    """Note what the last handlers of the program catch: a cursor prints it and stops, a fetcher describes it and goes on."""
    known = (asyncio.CancelledError, fetcher._PollCutShort, *ALLOWED)

    def noting(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            error = next((arg for arg in args if isinstance(arg, BaseException)), sys.exc_info()[1])
            if error is not None and not isinstance(error, known):
                escaped.append(error)
            return None if whole is traceback.print_exc else whole(*args)

        return call

    with ExitStack() as patches:
        for owner, name in LAST_HANDLERS:
            patches.enter_context(mock.patch.object(owner, name, noting(getattr(owner, name))))
        yield


class _Peers:
    """A peer for each port that answers were recorded from."""

    def __init__(self, rows: Sequence[Recorded]) -> None:
        self.ports = list(dict.fromkeys(row.port for row in rows))
        self._answered_at = time.process_time()
        self.requests = self.bytes = 0
        self.escaped: list[BaseException] = []
        self._answers: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for row in rows:
            self._answers[row.port, row.api_key].append(row.answer)

    def settle(self) -> None:
        """Note if the last answer kept the program busy for more than a second of CPU time."""
        now = time.process_time()
        if (seconds := now - self._answered_at) > CPU_SECONDS:
            self.escaped.append(SlowAnswer(f"{seconds:.1f} s of CPU time after one answer"))
        self._answered_at = now

    async def serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, and after very many of them hang up."""
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            while self.requests < _MOST_REQUESTS and self.bytes < _MOST_BYTES:
                request = await hear(reader)
                key, version = struct.unpack_from(">hh", request)
                left = self._answers.get((port, key))
                if left is None:
                    break
                self.requests += 1
                if len(left) == 1 and key == FETCH:
                    await asyncio.sleep(_FETCH_WAIT)
                # The last answer comes again and again.
                answer = left.pop(0) if len(left) > 1 else left[0]
                self.bytes += len(answer)
                self.settle()
                header = b"\0" if is_flexible(key, version) and key != API_VERSIONS else b""
                writer.write(frame(correlation_of(request), header + answer))
        writer.close()


# -- time


class _Clock:
    """How far the clocks were set forward, in seconds."""

    def __init__(self) -> None:
        self.skipped = 0.0


@contextmanager
def _fast_clock() -> Iterator[_Clock]:
    """Make all clocks that only go forward run ahead by what was skipped."""
    clock, monotonic, gettime = _Clock(), time.monotonic, time.clock_gettime
    time.monotonic = lambda: monotonic() + clock.skipped
    time.clock_gettime = lambda which: gettime(which) + clock.skipped
    try:
        yield clock
    finally:
        time.monotonic, time.clock_gettime = monotonic, gettime


class _SkippingSelector(selectors.DefaultSelector):
    """Sets the clock forward instead of waiting."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock, self._stuck, self._threads = clock, 0.0, threading.active_count()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; otherwise set the clock forward by `timeout`, unless another thread may have news."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._stuck = 0.0
            return ready
        os.sched_yield()
        if timeout is None or threading.active_count() > self._threads:
            self._stuck += _THREAD_TURN
            if self._stuck > _STUCK_AFTER:
                raise EndlessConversation("every task waits for something that never happens")
            return super().select(_THREAD_TURN)
        # On a busy machine, the kernel may need a moment to bring bytes from one socket to the other.
        ready = super().select(_THREAD_TURN)
        if not ready:
            self._clock.skipped += timeout
        return ready


class _PeerLoop(asyncio.SelectorEventLoop):
    """An event loop in which the peers run too. Whatever address an answer names, nothing but a peer is reached."""

    def __init__(self, peers: _Peers, clock: _Clock) -> None:
        super().__init__(_SkippingSelector(clock))
        self._peers, self._listening = peers, dict[int, socket.socket]()

    def run_forever(self) -> None:
        """Begin to listen first, if this is the first time."""
        for port in self._peers.ports:
            if port not in self._listening:
                self._listening[port] = socket.create_server(("127.0.0.1", 0))
                # A second answer would wait for the kernel's acknowledgement of the first one, and meanwhile the clock runs ahead.
                self._listening[port].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                serve = partial(self._peers.serve, port)
                self.create_task(asyncio.start_server(serve, sock=self._listening[port]))
        super().run_forever()

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[tuple[Any, ...]]:
        """Return the address of the peer for a recorded port; of the first peer for any other port."""
        peer = self._listening.get(port, next(iter(self._listening.values())))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", peer.getsockname())]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what a task raised for which nobody waits."""
        error = context.get("exception")
        if error is not None and not isinstance(error, (asyncio.CancelledError, *ALLOWED)):
            self._peers.escaped.append(error)

    def close(self) -> None:
        """Close the peers too."""
        for listening in self._listening.values():
            listening.close()
        super().close()


@contextmanager
def _loops_with(peers: _Peers, clock: _Clock) -> Iterator[None]:
    """Make every new event loop one in which the peers run."""

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return _PeerLoop(peers, clock)

    asyncio.set_event_loop_policy(Policy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(None)
