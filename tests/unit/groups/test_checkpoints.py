"""MirrorMaker 2's checkpoints and heartbeats, byte for byte, and the memory that is made of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import BadFrame
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints, encode_heartbeat, topic_name
from mirrormaker.groups.group_survey import Survey, as_remembered
from mirrormaker.model.group_sync import Memory, Presence
from mirrormaker.wire.client.group_offsets import ListedGroup
from tests.support.keyed_log import KeyedLog

# Written down from org.apache.kafka.connect.mirror.Checkpoint: STRING is an int16 length and UTF-8.
KEY = b"\0\5group" + b"\0\6orders" + b"\0\0\0\7"
VALUE = b"\0\0" + b"\0\0\0\0\0\0\0\x64" + b"\0\0\0\0\0\0\0\xc8" + b"\0\4meta"


@pytest.mark.parametrize(("is_share", "packed"), [(None, b"\0"), (False, b"\1"), (True, b"\2")])
def test_a_row_is_mirror_maker_2s_with_three_fields_more(is_share: bool | None, packed: bytes) -> None:
    row = Checkpoint("group", "orders", 7, 100, 200, "meta", before=5, mark=258, is_share=is_share)
    key, value = row.encode()
    assert (key, value) == (KEY, VALUE + b"\0\0\0\0\0\0\0\5" + b"\0\0\1\2" + packed)
    assert Checkpoint.decode(key, value) == row
    # Earlier versions wrote the first two of them, or the first one alone.
    assert Checkpoint.decode(key, value[:-1]) == replace(row, is_share=None)
    assert Checkpoint.decode(key, value[:-5]) == replace(row, mark=0, is_share=None)


def test_the_type_of_a_group_is_remembered() -> None:
    checkpoints = Checkpoints(mock.Mock(), "east")
    for is_share in (True, None):
        checkpoints._take(Checkpoint("g", "t", 0, 1, 2, is_share=is_share), 0.0)
        assert checkpoints.is_share == {"g": True}
    checkpoints._take(Checkpoint("g", "t", 1, 1, 2, is_share=False), 0.0)
    assert checkpoints.is_share == {"g": False}


@pytest.mark.parametrize(
    ("is_share", "on_target", "presence"),
    [
        pytest.param(True, None, Presence.FREE, id="a share group that the target lacks is created as one"),
        pytest.param(True, "classic", Presence.OTHER_KIND, id="a share group is not written over another one"),
        pytest.param(True, "share", Presence.FREE, id="a share group on both sides"),
        pytest.param(False, "share", Presence.OTHER_KIND, id="consumers do not write over a share group"),
        pytest.param(None, "share", Presence.FREE, id="without a type the target tells it"),
        pytest.param(None, None, Presence.FREE, id="without a type, a group is one of consumers"),
    ],
)
def test_a_group_of_a_source_that_is_gone_keeps_its_type(
    is_share: bool | None, on_target: str | None, presence: Presence
) -> None:
    there = None if on_target is None else ListedGroup("g", 1, type=on_target)
    here = as_remembered("g", is_share, there)
    assert Survey({"g": here}, {} if there is None else {"g": there}, {}, {}).presence("g") is presence
    assert here.is_share is (on_target == "share" if is_share is None else is_share)


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
            # The same offset was written again, and everybody knows when.
            for known in (ours, others):
                assert time.time() - 60 < known.memory["g", "t"][0].written_at < time.time() + 60
            with mock.patch("time.time", return_value=time.time() + 9000):
                await others.write([Checkpoint("g", "t", 0, 1, 7, before=7, mark=4)])
            await ours.refresh()
            for known in (ours, others):
                assert time.time() + 8000 < known.memory["g", "t"][0].written_at

    asyncio.run(play())


def test_offsets_whose_commit_failed_are_due_again_at_once() -> None:
    checkpoints = Checkpoints(mock.Mock(), "east")
    for partition in (0, 1):
        checkpoints._take(Checkpoint("g", "t", partition, 1, 2), 1000.0)
    checkpoints._take(Checkpoint("g", "other", 0, 1, 2), 1000.0)
    checkpoints.note_failed("g", "t")
    checkpoints.note_failed("g", "unknown")
    assert [row.written_at for row in checkpoints.memory["g", "t"].values()] == [0.0, 0.0]
    assert checkpoints.memory["g", "other"][0].written_at == 1000.0
