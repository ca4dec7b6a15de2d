"""The fingerprint of everything that decides which sequence number a record gets.

A position carries it. Settings that number records differently must not go on under the same producer identity.
"""

from __future__ import annotations

from zlib import crc32

from mirrormaker.model.position import Position


def fingerprint_of(
    committed: bool, partitions: int, partition_by: str | None, handler: tuple[str, str | None] | None
) -> int:
    """Return the fingerprint of settings with which records go by key or through a message handler.

    It is at least 2: 0 and 1 stand for records that keep their partition and are not handled. `committed`: only
    committed records are mirrored. `partitions`: of the target topic if records go by key, otherwise 0.
    """
    return crc32(repr((committed, partitions, partition_by, handler)).encode()) | 2


def used_handler(position: Position) -> bool:
    """Return True if a mirror with a message handler wrote the position."""
    count = position.target_partitions
    without_handler = {
        fingerprint_of(committed, count, partition_by, None)
        for committed in (False, True)
        for partition_by in (None, "key")
    }
    return position.fingerprint not in (0, 1) and position.fingerprint not in without_handler
