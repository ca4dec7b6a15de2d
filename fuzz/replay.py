"""Conversations with a peer on this machine that repeats recorded answers, one of them damaged."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from tests.support.peer import serving
from tests.support.scripted_broker import ScriptedBroker

from fuzz.case import Attempt, Case
from fuzz.conversations import CONVERSATIONS, Conversation
from fuzz.limits import ALLOWED, Enough
from fuzz.mutations import mutate
from fuzz.recorded import Recorded
from fuzz.recording import NONCE
from mirrormaker.wire.client.cluster import Cluster, Endpoint

_PAUSES = 3  # a conversation that pauses more often only repeats itself
_CANCELLATIONS = 50
_MOST_REQUESTS = 1000  # of a conversation
_LONGEST = 5.0  # seconds of a conversation


class EndlessConversation(Exception):
    """The code under test asks again and again, without a pause."""


def cases(recorded: Sequence[Recorded]) -> list[Case]:
    """Return a case for each conversation."""
    everything = [row.answer for row in recorded]
    return [
        Case(
            f"talk-{conversation.name}",
            partial(
                _attempt, conversation, [row for row in recorded if row.conversation == conversation.name], everything
            ),
        )
        for conversation in CONVERSATIONS
    ]


def _attempt(conversation: Conversation, rows: Sequence[Recorded], others: Sequence[bytes], dice: Random) -> Attempt:
    chosen = dice.randrange(len(rows))
    damaged = mutate(rows[chosen].answer, dice, others)
    lasts = dice.random() < 0.3
    answers: dict[int, list[bytes]] = defaultdict(list)
    for number, row in enumerate(rows):
        answers[row.api_key].append(damaged if number == chosen else row.answer)
        # The peer may go on like that: all later answers to this request are the damaged one.
        if lasts and number == chosen:
            answers[row.api_key][-1:] = [damaged] * len(rows)
    return Attempt(damaged, lambda: asyncio.run(talk(conversation, answers)))


async def talk(conversation: Conversation, answers: dict[int, list[bytes]]) -> None:
    """Have a conversation with a peer that gives these answers, by API key. Raise what any of its tasks raises."""
    broker = ScriptedBroker({key: partial(_next, left) for key, left in answers.items()})
    loop = asyncio.get_running_loop()
    escaped: list[BaseException] = []
    loop.set_exception_handler(lambda _loop, context: _note(context, escaped))
    async with serving(partial(_patient_talk, broker)) as port:
        # Whatever address an answer names, nothing but the peer is reached.
        loop.getaddrinfo = partial(_only_the_peer, port)  # type: ignore[method-assign]
        cluster = Cluster(Endpoint((("127.0.0.1", port),), security=conversation.security))
        with _few_pauses(), _known_nonce():
            talking = asyncio.ensure_future(conversation.talk(cluster))
            await asyncio.wait([talking], timeout=_LONGEST)
        cluster.close()
    await _end_all_tasks()
    if len(broker.heard) >= _MOST_REQUESTS:
        raise EndlessConversation(f"{_MOST_REQUESTS} requests")
    if not talking.cancelled():
        talking.result()
    for error in escaped:
        raise error


async def _patient_talk(broker: ScriptedBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests, and after very many of them hang up."""
    if len(broker.heard) >= _MOST_REQUESTS:
        return
    talking = asyncio.ensure_future(broker.talk(reader, writer))
    while not talking.done() and len(broker.heard) < _MOST_REQUESTS:
        await asyncio.wait([talking], timeout=0.05)
    talking.cancel()


async def _end_all_tasks() -> None:
    """Cancel all other tasks, again and again: in Python 3.11 wait_for may lose a cancellation."""
    for _ in range(_CANCELLATIONS):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.1)
    raise EndlessConversation(f"{len(others)} tasks go on although they were cancelled")


def _next(left: list[bytes], _version: int, _body: bytes) -> bytes:
    return left.pop(0) if len(left) > 1 else left[0]


def _note(context: dict[str, Any], escaped: list[BaseException]) -> None:
    error = context.get("exception")
    if error is not None and not isinstance(error, (Enough, asyncio.CancelledError, *ALLOWED)):
        escaped.append(error)


async def _only_the_peer(port: int, _host: str, _port: int, **_: Any) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@contextlib.contextmanager
def _few_pauses() -> Iterator[None]:
    """Make pauses short, and end the conversation after some of them."""
    whole: Callable[..., Any] = asyncio.sleep
    left = _PAUSES

    async def short(delay: float, result: Any = None) -> Any:
        nonlocal left
        if delay > _LONGEST:  # until a login is renewed
            return await whole(delay, result)
        if delay > 0:
            left -= 1
            if left < 0:
                raise Enough
        return await whole(0, result)

    asyncio.sleep = short
    try:
        yield
    finally:
        asyncio.sleep = whole


@contextlib.contextmanager
def _known_nonce() -> Iterator[None]:
    """Make SCRAM choose the nonce that the recorded answers fit."""
    whole = secrets.token_urlsafe
    secrets.token_urlsafe = lambda nbytes=None: NONCE
    try:
        yield
    finally:
        secrets.token_urlsafe = whole
