"""Kafka's primitive types in requests and responses: fixed-size integers, strings, and the varints of flexible versions."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

from mirrormaker.errors import BadFrame, BadVarint

# The name of a topic and the number of one of its partitions.
TopicPartition = tuple[str, int]

MAX_VARINT_32, MAX_VARINT_64 = 5, 10  # bytes of the longest varint for a number of that many bits


def varint(number: int) -> bytes:
    """Encode an unsigned varint."""
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


def read_varint(data: memoryview, at: int, max_bytes: int = MAX_VARINT_32) -> tuple[int, int]:
    """Decode the unsigned varint that begins at `at`; return the number and the place where the varint ends.

    `records.varints.read` does the same for whole arrays of places at once.
    """
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        number = byte & 0x7F
        for shift in range(7, 7 * max_bytes, 7):
            at += 1
            byte = data[at]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, at + 1
    except IndexError as error:
        raise BadVarint("a varint goes beyond the end of the data") from error
    raise BadVarint(f"a varint has more than {max_bytes} bytes")


# Elements of a response, such as partitions or members of a group: they take about 500 bytes and 4 microseconds each.
MOST_ELEMENTS = 1 << 17
# Kafka writes and reads no longer text, also where its length could be greater.
_LONGEST_TEXT = (1 << 15) - 1  # bytes
# A text takes up to four times its bytes. One that takes more memory than any element may, counts as further elements.
_FREE_MEMORY, _MEMORY_OF_ELEMENT = 128, 64  # bytes


class Reader:
    """A place in a response, from which fields are read one after the other.

    In flexible versions a length is the varint of n + 1, and every structure ends in tagged fields.
    """

    __slots__ = ("_elements_left", "at", "data", "flexible")

    def __init__(self, data: memoryview, flexible: bool, most_elements: int = MOST_ELEMENTS) -> None:
        """`most_elements`: so many list elements and tagged fields together may be read."""
        self.data, self.flexible, self.at = data, flexible, 0
        self._elements_left = most_elements

    def begin_elements(self, count: int) -> None:
        """Count elements that are about to be read; raise BadFrame if they are too many. Each costs microseconds."""
        if count < 0:
            raise BadFrame("a list is null")
        self._elements_left -= count
        if self._elements_left < 0:
            raise BadFrame("a response lists more than a broker can have")

    def hold(self, memory: int) -> None:
        """Count a value that takes so many bytes of memory; raise BadFrame if all of them take too many."""
        if memory > _FREE_MEMORY:
            self.begin_elements((memory - _FREE_MEMORY) // _MEMORY_OF_ELEMENT)

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read fixed-size fields."""
        try:
            values: tuple[int, ...] = layout.unpack_from(self.data, self.at)
        except struct.error as error:
            raise BadFrame("a response ends in the middle of a field") from error
        self.at += layout.size
        return values

    def slice(self, size: int) -> memoryview:
        """Read `size` bytes without copying them."""
        if size < 0 or self.at + size > len(self.data):
            raise BadFrame(f"a response has a field of {size} bytes where {len(self.data) - self.at} bytes are left")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def varint(self) -> int:
        """Read an unsigned varint."""
        try:
            number, self.at = read_varint(self.data, self.at)
        except BadVarint as error:
            raise BadFrame(f"a response is damaged: {error}") from error
        return number

    def length(self) -> int:
        """Read the length of an array or of bytes; -1 is null."""
        # Nearly all of them take one byte, and an answer about thousands of partitions has three of them for each.
        if self.flexible and self.at < len(self.data) and (byte := self.data[self.at]) < 0x80:
            self.at += 1
            return byte - 1
        return self.varint() - 1 if self.flexible else self.take(_INT)[0]

    def count(self) -> int:
        """Read the number of elements that follow; raise BadFrame if there is no list, or one of too many elements."""
        count = self.length()
        self.begin_elements(count)
        return count

    def count_within(self, most: int) -> int:
        """Read the number of elements that follow; raise BadFrame if there is no list, or one of more than `most`."""
        count = self.length()
        if not 0 <= count <= most:
            raise BadFrame(f"a response has {count} topics or partitions where at most {most} can be")
        return count

    def short_length(self) -> int:
        """Read the length of a text; -1 is null. Raise BadFrame if Kafka would not write a text of that length."""
        if self.flexible and self.at < len(self.data) and (byte := self.data[self.at]) < 0x80:
            self.at += 1
            return byte - 1
        size = self.varint() - 1 if self.flexible else self.take(_SHORT)[0]
        if size > _LONGEST_TEXT:
            raise BadFrame(f"a text has {size} bytes")
        return size

    def string(self) -> str | None:
        """Read a nullable string."""
        size = self.short_length()
        if size < 0:
            return None
        text = str(bytes(self.slice(size)), "utf-8", "replace")
        self.hold(sys.getsizeof(text))
        return text

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """Read the tagged fields that end a structure, as (tag, content). The caller must exhaust the iterator."""
        if self.flexible:
            count = self.varint()
            self.begin_elements(count)
            for _ in range(count):
                tag = self.varint()
                content = Reader(self.slice(self.varint()), True, self._elements_left)
                yield tag, content
                self._elements_left = content._elements_left

    def skip_tags(self) -> None:
        """Skip the tagged fields that end a structure."""
        # Nearly always there are none.
        if self.flexible and self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1
            return
        for _ in self.tags():
            pass


_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
