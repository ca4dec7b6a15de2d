"""The ledger: positions in the committed offsets of the source's consumer group. Progress is stored nowhere else.

A ledger entry is one committed offset. Its metadata carries the rest of the position. Brokers limit metadata to 4096
characters (`offset.metadata.max.bytes`), so 15 bits are packed into each character.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from mirrormaker.errors import BadFrame, EntryError
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.protocol.codec import Reader, varint

PREFIX = "mirrormaker/1:"
MAX_METADATA = 4096  # offset.metadata.max.bytes, which brokers count in characters
_HEAD = struct.Struct(">Iqhi16s16siB")
# The 32,768 characters from here on carry 15 bits each; there are no control characters and no surrogates among them.
_FIRST_CHAR = 0x4000
_PIECE = 15  # bytes that make eight characters
# So many cuts of the source's own topic always fit: a cut takes 25 bytes at most, and the rest of an entry less than 400.
_ALWAYS_FIT = 200


def pack(position: Position) -> str:
    """Return the metadata of the ledger entry for a position."""
    cluster = position.target_cluster.encode()
    data = bytearray(
        _HEAD.pack(
            position.fingerprint,
            position.identity.producer_id,
            position.identity.epoch,
            position.leader_epoch,
            bytes.fromhex(position.topic_id or "00" * 16),
            bytes.fromhex(position.target_topic_id or "00" * 16),
            position.target_partitions,
            len(cluster),
        )
    )
    data += cluster + _packed_cuts(position, "")
    topics = sorted({cut.topic for cut in position.cuts} - {""})
    data += varint(len(topics))
    for topic in topics:
        data += varint(len(topic.encode())) + topic.encode() + _packed_cuts(position, topic)
    # `unpack` numbers the cuts in this order.
    ordered = sorted(position.cuts, key=lambda cut: cut.topic)
    ahead = [(number, cut.ahead) for number, cut in enumerate(ordered) if cut.ahead]
    data += varint(len(ahead)) + b"".join(varint(number) + varint(count) for number, count in ahead)
    text = PREFIX + _to_text(b"\1" + data)
    if len(text) > MAX_METADATA:
        raise EntryError(
            f"{position.topic}-{position.partition} spreads over {len(position.cuts)} target partitions:"
            f" more than a committed offset can carry ({len(text)} characters of {MAX_METADATA})"
        )
    return text


def _to_text(data: bytes) -> str:
    """Return a number of many bytes as characters of 15 bits each, the lowest ones first."""
    # Eight characters take 15 bytes. Whole pieces keep this linear in the size, where dividing one large number is not.
    size = -len(data) % _PIECE + len(data)
    padded = data.rjust(size, b"\0")
    chars = []
    for end in range(size, 0, -_PIECE):
        piece = int.from_bytes(padded[end - _PIECE : end], "big")
        chars += [chr(_FIRST_CHAR + (piece >> shift & 0x7FFF)) for shift in range(0, 8 * _PIECE, 15)]
    return "".join(chars).rstrip(chr(_FIRST_CHAR))


def _from_text(text: str) -> bytes:
    """Return the bytes that `_to_text` has turned into characters, without leading zeros."""
    pieces = []
    for at in range(0, len(text), 8):
        piece = 0
        for char in reversed(text[at : at + 8]):
            digit = ord(char) - _FIRST_CHAR
            if not 0 <= digit < 1 << 15:
                raise ValueError(f"{char!r} is no digit")
            piece = piece << 15 | digit
        pieces.append(piece.to_bytes(_PIECE, "big"))
    return b"".join(reversed(pieces)).lstrip(b"\0")


def _packed_cuts(position: Position, topic: str) -> bytes:
    cuts = [cut for cut in position.cuts if cut.topic == topic]
    data = bytearray(varint(len(cuts)))
    for cut in cuts:
        data += varint(cut.partition) + varint(cut.sequence) + varint(cut.offset & 0xFFFFFFF) + varint(cut.offset >> 28)
    return bytes(data)


def _unpacked_cuts(reader: Reader, topic: str) -> list[Cut]:
    cuts = []
    for _ in range(reader.varint()):
        number, sequence, low, high = reader.varint(), reader.varint(), reader.varint(), reader.varint()
        cuts.append(Cut(number, sequence, high << 28 | low, topic))
    return cuts


def check_fits(position: Position) -> None:
    """Raise EntryError if the position could not be committed any more once its numbers have grown."""
    if len(position.cuts) <= _ALWAYS_FIT and not any(cut.topic for cut in position.cuts):
        return
    # The buffer of a stream holds less than two million records of one partition.
    grown = (Cut(c.partition, 2**31 - 1, c.offset + 2**40, c.topic, ahead=2**21 - 1) for c in position.cuts)
    pack(replace(position, cuts=tuple(grown)))


def unpack(topic: str, partition: int, offset: int, metadata: str) -> Position | None:
    """Return the position in a ledger entry.

    None means that the metadata is not ours: a Java MirrorMaker has committed the offset, or someone has reset it.
    """
    if not metadata.startswith("mirrormaker/"):
        return None
    if not metadata.startswith(PREFIX):
        raise EntryError(
            f"the committed offset of {topic}-{partition} was written by a newer mirrormaker"
            f" ({metadata.split(':')[0]}); run that version"
        )
    try:
        return _unpacked(topic, partition, offset, metadata[len(PREFIX) :])
    except (struct.error, OverflowError, ValueError, IndexError, BadFrame) as error:
        raise EntryError(
            f"the committed offset of {topic}-{partition} has damaged metadata; set the offset by hand"
            " (kafka-consumer-groups --reset-offsets) to go on from there"
        ) from error


def _unpacked(topic: str, partition: int, offset: int, text: str) -> Position:
    data = _from_text(text)[1:]
    fingerprint, producer_id, epoch, leader_epoch, topic_id, target_id, partitions, size = _HEAD.unpack_from(data)
    reader = Reader(memoryview(data), True)
    reader.at = _HEAD.size
    cluster = bytes(reader.slice(size)).decode()
    cuts = _unpacked_cuts(reader, "")
    # The first release wrote neither cuts of other topics nor records ahead: its entries end before them.
    for _ in range(reader.varint() if reader.at < len(data) else 0):
        cuts += _unpacked_cuts(reader, bytes(reader.slice(reader.varint())).decode())
    for _ in range(reader.varint() if reader.at < len(data) else 0):
        number, ahead = reader.varint(), reader.varint()
        cuts[number] = cuts[number]._replace(ahead=ahead)
    return Position(
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        topic_id=_id(topic_id),
        identity=Identity(producer_id, epoch),
        target_cluster=cluster,
        target_topic_id=_id(target_id),
        target_partitions=partitions,
        cuts=tuple(cuts),
        fingerprint=fingerprint,
    )


def _id(data: bytes) -> str:
    return data.hex() if any(data) else ""
