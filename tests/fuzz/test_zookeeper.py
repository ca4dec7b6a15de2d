"""Sessions with a ZooKeeper that sends damaged frames: each ends in one error of our own, and no thread shows a traceback."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from fuzz.recording import ZOOKEEPER, load

from fuzz import zookeeper_frames
from mirrormaker.errors import ClusterError
from mirrormaker.zookeeper.ensemble import ZooKeeper

ZNODES = {row.request.decode(): row.answer for row in load() if row.conversation == ZOOKEEPER}
_LENGTH, _XID, _ERROR, _BODY = 0, 4, 16, 20  # places in a frame


def patched(at: int, value: int) -> Callable[[bytes], bytes]:
    """Return a function that writes a number into a frame."""
    return lambda frame: frame[:at] + struct.pack(">i", value) + frame[at + 4 :]


def cut(frame: bytes) -> bytes:
    return struct.pack(">i", 10) + frame[4:14]


def test_the_answers_of_the_server_are_answers_while_they_are_whole() -> None:
    """Otherwise damaged ones would never reach the code behind the first check."""
    answers = zookeeper_frames.talk(ZNODES, may_fail=False)
    assert answers[1:3] == [[0, 1], 1]
    assert answers[-1] == {("orders", 0): 7, ("orders", 1): 9}


@pytest.mark.parametrize(
    "damage",
    [patched(_XID, 77), patched(_ERROR, -9999), patched(_BODY, 1 << 20), patched(_XID, -1), cut],
    ids=["another's response", "an unknown error", "more names than there are", "a watch", "a header that is cut"],
)
def test_a_damaged_response_is_one_error(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ClusterError):
        zookeeper_frames.talk(ZNODES, [lambda zookeeper: zookeeper.brokers()], 1, damage, may_fail=False)


@pytest.mark.parametrize("damage", [patched(_LENGTH, 1 << 30), cut, lambda frame: bytes(len(frame))])
def test_a_damaged_greeting_is_no_session(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ClusterError):
        zookeeper_frames.talk(ZNODES, [lambda zookeeper: zookeeper.brokers()], 0, damage, may_fail=False)


def test_a_name_that_is_not_utf_8_is_one_error() -> None:
    with pytest.raises(ClusterError):
        zookeeper_frames.talk(
            ZNODES, [lambda zookeeper: zookeeper.brokers()], 1, lambda frame: frame[:-1] + b"\xff", may_fail=False
        )


def test_a_znode_without_content_and_names_that_cannot_be_are_left_out() -> None:
    """A null text has the length -1."""
    names = [b"1", b"..", b"a/b", b"9" * 5000, "\u0663".encode()]
    listed = struct.pack(">i", 6) + b"".join(struct.pack(">i", len(name)) + name for name in names) + b"\xff" * 4

    def listing(frame: bytes) -> bytes:
        body = frame[_XID:_BODY] + listed
        return struct.pack(">i", len(body)) + body

    def null(frame: bytes) -> bytes:
        return frame[:_BODY] + b"\xff" * 4 + frame[_BODY + 4 :]

    def names_below(zookeeper: ZooKeeper) -> object:
        return list(zookeeper.brokers())

    assert zookeeper_frames.talk(ZNODES, [names_below], 1, listing, may_fail=False) == [[1]]
    assert zookeeper_frames.talk(ZNODES, [lambda it: it.topic_settings("orders")], 1, null, may_fail=False) == [{}]
