"""Every codec compared with kafka-python's in both directions, and with damaged data."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import zlib
from collections.abc import Callable

import kafka.codec
import pytest
import snappy
import xxhash
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from mirrormaker.errors import BadCompression
from mirrormaker.wire.records.compression import CODECS, _xxh32, compress, decompress, fix_lz4_header_checksum
from tests.support.batches import GZIP, LZ4, SNAPPY, ZSTD
from tests.support.memory import growth, leaked

Code = Callable[[bytes], bytes]
ENCODE: dict[int, Code] = {
    GZIP: kafka.codec.gzip_encode,
    SNAPPY: kafka.codec.snappy_encode,
    LZ4: kafka.codec.lz4_encode,
    ZSTD: kafka.codec.zstd_encode,
}
DECODE: dict[int, Code] = {
    GZIP: kafka.codec.gzip_decode,
    SNAPPY: kafka.codec.snappy_decode,
    LZ4: kafka.codec.lz4_decode,
    ZSTD: kafka.codec.zstd_decode,
}
KB, MB = 1 << 10, 1 << 20
ENOUGH = 4 * MB
EDGES = [
    0,
    1,
    2,
    15,
    32 * KB - 1,
    32 * KB,
    32 * KB + 1,
    64 * KB - 1,
    64 * KB,
    64 * KB + 1,
    128 * KB,
    MB - 1,
    MB,
    MB + 1,
]
NOISE = random.Random(1).randbytes(MB + 1)
TEXT = (b"".join(b"record %d, " % n for n in range(120_000)))[: MB + 1]

every_codec = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=lambda codec: CODECS[codec])
texts = st.one_of(
    st.binary(max_size=300),
    st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(1, 20_000)),
)


# -- both directions


@every_codec
@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("data", [bytes(MB + 1), TEXT, NOISE], ids=["zeros", "text", "noise"])
def test_sizes_around_every_block_go_both_ways(codec: int, data: bytes, size: int) -> None:
    plain = data[:size]
    assert DECODE[codec](bytes(compress(codec, plain))) == plain
    assert decompress(codec, ENCODE[codec](plain), ENOUGH) == plain
    assert decompress(codec, compress(codec, plain), size) == plain


@every_codec
@given(plain=texts)
def test_anything_goes_both_ways(codec: int, plain: bytes) -> None:
    assert DECODE[codec](bytes(compress(codec, memoryview(plain)))) == plain
    assert decompress(codec, memoryview(ENCODE[codec](plain)), ENOUGH) == plain


@given(texts)
def test_raw_snappy_is_read_as_well(plain: bytes) -> None:
    assert decompress(SNAPPY, snappy.compress(plain), ENOUGH) == plain


@given(texts, st.integers(1, 70_000))
def test_snappy_blocks_may_have_any_size(plain: bytes, block: int) -> None:
    packed = kafka.codec.snappy_encode(plain, xerial_blocksize=max(block, len(plain) // 50))
    assert decompress(SNAPPY, packed, ENOUGH) == plain


def test_snappy_with_its_version_the_wrong_way_round_is_read() -> None:
    """Some brokers write it so."""
    packed = bytearray(kafka.codec.snappy_encode(TEXT))
    packed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(SNAPPY, packed, ENOUGH) == TEXT


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block", [0, 4, 5, 6, 7])
@pytest.mark.parametrize("checked", [True, False])
def test_every_kind_of_lz4_frame_is_read(linked: bool, block: int, checked: bool) -> None:
    packed = kafka.codec.lz4.compress(
        TEXT,
        block_linked=linked,
        block_size=block,
        content_checksum=checked,
        block_checksum=checked,
        store_size=checked,
    )
    assert decompress(LZ4, packed, ENOUGH) == TEXT


def test_zstd_without_its_size_is_read() -> None:
    """Java's streams write it so."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(ZSTD, packer.compress(TEXT) + packer.flush(), ENOUGH) == TEXT


@pytest.mark.parametrize("packed", [zlib.compress(TEXT), gzip.compress(TEXT, 1), gzip.compress(TEXT, 9)])
def test_every_kind_of_gzip_is_read(packed: bytes) -> None:
    assert decompress(GZIP, packed, ENOUGH) == TEXT


@every_codec
def test_what_follows_the_first_stream_is_not_lost(codec: int) -> None:
    """gzip data may have several members."""
    first, second = ENCODE[codec](TEXT[:1000]), ENCODE[codec](TEXT[1000:])
    try:
        found = decompress(codec, first + second, ENOUGH)
    except BadCompression:
        assert codec == SNAPPY  # has no streams
    else:
        assert found == TEXT


# -- damaged data


@every_codec
@given(plain=texts, data=st.data())
def test_data_that_was_cut_short_is_refused(codec: int, plain: bytes, data: st.DataObject) -> None:
    """Snappy marks no end: only its whole blocks are read then."""
    packed = bytes(compress(codec, plain))
    kept = data.draw(st.integers(0, len(packed) - 1))
    try:
        found = decompress(codec, packed[:kept], ENOUGH)
    except BadCompression:
        return
    assert plain.startswith(found)
    assert kept == 0 or codec == SNAPPY


@every_codec
@given(garbage=st.binary(max_size=200), real_start=st.booleans())
@example(b"", False)
@example(b"\xff" * 100, True)
def test_random_bytes_are_refused_and_nothing_else_happens(codec: int, garbage: bytes, real_start: bool) -> None:
    start = bytes(compress(codec, b"start"))[:16] if real_start else b""
    try:
        found = decompress(codec, start + garbage, 1000)
    except BadCompression:
        return
    assert len(found) <= 1000


