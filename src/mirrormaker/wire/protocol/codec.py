"""Reading Kafka's primitive types out of a frame: fixed integers, and the varints of flexible versions."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mirrormaker.errors import BadFrame


def varint(number: int) -> bytes:
    """An unsigned varint, as lengths in flexible versions are written."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x200000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Reader:
    """A position in a frame. In flexible versions lengths are varints of n + 1 and structures end in tagged fields."""

    __slots__ = ("at", "data", "flexible")

    def __init__(self, data: memoryview, flexible: bool) -> None:
        self.data, self.flexible, self.at = data, flexible, 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values: tuple[int, ...] = layout.unpack_from(self.data, self.at)
        except struct.error as error:
            raise BadFrame("an answer ends too early") from error
        self.at += layout.size
        return values

    def slice(self, size: int) -> memoryview:
        if size < 0 or self.at + size > len(self.data):
            raise BadFrame(f"an answer names {size} bytes where {len(self.data) - self.at} are left")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def varint(self) -> int:
        number = shift = 0
        while True:
            if self.at >= len(self.data) or shift > 28:
                raise BadFrame("an answer has a broken number")
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def length(self) -> int:
        """Of an array or of bytes; -1 is null."""
        return self.varint() - 1 if self.flexible else self.take(_INT)[0]

    def string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.take(_SHORT)[0]
        return None if size < 0 else str(bytes(self.slice(size)), "utf-8", "replace")

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """The tagged fields of a structure; must be run to its end."""
        if self.flexible:
            for _ in range(self.varint()):
                tag = self.varint()
                yield tag, Reader(self.slice(self.varint()), True)

    def skip_tags(self) -> None:
        if self.flexible and self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1  # none, nearly always
            return
        for _ in self.tags():
            pass


_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
