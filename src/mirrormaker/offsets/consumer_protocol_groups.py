"""ConsumerGroupDescribe, framed by hand: who has what in a group of Kafka 4's own protocol (`group.protocol=consumer`).

kafka-python does not have this request yet.
"""

from __future__ import annotations

import asyncio
import struct

from mirrormaker.errors import ConnectionLost
from mirrormaker.offsets.group_lag import Key
from mirrormaker.wire.protocol.codec import Reader, varint
from mirrormaker.wire.transport.connection import Connection

API_KEY, VERSION = 69, 0

_INT, _SHORT, _ID = struct.Struct(">i"), struct.Struct(">h"), 16


async def owners(connection: Connection, group: str, timeout: float) -> dict[Key, str]:
    """Which member has which partition; nobody if it is no such group."""
    if API_KEY not in connection.versions:
        return {}
    name = group.encode()
    body = varint(2) + varint(len(name) + 1) + name + b"\0\0"  # one group, no authorized operations, no tags
    answer = connection.request(API_KEY, VERSION, True, [body])
    try:
        return read(await asyncio.wait_for(asyncio.shield(answer), timeout))
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise ConnectionLost(f"{connection} did not answer within {timeout:g} s") from error


def read(data: memoryview) -> dict[Key, str]:
    """The owners in an answer about one group; errors are groups without members."""
    frame, found = Reader(data, True), {}
    frame.take(_INT)  # throttled for
    for _ in range(frame.length()):
        frame.take(_SHORT)  # error
        for _text in ("error message", "group", "state"):
            frame.string()
        frame.take(_INT), frame.take(_INT)  # epochs of group and assignment
        frame.string()  # assignor
        for _member in range(frame.length()):
            member, keys = _read_member(frame)
            found.update(dict.fromkeys(keys, member))
        frame.take(_INT)  # authorized operations
        frame.skip_tags()
    return found


def _read_member(frame: Reader) -> tuple[str, list[Key]]:
    member = frame.string() or ""
    for _text in ("instance", "rack"):
        frame.string()
    frame.take(_INT)  # epoch
    client = frame.string() or ""
    frame.string()  # host
    for _topic in range(frame.length()):  # subscribed to
        frame.string()
    frame.string()  # or to a pattern
    has = _read_assignment(frame)
    _read_assignment(frame)  # what it is going to have
    frame.skip_tags()
    return f"{client}-{member}", has  # the way that older protocols name a member; this one's id is but a number


def _read_assignment(frame: Reader) -> list[Key]:
    found = []
    for _topic in range(frame.length()):
        frame.slice(_ID)
        topic = frame.string() or ""
        found += [(topic, frame.take(_INT)[0]) for _ in range(frame.length())]
        frame.skip_tags()
    frame.skip_tags()
    return found
