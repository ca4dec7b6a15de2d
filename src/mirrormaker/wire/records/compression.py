"""Kafka's compression codecs, by their numbers in a batch's attributes: as Java writes them, and bounded in what comes out."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa

from mirrormaker.errors import BadCompression

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Bytes = bytes | bytearray | memoryview

# Java's SnappyOutputStream: a magic, two version numbers, then blocks with their lengths. Raw snappy has none of it.
_XERIAL = struct.Struct(">8sii")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_BLOCK = 32 << 10
# An LZ4 frame as Kafka's Java client writes it: independent blocks of 64 KB, no checksums. It reads no linked blocks,
# which is what other libraries write by default.
_LZ4_HEAD = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 1 << 31  # a block that did not get smaller
_LENGTH, _LITTLE_LENGTH = struct.Struct(">i"), struct.Struct("<I")
_PRIME_32 = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def decompress(codec: int, data: Bytes, limit: int) -> bytes:
    """What was compressed, or BadCompression: never more than `limit` bytes of memory, whatever the data claims."""
    try:
        if codec == GZIP:
            return _gunzip(data, limit)
        if codec == SNAPPY:
            return _unsnap(memoryview(data), limit)
        if codec == LZ4:
            return _read_all("lz4", data, limit)
        if codec == ZSTD:
            return _read_all("zstd", data, limit)
    except (OSError, zlib.error, struct.error, IndexError, pa.ArrowException) as error:
        raise BadCompression(f"{CODECS[codec]} data does not decompress: {str(error).splitlines()[0]}") from error
    raise BadCompression(f"codec {codec} does not exist")


def compress(codec: int, data: Bytes) -> Bytes:
    if codec == GZIP:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _snap(memoryview(data))
    if codec == LZ4:
        return _lz4_frame(memoryview(data))
    if codec == ZSTD:
        return memoryview(pa.Codec("zstd", compression_level=3).compress(data))
    raise ValueError(f"codec {codec}")


def _too_much(limit: int) -> BadCompression:
    return BadCompression(f"the data decompresses to more than {limit} bytes, which is all that buffer.memory allows")


def _gunzip(data: Bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=47)  # gzip or zlib
    found = unpacker.decompress(data, limit + 1)
    if len(found) > limit:
        raise _too_much(limit)
    if not unpacker.eof:
        raise BadCompression("gzip data is cut short")
    if unpacker.unused_data:  # more than one stream: allowed, rare, and what Arrow can read
        return _read_all("gzip", data, limit)
    return found


def _read_all(name: str, data: Bytes, limit: int) -> bytes:
    stream: Any = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)
    step = max(64 << 10, 6 * len(data))
    found: list[bytes] = []
    size = 0
    while True:
        more: bytes = stream.read(min(step, limit + 1 - size))
        if not more:
            return b"".join(found) if len(found) != 1 else found[0]
        size += len(more)
        if size > limit:
            raise _too_much(limit)
        found.append(more)
        step *= 2


def _unsnap(data: memoryview, limit: int) -> bytes:
    if len(data) < _XERIAL.size or data[:8] != _XERIAL_MAGIC:
        return _unsnap_block(data, limit)
    found, done, at = [], 0, _XERIAL.size
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size < 0 or at + size > len(data):
            raise BadCompression("a snappy block is cut short")
        found.append(_unsnap_block(data[at : at + size], limit, done))
        done += len(found[-1])
        at += size
    return b"".join(found)


def _unsnap_block(data: memoryview, limit: int, done: int = 0) -> bytes:
    size = shift = at = 0
    while True:  # the length that it will have, as a varint
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
        if shift > 28:
            raise BadCompression("a snappy block with a bad length")
    if done + size > limit:
        raise _too_much(limit)
    if size == 0:
        return b""
    found: bytes = pa.Codec("snappy").decompress(data, size, asbytes=True)
    return found


def _snap(data: memoryview) -> bytes:
    codec, out = pa.Codec("snappy"), [_XERIAL.pack(_XERIAL_MAGIC, 1, 1)]
    for at in range(0, len(data) or 1, _SNAPPY_BLOCK):
        block = codec.compress(data[at : at + _SNAPPY_BLOCK], asbytes=True)
        out += [_LENGTH.pack(len(block)), block]
    return b"".join(out)


def _lz4_frame(data: memoryview) -> bytes:
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


def mended_lz4(data: Bytes) -> Bytes:
    """A frame of message format 0: early Java clients took the header's checksum over the magic too."""
    if len(data) < 7:
        return data
    end = 6 + 8 * bool(data[4] & 0x08)  # with a content size, or without
    mended = bytearray(data)
    if end < len(mended):
        mended[end] = _xxh32(bytes(mended[4:end])) >> 8 & 0xFF
    return mended


def _xxh32(data: bytes) -> int:
    """XXH32 of fewer than 16 bytes: all that a frame's descriptor has."""
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
