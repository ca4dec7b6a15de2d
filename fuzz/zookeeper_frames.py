"""Frames of ZooKeeper: a server that answers from recorded znodes, with one damaged frame, and real sessions with it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

from fuzz.group_conversations import MIRROR, ORDERS
from fuzz.mutations import mutate
from fuzz.recording import ZOOKEEPER, Recorded
from fuzz.runner import ALLOWED, Attempt, Case
from mirrormaker.zookeeper.ensemble import ZooKeeper
from mirrormaker.zookeeper.registrations import broker_addresses

_EXISTS, _GET_DATA, _GET_CHILDREN, _PING, _CLOSE = 3, 4, 8, 11, -11  # operations
_NO_NODE = -101
_HEADER, _REPLY = struct.Struct(">ii"), struct.Struct(">iqi")  # xid and operation; xid, zxid and error
_INT = struct.Struct(">i")
# Creation and change: zxids, then times in ms; versions of content, children and ACL; owner, sizes, zxid of the children.
_STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 1000, 2000, 0, 1, 0, 0, 5, 0, 3)
_CONNECTED = struct.pack(">iiqi", 0, 6000, 0x1234, 16) + bytes(16) + b"\0"
_TIMEOUT = 0.15  # seconds for each response
_FRAMES = 12  # of a session; nearly all have that many
_QUESTIONS: tuple[Callable[[ZooKeeper], object], ...] = (
    lambda zookeeper: broker_addresses(zookeeper.brokers(), "PLAINTEXT"),
    lambda zookeeper: zookeeper.partitions(ORDERS),
    lambda zookeeper: zookeeper.leader(ORDERS, 0),
    lambda zookeeper: zookeeper.topic_settings(ORDERS),
    lambda zookeeper: zookeeper.has_group(MIRROR),
    lambda zookeeper: zookeeper.group_topics(MIRROR),
    lambda zookeeper: zookeeper.owners(MIRROR),
    lambda zookeeper: zookeeper.current_offsets(MIRROR),
)

Damage = Callable[[bytes], bytes]


def cases(recorded: Sequence[Recorded]) -> list[Case]:
    """Return the one case."""
    znodes = {row.request.decode(): row.answer for row in recorded if row.conversation == ZOOKEEPER}
    return [Case("zookeeper-frames", partial(_attempt, znodes))]


def _attempt(znodes: Mapping[str, bytes], dice: Random) -> Attempt:
    order = list(_QUESTIONS)
    dice.shuffle(order)
    at, seed = dice.randrange(_FRAMES), dice.random()
    size = _INT.size if dice.random() < 0.9 else 0  # seldom the length of the frame too

    def damage(frame: bytes) -> bytes:
        body = mutate(frame[size:], Random(seed), list(znodes.values()))
        return (_INT.pack(len(body)) if size else b"") + body

    def run() -> None:
        talk(znodes, order, at, damage)

    return Attempt(b"", run)


def talk(
    znodes: Mapping[str, bytes],
    questions: Sequence[Callable[[ZooKeeper], object]] = _QUESTIONS,
    at: int = -1,
    damage: Damage = bytes,
    *,
    may_fail: bool = True,
) -> list[object]:
    """Ask everything that the program asks ZooKeeper for, with frame `at` damaged; return the answers."""
    escaped: list[BaseException] = []
    answers: list[object] = []
    allowed = ALLOWED if may_fail else ()
    before = threading.excepthook
    threading.excepthook = lambda failed: escaped.append(failed.exc_value or RuntimeError())
    try:
        with _serving(znodes, at, damage) as address, suppress(*allowed), ZooKeeper(address, _TIMEOUT) as zookeeper:
            answers += [ask(zookeeper) for ask in questions]
    finally:
        threading.excepthook = before
        for error in escaped:
            raise error
    return answers


@contextmanager
def _serving(znodes: Mapping[str, bytes], at: int, damage: Damage) -> Iterator[str]:
    """Answer every connection from the znodes, until the end."""
    listening, talking = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def accept() -> None:
        with suppress(OSError):
            while True:
                talking.append(listening.accept()[0])
                threading.Thread(target=_serve, args=(talking[-1], znodes, at, damage), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        for each in (listening, *talking):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        thread.join()


def _serve(talking: socket.socket, znodes: Mapping[str, bytes], at: int, damage: Damage) -> None:
    with suppress(OSError, struct.error), talking.makefile("rb") as heard:
        answer = _CONNECTED
        heard.read(_INT.unpack(heard.read(_INT.size))[0])
        number = 0
        while True:
            frame = _INT.pack(len(answer)) + answer
            talking.sendall(damage(frame) if number == at else frame)
            number += 1
            request = heard.read(_INT.unpack(heard.read(_INT.size))[0])
            answer = _answer(request, znodes)


def _answer(request: bytes, znodes: Mapping[str, bytes]) -> bytes:
    xid, operation = _HEADER.unpack_from(request)
    if operation in (_PING, _CLOSE):
        return _REPLY.pack(xid, 9, 0)
    (size,) = _INT.unpack_from(request, _HEADER.size)
    path = request[_HEADER.size + _INT.size :][:size].decode()
    if path not in znodes:
        return _REPLY.pack(xid, 9, _NO_NODE)
    if operation == _EXISTS:
        body = _STAT
    elif operation == _GET_DATA:
        body = _text(znodes[path]) + _STAT
    else:
        below = [name[len(path) + 1 :].encode() for name in znodes if name.rpartition("/")[0] == path]
        body = _INT.pack(len(below)) + b"".join(map(_text, below))
    return _REPLY.pack(xid, 9, 0) + body


def _text(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
