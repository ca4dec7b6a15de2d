"""The partitions of an OffsetFetch answer, one row after the other: there can be a million of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol.codec import Reader

PLAIN_ROW = 20  # bytes of a row without metadata and tagged fields
METADATA_AT, TAGS_AT = 16, 19
_LONG = 0x80  # the length of a metadata that takes more than one byte
_WORK_OF_LONG_ROW = 3  # beside one for every row
_SHORT = struct.Struct(">h")


def row_places(reader: Reader, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield where each row begins, and where its metadata begins and ends; at last the reader is behind the rows.

    A long metadata takes longer, and so do tagged fields, which no broker writes: such a row counts as several.
    """
    data, at = reader.data, reader.at
    for _ in range(count):
        try:
            size = data[at + METADATA_AT]
            begin = at + METADATA_AT + 1
            end = begin + max(0, size - 1)
            is_short = size < _LONG and not data[end + _SHORT.size]
        except IndexError as error:
            raise BadFrame("a response ends in the middle of a row") from error
        if is_short:
            yield at, begin, end
            at = end + PLAIN_ROW - METADATA_AT - 1
            continue
        reader.begin_elements(_WORK_OF_LONG_ROW)
        reader.at = at + METADATA_AT
        size = reader.short_length()
        begin = reader.at
        end = begin + len(reader.slice(max(0, size)))
        reader.take(_SHORT)
        reader.skip_tags()
        yield at, begin, end
        at = reader.at
    reader.at = at
