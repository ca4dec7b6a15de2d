"""Message sets of formats 0 and 1 that were made to cost memory or time, or to move a position the wrong way."""

from __future__ import annotations

import struct

import kafka.codec
import pyarrow as pa
import pytest

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.legacy import to_message_set, unpack
from tests.support.batches import GZIP, LZ4, NONE, NOW, SNAPPY, ZSTD, Record, write_batch
from tests.support.memory import growth, peak
from tests.support.messages import stamp_message_crc, wrap_messages, write_messages

LIMIT = 64 << 20


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_bomb_in_a_wrapper_is_refused_before_it_fills_the_memory(magic: int, codec: int) -> None:
    packed = wrap_messages(bytes(32 << 20), magic, codec)

    def run() -> None:
        with pytest.raises(CorruptBatch, match="more than"):
            list(unpack(memoryview(packed), 1 << 20))

    assert growth(run) < 24 << 20


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_because_these_formats_do_not_have_it(magic: int) -> None:
    """Otherwise a few bytes could stand for gigabytes where no broker or client has ever seen any."""
    data = bytearray(
        write_messages(
            [Record(NOW, None, kafka.codec.zstd_encode(write_messages([Record(NOW, None, b"v")], magic)))], magic
        )
    )
    data[17] |= ZSTD
    stamp_message_crc(data)
    with pytest.raises(CorruptBatch, match="zstd"):
        list(unpack(memoryview(data), LIMIT))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_of_many_bombs_takes_the_memory_of_one(magic: int) -> None:
    """Each wrapper alone stays within the limit: all of them together would take 120 MB."""
    packed, message = bytearray(), bytearray(write_messages([Record(NOW, None, bytes(4 << 20))], magic))
    for offset in range(30):
        if magic == 0:
            # Format 0 has offsets of the log inside of its wrappers.
            struct.pack_into(">q", message, 0, offset)
        packed += wrap_messages(bytes(message), magic, LZ4, offset)
    list(unpack(memoryview(wrap_messages(bytes(message), magic, LZ4, 99)), 8 << 20))
    before = pa.total_allocated_bytes()
    held: list[int] = []

    def run() -> None:
        for records, _ in unpack(memoryview(packed), 8 << 20):
            held.append(pa.total_allocated_bytes() - before)
            assert len(records) == 1

    assert peak(run) < 16 << 20
    assert max(held) < 32 << 20
    assert len(held) == 30


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_countless_tiny_messages_come_in_pieces_of_bounded_size(magic: int, codec: int) -> None:
    count = 40_000
    log = bytearray(write_messages([Record(NOW, None, None)], magic) * count)
    size = len(log) // count
    for number in range(count):
        struct.pack_into(">q", log, number * size, number)
    data = memoryview(log if codec == NONE else wrap_messages(bytes(log), magic, codec, offset=count - 1))
    found: list[int] = []
    most = shares = 0

    def run() -> None:
        nonlocal most, shares
        for records, share in unpack(data, 64 << 20):
            most, shares = max(most, len(records)), shares + share
            found.extend(records.offsets[[0, -1]].tolist() if len(records) else [])

    # 300 bytes for each of 2^15 messages, and what was decompressed.
    assert peak(run) < 20 << 20
    assert most <= 1 << 15
    assert found[0] == 0 and found[-1] == count - 1
    assert all(after == before + 1 for before, after in zip(found[1::2], found[2::2], strict=False))
    assert 0.9 * len(data) < shares <= len(data)


@pytest.mark.parametrize("offsets", [(5, 5), (6, 5), (5, 4), (1 << 40, 3)])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_offsets_that_count_backwards_are_refused(offsets: tuple[int, int], codec: int) -> None:
    """A position that moved backwards would lose or double records."""
    one, other = (write_messages([Record(NOW, None, b"v")], 1, base_offset=offset) for offset in offsets)
    data = one + other if codec == NONE else wrap_messages(one + other, 1, codec, offset=1 << 41)
    with pytest.raises(CorruptBatch, match="do not increase"):
        list(unpack(memoryview(data), LIMIT))
    sets = [wrap_messages(write_messages([Record(NOW, None, b"v")], 1), 1, GZIP, offset=offset) for offset in offsets]
    with pytest.raises(CorruptBatch, match="do not increase"):
        list(unpack(memoryview(b"".join(sets)), LIMIT))


def test_a_batch_too_large_to_be_converted_for_an_old_broker_is_refused_before_it_is_unpacked() -> None:
    """The mirror splits a batch that is refused, and sends the parts."""
    many = bytearray(write_batch([Record(NOW, None, None)] * 3).data)
    struct.pack_into(">i", many, 57, 1_000_000)
    large = write_batch([Record(NOW, None, bytes(20 << 20))] * 2, codec=GZIP).data
    for data in (bytes(many), large):
        with pytest.raises(CorruptBatch):
            to_message_set(Batch(memoryview(data)), 1)
    single = write_batch([Record(NOW, None, bytes(40 << 20))], codec=GZIP).data
    assert len(to_message_set(Batch(memoryview(single)), 1)) < 1 << 20
