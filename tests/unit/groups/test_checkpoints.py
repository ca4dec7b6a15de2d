"""MirrorMaker 2's checkpoints and heartbeats, byte for byte, and the memory that is made of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import BadFrame
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints, encode_heartbeat, topic_name
from mirrormaker.model.group_sync import Memory
from tests.support.keyed_log import KeyedLog

# Written down from org.apache.kafka.connect.mirror.Checkpoint: STRING is an int16 length and UTF-8.
KEY = b"\0\5group" + b"\0\6orders" + b"\0\0\0\7"
VALUE = b"\0\0" + b"\0\0\0\0\0\0\0\x64" + b"\0\0\0\0\0\0\0\xc8" + b"\0\4meta"


def test_a_row_is_mirror_maker_2s_with_two_fields_more() -> None:
    row = Checkpoint("group", "orders", 7, 100, 200, "meta", before=5, mark=258)
    key, value = row.encode()
    assert (key, value) == (KEY, VALUE + b"\0\0\0\0\0\0\0\5" + b"\0\0\1\2")
    assert Checkpoint.decode(key, value) == row
    # Earlier versions wrote the first of them alone.
    assert Checkpoint.decode(key, value[:-4]) == replace(row, mark=0)


def test_a_row_of_mirror_maker_2_is_read() -> None:
    assert Checkpoint.decode(KEY, VALUE) == Checkpoint("group", "orders", 7, 100, 200, "meta")


def test_a_heartbeat_is_mirror_maker_2s() -> None:
    assert encode_heartbeat("a", "bö", 258) == (b"\0\1a\0\3b\xc3\xb6", b"\0\0\0\0\0\0\0\0\1\2")


def test_a_negative_offset_is_never_written() -> None:
    for offsets in ((-1, 5), (5, -1)):
        with pytest.raises(ValueError, match="negative"):
            Checkpoint("g", "t", 0, *offsets).encode()


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_foreign_bytes_are_refused_or_read_and_nothing_else(key: bytes, value: bytes) -> None:
    try:
        Checkpoint.decode(key, value)
    except BadFrame:
        return


def test_the_last_row_counts_and_another_process_sees_it() -> None:
    log = KeyedLog(topic_name("east"))

    async def play() -> None:
        async with log.running() as cluster:
            await cluster.refresh()
            ours, others = Checkpoints(cluster, "east"), Checkpoints(cluster, "east")
            assert await others.open()
            await ours.write([Checkpoint("g", "t", 0, 1, 2), Checkpoint("g", "t", 1, 3, 4, before=9)])
            await ours.write([Checkpoint("g", "t", 0, 1, 7, before=2, mark=3)])
            assert ours.memory == {("g", "t"): {0: Memory(7, 2, 2, 3), 1: Memory(4, 9)}}
            await others.refresh()
            assert others.memory == ours.memory
            await ours.refresh()
            ours.confirm("g", "t", 1, 9)
            ours.confirm("g", "t", 0, 7)
            await ours.refresh()
            assert ours.memory == {("g", "t"): {0: Memory(7, mark=3), 1: Memory(4, 9)}}
            await others.write([Checkpoint("g", "t", 0, 1, 7, before=7, mark=4)])
            await ours.refresh()
            assert ours.memory["g", "t"][0] == Memory(7, mark=4)

    asyncio.run(play())
