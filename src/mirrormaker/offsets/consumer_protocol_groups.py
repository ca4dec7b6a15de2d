"""ConsumerGroupDescribe: the members of a group that uses Kafka 4's own protocol (`group.protocol=consumer`).

kafka-python does not have this request yet, so it is encoded and decoded here.
"""

from __future__ import annotations

import asyncio
import struct

from mirrormaker.errors import ConnectionLost
from mirrormaker.wire.protocol.codec import Reader, TopicPartition, varint
from mirrormaker.wire.transport.connection import Connection

API_KEY, VERSION = 69, 0
# Of the answer: members, their topics, and all partitions of a large cluster twice, as they are and as they should be.
_MOST_ELEMENTS = 1 << 18

_INT, _SHORT, _UUID_BYTES = struct.Struct(">i"), struct.Struct(">h"), 16


async def owners(connection: Connection, group: str, timeout: float) -> dict[TopicPartition, str]:
    """Return which member has which partition; empty if the group uses another protocol or does not exist."""
    if API_KEY not in connection.versions:
        return {}
    name = group.encode()
    # An array of one group, then no authorized operations, then no tagged fields.
    body = varint(2) + varint(len(name) + 1) + name + b"\0\0"
    response = connection.request(API_KEY, VERSION, True, [body])
    try:
        async with asyncio.timeout(timeout):
            return read(await asyncio.shield(response))
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise ConnectionLost(f"{connection} did not answer within {timeout:g} s") from error


def read(data: memoryview) -> dict[TopicPartition, str]:
    """Return the owners in a response about one group; a group with an error has no members."""
    frame, found = Reader(data, True, _MOST_ELEMENTS), {}
    frame.take(_INT)  # throttle time
    # One group was asked for.
    for _ in range(frame.count_within(1)):
        frame.take(_SHORT)  # error code
        for _field in ("error message", "group id", "group state"):
            frame.string()
        frame.take(_INT)  # group epoch
        frame.take(_INT)  # assignment epoch
        frame.string()  # assignor name
        for _member in range(frame.count()):
            member, keys = _read_member(frame)
            found.update(dict.fromkeys(keys, member))
        frame.take(_INT)  # authorized operations
        frame.skip_tags()
    return found


def _read_member(frame: Reader) -> tuple[str, list[TopicPartition]]:
    member = frame.string() or ""
    for _field in ("instance id", "rack id"):
        frame.string()
    frame.take(_INT)  # member epoch
    client = frame.string() or ""
    frame.string()  # client host
    for _topic in range(frame.count()):
        frame.string()  # name of a subscribed topic
    frame.string()  # regular expression of subscribed topics
    assigned = _read_assignment(frame)
    _read_assignment(frame)  # target assignment
    frame.skip_tags()
    # Older protocols make member ids from the client id; this one's ids are random.
    return f"{client}-{member}", assigned


def _read_assignment(frame: Reader) -> list[TopicPartition]:
    keys = []
    for _topic in range(frame.count()):
        frame.slice(_UUID_BYTES)  # topic id
        topic = frame.string() or ""
        keys += [(topic, frame.take(_INT)[0]) for _ in range(frame.count())]
        frame.skip_tags()
    frame.skip_tags()
    return keys
