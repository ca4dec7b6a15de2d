"""Read the principals of a keytab, because libkrb5 does not say whose keys it misses."""

from __future__ import annotations

import struct

from mirrormaker.errors import NotAKeytab

_MAGIC = b"\x05\x02"


def principals(keytab: bytes) -> list[str]:
    """Return the principals of a keytab, each once, in the order of the file."""
    if keytab[:2] != _MAGIC:
        raise NotAKeytab
    names: dict[str, None] = {}
    at = 2
    try:
        while at + 4 <= len(keytab):
            (size,) = struct.unpack_from(">i", keytab, at)
            if size > 0:  # a negative size marks a removed key
                names[_principal(keytab, at + 4)] = None
            at += 4 + abs(size)
    except (struct.error, UnicodeDecodeError):
        raise NotAKeytab from None
    return list(names)


def _principal(keytab: bytes, at: int) -> str:
    (count,) = struct.unpack_from(">H", keytab, at)
    at += 2
    parts = []
    for _ in range(count + 1):  # the realm comes first
        (size,) = struct.unpack_from(">H", keytab, at)
        parts.append(keytab[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return f"{'/'.join(parts[1:])}@{parts[0]}"
