"""The ledger: positions in the committed offsets of the source's consumer group. Progress is stored nowhere else.

A ledger entry is one committed offset. Its metadata carries the rest of the position. Brokers limit metadata to 4096
characters (`offset.metadata.max.bytes`), so 15 bits are packed into each character.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from mirrormaker.errors import BadFrame, LedgerError
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.protocol.codec import Reader, varint

PREFIX = "mirrormaker/1:"
MAX_METADATA = 4096  # offset.metadata.max.bytes, which brokers count in characters
_HEAD = struct.Struct(">Iqhi16s16siB")
# The 32,768 characters from here on carry 15 bits each; there are no control characters and no surrogates among them.
_FIRST_CHAR = 0x4000


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
    number = int.from_bytes(b"\1" + data, "big")
    chars = []
    while number:
        number, digit = divmod(number, 1 << 15)
        chars.append(chr(_FIRST_CHAR + digit))
    text = PREFIX + "".join(chars)
    if len(text) > MAX_METADATA:
        raise LedgerError(
            f"{position.topic}-{position.partition} spreads over {len(position.cuts)} target partitions:"
            f" more than a committed offset can carry ({len(text)} characters of {MAX_METADATA})"
        )
    return text


def _packed_cuts(position: Position, topic: str) -> bytes:
    cuts = [cut for cut in position.cuts if cut.topic == topic]
    data = varint(len(cuts))
    for cut in cuts:
        data += varint(cut.partition) + varint(cut.sequence) + varint(cut.offset & 0xFFFFFFF) + varint(cut.offset >> 28)
    return data


def _unpacked_cuts(reader: Reader, topic: str) -> list[Cut]:
    cuts = []
    for _ in range(reader.varint()):
        number, sequence, low, high = reader.varint(), reader.varint(), reader.varint(), reader.varint()
        cuts.append(Cut(number, sequence, high << 28 | low, topic))
    return cuts


def check_fits(position: Position) -> None:
    """Raise LedgerError if the position could not be committed any more once its numbers have grown."""
    pack(replace(position, cuts=tuple(Cut(c.partition, 2**31 - 1, c.offset + 2**40, c.topic) for c in position.cuts)))


def unpack(topic: str, partition: int, offset: int, metadata: str) -> Position | None:
    """Return the position in a ledger entry.

    None means that the metadata is not ours: a Java MirrorMaker has committed the offset, or someone has reset it.
    """
    if not metadata.startswith("mirrormaker/"):
        return None
    if not metadata.startswith(PREFIX):
        raise LedgerError(
            f"the committed offset of {topic}-{partition} was written by a newer mirrormaker"
            f" ({metadata.split(':')[0]}); run that version"
        )
    try:
        return _unpacked(topic, partition, offset, metadata[len(PREFIX) :])
    except (struct.error, OverflowError, ValueError, IndexError, BadFrame) as error:
        raise LedgerError(
            f"the committed offset of {topic}-{partition} has damaged metadata; set the offset by hand"
            " (kafka-consumer-groups --reset-offsets) to go on from there"
        ) from error


def _unpacked(topic: str, partition: int, offset: int, text: str) -> Position:
    number = 0
    for char in reversed(text):
        number = number << 15 | ord(char) - _FIRST_CHAR
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")[1:]
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


def rows(positions: Iterable[Position]) -> dict[str, list[tuple[int, int, int, str]]]:
    """Return positions as rows of an OffsetCommit request: by topic, (partition, offset, leader epoch, metadata)."""
    by_topic: dict[str, list[tuple[int, int, int, str]]] = {}
    for position in positions:
        row = (position.partition, position.offset, position.leader_epoch, pack(position))
        by_topic.setdefault(position.topic, []).append(row)
    return by_topic
