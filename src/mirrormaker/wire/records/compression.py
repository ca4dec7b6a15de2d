"""Kafka's compression codecs: compress as Kafka's Java client does, and decompress with a limit on the result."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa

from mirrormaker.errors import BadCompression, BadVarint
from mirrormaker.wire.protocol.codec import read_varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)  # as in a batch's attributes
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Bytes = bytes | bytearray | memoryview

# The format of Java's SnappyOutputStream: a magic, two version numbers, then blocks with their lengths. Some clients write
# raw snappy instead, which is a single block without any of it.
_XERIAL = struct.Struct(">8sii")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_BLOCK = 32 << 10
# Each block costs a call, so data of countless tiny blocks is refused: so many may have any size, and the bytes of more
# blocks than that must be this many on average. Java's smallest block is 1 KB.
_FREE_BLOCKS, _MIN_AVERAGE_BLOCK = 10_000, 256
# An LZ4 frame as Kafka's Java client writes it: independent blocks of 64 KB, no checksums. That client cannot read linked
# blocks, which other libraries write by default.
_LZ4_HEAD = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31  # marks a block that is not compressed because that would not make it smaller
_LENGTH, _LITTLE_LENGTH = struct.Struct(">i"), struct.Struct("<I")
_PRIME_32 = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def decompress(codec: int, data: Bytes, limit: int) -> Bytes:
    """Return the decompressed data. Never use much more memory than `limit`, whatever size the data claims.

    Raise BadCompression if the data is damaged or decompresses to more than `limit` bytes.
    """
    try:
        if codec == GZIP:
            return _decompress_gzip(data, limit)
        if codec == SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        if codec == LZ4:
            return _decompress_stream("lz4", data, limit)
        if codec == ZSTD:
            return _decompress_stream("zstd", data, limit)
    except (OSError, zlib.error, struct.error, BadVarint, pa.ArrowException) as error:
        raise BadCompression(f"{CODECS[codec]} data does not decompress: {str(error).splitlines()[0]}") from error
    raise BadCompression(f"compression codec {codec} does not exist")


def compress(codec: int, data: Bytes) -> Bytes:
    """Return the compressed data, in the format that Kafka's Java client writes."""
    if codec == GZIP:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _compress_snappy(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(memoryview(data))
    if codec == ZSTD:
        return memoryview(pa.Codec("zstd", compression_level=3).compress(data))
    raise ValueError(f"compression codec {codec} does not exist")


def _too_large(limit: int) -> BadCompression:
    return BadCompression(f"the data decompresses to more than {limit} bytes, the limit that buffer.memory sets")


def _decompress_gzip(data: Bytes, limit: int) -> Bytes:
    decompressor = zlib.decompressobj(wbits=47)  # gzip or zlib
    plain = decompressor.decompress(data, limit + 1)
    if len(plain) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        raise BadCompression("gzip data is cut short")
    # More than one stream is allowed, but rare. zlib stops after the first; Arrow reads all of them.
    if decompressor.unused_data:
        return _decompress_stream("gzip", data, limit)
    return plain


def _decompress_stream(name: str, data: Bytes, limit: int) -> Bytes:
    stream: Any = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)
    # A first read of six times the compressed size is enough for most data.
    step = max(64 << 10, 6 * len(data))
    parts: list[memoryview] = []
    size = 0
    while True:
        # `stream.read` would never free its bytes if it raises, and damaged data makes it raise.
        part = memoryview(stream.read_buffer(min(step, limit + 1 - size))).cast("B")
        if not part:
            return b"".join(parts) if len(parts) != 1 else parts[0]
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        step *= 2


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if len(data) < _XERIAL.size or data[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit)
    blocks, done, at = [], 0, _XERIAL.size
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size < 0 or at + size > len(data):
            raise BadCompression("a snappy block is cut short")
        blocks.append(_decompress_snappy_block(data[at : at + size], limit, done))
        done += len(blocks[-1])
        if len(blocks) > _FREE_BLOCKS and done < len(blocks) * _MIN_AVERAGE_BLOCK:
            raise BadCompression("snappy data consists of too many tiny blocks")
        at += size
    return b"".join(blocks)


def _decompress_snappy_block(data: memoryview, limit: int, done: int = 0) -> bytes:
    """Decompress a block. The blocks before it take `done` bytes of the limit."""
    size, _ = read_varint(data, 0)
    if done + size > limit:
        raise _too_large(limit)
    if size == 0:
        return b""
    plain: bytes = pa.Codec("snappy").decompress(data, size, asbytes=True)
    return plain


def _compress_snappy(data: memoryview) -> bytes:
    codec, out = pa.Codec("snappy"), [_XERIAL.pack(_XERIAL_MAGIC, 1, 1)]
    for at in range(0, len(data) or 1, _SNAPPY_BLOCK):
        block = codec.compress(data[at : at + _SNAPPY_BLOCK], asbytes=True)
        out += [_LENGTH.pack(len(block)), block]
    return b"".join(out)


def _compress_lz4(data: memoryview) -> bytes:
    codec = pa.Codec("lz4_raw")
    out: list[Bytes] = [_LZ4_HEAD]
    for at in range(0, len(data), _LZ4_BLOCK):
        plain = data[at : at + _LZ4_BLOCK]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            out += [_LITTLE_LENGTH.pack(len(block)), block]
        else:
            out += [_LITTLE_LENGTH.pack(len(plain) | _LZ4_STORED), plain]
    out.append(_LITTLE_LENGTH.pack(0))
    return b"".join(out)


def fix_lz4_header_checksum(data: Bytes) -> Bytes:
    """Return an LZ4 frame of message format 0 with the right checksum.

    The Java clients of that time wrongly included the magic in the checksum of the frame's header.
    """
    if len(data) < 7:
        return data
    has_content_size = bool(data[4] & 0x08)
    end = 6 + 8 * has_content_size
    fixed = bytearray(data)
    if end < len(fixed):
        fixed[end] = _xxh32(bytes(fixed[4:end])) >> 8 & 0xFF
    return fixed


def _xxh32(data: bytes) -> int:
    """Return the XXH32 of fewer than 16 bytes. An LZ4 frame's header has no more."""
    one, two, three, four, five = _PRIME_32
    hashed = (five + len(data)) & 0xFFFFFFFF
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        hashed = (hashed + int.from_bytes(data[at : at + 4], "little") * three) & 0xFFFFFFFF
        hashed = (hashed << 17 | hashed >> 15) * four & 0xFFFFFFFF
    for byte in data[whole:]:
        hashed = (hashed + byte * five) & 0xFFFFFFFF
        hashed = (hashed << 11 | hashed >> 21) * one & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * two & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * three & 0xFFFFFFFF
    return hashed ^ hashed >> 16
