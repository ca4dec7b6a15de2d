"""Positions, kept in the source group's committed offsets: nothing else remembers progress.

An entry's metadata is the rest of the position, packed: Kafka limits it to 4096 characters, so 15 bits go into each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from mirrormaker.errors import BadFrame, LedgerError
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.protocol.codec import Reader, varint

MARK = "mirrormaker/1:"
MAX_METADATA = 4096  # offset.metadata.max.bytes; counted in characters
_HEAD = struct.Struct(">Iqhi16s16siB")
_FIRST_CHAR = 0x4000  # 15 bits from here on: no control characters, no surrogates


def pack(position: Position) -> str:
    """The metadata of a ledger entry."""
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
    ordered = sorted(position.cuts, key=lambda cut: cut.topic)  # as they are read back
    ahead = [(number, cut.ahead) for number, cut in enumerate(ordered) if cut.ahead]
    data += varint(len(ahead)) + b"".join(varint(number) + varint(count) for number, count in ahead)
    number = int.from_bytes(b"\1" + data, "big")
    chars = []
    while number:
        number, digit = divmod(number, 1 << 15)
        chars.append(chr(_FIRST_CHAR + digit))
    text = MARK + "".join(chars)
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


def fits(position: Position) -> None:
    """Refuse what could not be committed once its numbers have grown."""
    pack(replace(position, cuts=tuple(Cut(c.partition, 2**31 - 1, c.offset + 2**40, c.topic) for c in position.cuts)))


def unpack(topic: str, partition: int, offset: int, metadata: str) -> Position | None:
    """The position in a ledger entry, or None where the metadata is not ours (a Java MirrorMaker's, or a reset by hand)."""
    if not metadata.startswith("mirrormaker/"):
        return None
    if not metadata.startswith(MARK):
        raise LedgerError(
            f"the committed offset of {topic}-{partition} was written by a newer mirrormaker ({metadata.split(':')[0]});"
            " run that version"
        )
    try:
        return _unpacked(topic, partition, offset, metadata[len(MARK) :])
    except (struct.error, OverflowError, ValueError, IndexError, BadFrame) as error:
        raise LedgerError(
            f"the committed offset of {topic}-{partition} carries damaged metadata; set it by hand (kafka-consumer-groups"
            " --reset-offsets) to go on from there"
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
    for _ in range(reader.varint() if reader.at < len(data) else 0):  # the first release knew no other topics
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
    """Positions as a commit wants them: per topic (partition, offset, leader epoch, metadata)."""
    found: dict[str, list[tuple[int, int, int, str]]] = {}
    for position in positions:
        row = (position.partition, position.offset, position.leader_epoch, pack(position))
        found.setdefault(position.topic, []).append(row)
    return found