@every_codec
@given(data=st.data())
def test_damaged_bytes_give_an_answer_or_are_refused(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadCompression):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(codec: int) -> None:
    with pytest.raises(BadCompression, match="does not exist"):
        decompress(codec, b"data", 100)


@every_codec
@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_the_limit_is_exact(codec: int, size: int) -> None:
    packed = compress(codec, TEXT[:size])
    assert len(decompress(codec, packed, size)) == size
    with pytest.raises(BadCompression, match=f"more than {size - 1} bytes"):
        decompress(codec, packed, size - 1)


BOMB = 64 * MB
ALLOWED = MB


def _bombs() -> dict[str, tuple[int, bytes]]:
    """Return 64 MB of zeros compressed by each codec, and data that only claims to be large."""
    zeros = bytes(BOMB)
    block = snappy.compress(bytes(32 * KB))
    xerial = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * (BOMB // (32 * KB))
    claim = b"\xff\xff\xff\xff\x0f"  # 4 GB, as a varint
    window = bytes.fromhex("28b52ffd00") + b"\x88"  # a zstd frame with a window of 128 MB
    return {
        "gzip": (GZIP, gzip.compress(zeros, 1)),
        "gzip, twice": (GZIP, gzip.compress(bytes(100)) + gzip.compress(zeros, 1)),
        "snappy": (SNAPPY, xerial),
        "raw snappy": (SNAPPY, snappy.compress(zeros)),
        "snappy that claims 4 GB": (SNAPPY, claim + b"\0a"),
        "snappy with a block that claims 4 GB": (SNAPPY, xerial[:16] + struct.pack(">i", 7) + claim + b"\0a"),
        "lz4": (LZ4, kafka.codec.lz4_encode(zeros)),
        "lz4, linked": (LZ4, kafka.codec.lz4.compress(zeros, block_size=7, block_linked=True)),
        "zstd": (ZSTD, kafka.codec.zstd_encode(zeros)),
        "zstd in many frames": (ZSTD, kafka.codec.zstd_encode(bytes(64 * KB)) * (BOMB // (64 * KB))),
        "zstd with a large window": (ZSTD, window + b"\x02\0\0" * 1000),
    }


@pytest.fixture(scope="module")
def bombs() -> dict[str, tuple[int, bytes]]:
    return _bombs()


@pytest.mark.parametrize("name", [
    "gzip", "gzip, twice", "snappy", "raw snappy", "snappy that claims 4 GB", "snappy with a block that claims 4 GB",
    "lz4", "lz4, linked", "zstd", "zstd in many frames", "zstd with a large window",
])  # fmt: skip
def test_a_bomb_is_refused_before_it_fills_the_memory(bombs: dict[str, tuple[int, bytes]], name: str) -> None:
    codec, packed = bombs[name]

    def run() -> None:
        with pytest.raises(BadCompression):
            decompress(codec, packed, ALLOWED)

    # There is room for blocks of 4 MB, and for parts that were decompressed before.
    assert growth(run) < 24 * MB


@every_codec
def test_damaged_data_leaves_no_memory_behind(codec: int) -> None:
    """An error in the middle of a stream must give back what was allocated for the result."""
    whole = bytes(compress(codec, NOISE))
    damaged = [whole[:-100], whole[: len(whole) // 2] + bytes(1000)]

    def run() -> None:
        for data in damaged * 3:
            with pytest.raises(BadCompression):
                decompress(codec, data, 16 * MB)

    run()
    assert leaked(run) < 64 * KB


def test_snappy_data_of_countless_blocks_is_refused() -> None:
    """Each block costs a call. Clients write blocks of 1 KB and more, of which only the last one is smaller."""
    block = snappy.compress(b"")
    packed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 100_000
    with pytest.raises(BadCompression, match="blocks"):
        decompress(SNAPPY, packed, ENOUGH)


@given(st.lists(texts, max_size=40))
def test_snappy_blocks_may_be_small_and_empty(parts: list[bytes]) -> None:
    """Some clients end a block whenever they are told to flush."""
    packed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for part in parts:
        block = snappy.compress(part)
        packed += struct.pack(">i", len(block)) + block
    assert decompress(SNAPPY, packed, ENOUGH * 2) == b"".join(parts)


# -- LZ4 in message format 0


@given(texts)
def test_the_checksum_of_early_clients_is_fixed(plain: bytes) -> None:
    broken = kafka.codec.lz4_encode_old_kafka(plain)
    fixed = bytes(fix_lz4_header_checksum(broken))
    assert kafka.codec.lz4_decode(fixed) == plain
    assert decompress(LZ4, fixed, ENOUGH) == plain
    assert (fixed[:6], fixed[7:]) == (broken[:6], broken[7:])


@given(texts, st.booleans())
def test_a_sound_frame_is_not_changed(plain: bytes, with_size: bool) -> None:
    sound = kafka.codec.lz4.compress(plain, store_size=with_size)
    assert bytes(fix_lz4_header_checksum(sound)) == sound


@given(st.binary(max_size=20))
def test_fixing_what_is_no_frame_does_no_harm(garbage: bytes) -> None:
    assert len(fix_lz4_header_checksum(garbage)) == len(garbage)


@given(st.binary(max_size=15))
def test_the_checksum_is_xxh32(data: bytes) -> None:
    assert _xxh32(data) == xxhash.xxh32(data).intdigest()
