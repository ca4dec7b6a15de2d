"""Which batches can be forwarded as they are, without decompressing them."""

from __future__ import annotations

import struct

from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.compression import LZ4, NONE, ZSTD
from mirrormaker.worker.lanes import can_forward
from tests.support.batches import Record, Written, write_batch

RECORD = Record(0, b"key", b"value")
LONG = Record(0, b"key", b"value" * 100)  # compression makes it smaller, so it is used


def data(offset: int, producer: int, *, transactional: bool = True, count: int = 1) -> Written:
    return write_batch(
        [RECORD] * count,
        base_offset=offset,
        transactional=transactional,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )


def as_is(written: Written, max_bytes: int = 1 << 20, codec: int | None = None, *, takes_zstd: bool = True) -> bool:
    return can_forward(Batch(memoryview(written.data)), max_bytes, codec, takes_zstd)


def test_an_ordinary_batch_goes_as_it_is() -> None:
    assert as_is(data(5, -1, transactional=False, count=3))


def test_a_batch_of_exactly_the_allowed_size_goes_as_it_is() -> None:
    written = data(0, 1)
    assert as_is(written, len(written.data))
    assert not as_is(written, len(written.data) - 1)


def test_a_batch_with_gaps_must_be_unpacked() -> None:
    holes = bytearray(data(0, 1, count=3).data)
    struct.pack_into(">i", holes, 57, 2)  # three offsets, two records
    assert not can_forward(Batch(memoryview(holes)), 1 << 20, None)


def test_append_times_of_the_source_must_be_unpacked() -> None:
    assert not as_is(write_batch([RECORD], attributes=0x08))


def test_another_compression_than_the_wanted_one_must_be_unpacked() -> None:
    assert as_is(write_batch([LONG], codec=LZ4), codec=LZ4)
    assert not as_is(write_batch([LONG], codec=LZ4), codec=NONE)
    assert as_is(write_batch([RECORD]), codec=NONE)


def test_zstd_must_be_unpacked_for_a_target_that_does_not_know_it() -> None:
    assert as_is(write_batch([LONG], codec=ZSTD))
    assert not as_is(write_batch([LONG], codec=ZSTD), takes_zstd=False)
    assert as_is(write_batch([LONG], codec=LZ4), takes_zstd=False)
