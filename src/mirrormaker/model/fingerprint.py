"""A number for everything that decides which sequence number a record gets.

A position carries it: settings that number records differently must not go on under the same producer identity.
"""

from __future__ import annotations

from zlib import crc32

from mirrormaker.model.position import Position


def fingerprint_of(
    committed: bool, partitions: int, partition_by: str | None, handler: tuple[str, str | None] | None
) -> int:
    return crc32(repr((committed, partitions, partition_by, handler)).encode()) | 2


def used_handler(position: Position) -> bool:
    """Return True if a mirror with a message handler wrote the position."""
    count = position.target_partitions
    by_key = {fingerprint_of(committed, count, by, None) for committed in (False, True) for by in (None, "key")}
    return position.fingerprint not in (0, 1) and position.fingerprint not in by_key
