"""Decode bytes by one of kafka-python's schemas, and refuse whatever a broker cannot have meant.

kafka-python's own decoder trusts the bytes that it is given: a varint may have any length, a structure with a tagged field copies
the rest of the answer, a text may end beyond the data, and every field may be null. Here the work is proportional to the size
of the data, and so is a length: it counts only if so many bytes are left. The elements of lists have a bounded number of fields,
and a field is null only where its schema allows it.
"""

from __future__ import annotations

import functools
import struct
import sys
import uuid
from collections.abc import Callable
from itertools import groupby
from typing import Any

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol.codec import Reader

Read = Callable[[Reader], Any]  # reads one field

_NO_ID = bytes(16)
_NO_BITS = 1 << 31  # a bit field that the broker has not filled
_NULL_STRUCTURE = -1
_BYTE, _SHORT, _UNSIGNED = (struct.Struct(layout) for layout in (">b", ">h", ">I"))


# Work that the elements of an answer may be. It takes less than a second of CPU time. Partitions of an OffsetFetch count 6 each,
# so there can be 131,072 of them, and groups of a DescribeGroups 15 each.
MOST_WORK = 6 << 17
# Of a structure beside its fields, of a field, of adjacent numbers, which are read at once, and of a number in a list, which
# takes 40 bytes, and more as a partition of a set.
_WORK_OF_STRUCTURE, _WORK_OF_FIELD, _WORK_OF_NUMBERS, _WORK_OF_NUMBER = 2, 2, 1, 2


def decode(message: Any, data: memoryview, version: int, most_work: int = MOST_WORK) -> Any:
    """Return an instance of `message`, one of kafka-python's message classes; raise BadFrame if the bytes are malformed."""
    return _message_reader(message, version)(Reader(data, message.flexible_version_q(version), most_work))


def decode_versioned(message: Any, data: bytes, most_work: int = MOST_WORK) -> Any:
    """Return an instance of a message that begins with its own version; a version from the future is read as the newest known."""
    reader = Reader(memoryview(data), False, most_work)
    (version,) = reader.take(_SHORT)
    if version < 0:
        raise BadFrame(f"the version is {version}")
    return _message_reader(message, min(version, message.max_version))(reader)


@functools.cache
def _message_reader(message: Any, version: int) -> Read:
    read, _work = _structure_reader(message, message._struct, version)
    return read


def _structure_reader(kind: Any, structure: Any, version: int) -> tuple[Read, int]:
    """Return the reader of a structure, which becomes an instance of the class `kind`, and how much work it is."""
    steps: list[tuple[Any, Any]] = []
    for is_fixed, fields in groupby(structure.untagged_fields(version), lambda field: field.is_batchable()):
        if is_fixed:  # adjacent numbers are read at once
            numbers = list(fields)
            layout = struct.Struct(">" + "".join(field._type.fmt for field in numbers))
            steps.append((tuple(field.name for field in numbers), layout))
        else:
            steps += [(field.name, _field_reader(field, version)) for field in fields]
    tagged = {field.tag: field for field in structure.tagged_fields(version)._fields}
    tag_readers = {tag: (field.name, _field_reader(field, version)) for tag, field in tagged.items()}

    def read(reader: Reader) -> Any:
        instance = object.__new__(kind)
        instance._version, instance.tags, instance.unknown_tags = version, None, None
        for name, step in steps:
            if isinstance(step, struct.Struct):
                for each, value in zip(name, reader.take(step), strict=True):
                    setattr(instance, each, value)
            else:
                setattr(instance, name, step(reader))
        if not tag_readers:
            reader.skip_tags()
            return instance
        for tag, content in reader.tags():
            if tag in tag_readers:
                name, read_field = tag_readers[tag]
                setattr(instance, name, read_field(content))
        return instance

    works = (_WORK_OF_NUMBERS if isinstance(step, struct.Struct) else _WORK_OF_FIELD for _, step in steps)
    return read, _WORK_OF_STRUCTURE + sum(works)


def _field_reader(field: Any, version: int) -> Read:
    """Return the reader of one field, which refuses null unless the field is nullable in this version."""
    read, nullable = _nullable_reader(field, version), field.nullable_for_version_q(version)

    def read_value(reader: Reader) -> Any:
        value = read(reader)
        if value is None:
            raise BadFrame(f"{field.name} is null")
        return value

    return read if nullable or field.type_str in ("uuid", "bitfield") else read_value


def _nullable_reader(field: Any, version: int) -> Read:
    if field.is_struct_array():
        return functools.partial(_array, *_structure_reader(field.data_class, field.array_of, version))
    if field.is_array() and field.array_of.is_batchable():
        return functools.partial(_numbers, field.array_of._type)
    if field.is_array():
        return functools.partial(_array, _element_reader(field.array_of), _WORK_OF_FIELD)
    if field.is_struct():
        read, _work = _structure_reader(field.data_class, field, version)
        return functools.partial(_nullable, read) if field.nullable_for_version_q(version) else read
    return _simple_reader(field)


def _element_reader(field: Any) -> Read:
    read = _simple_reader(field)

    def read_element(reader: Reader) -> Any:
        value = read(reader)
        if value is None:
            raise BadFrame(f"an element of {field.name} is null")
        return value

    return read_element


def _simple_reader(field: Any) -> Read:
    if field.is_batchable():  # alone, as a tagged field
        layout = struct.Struct(">" + field._type.fmt)
        return lambda reader: reader.take(layout)[0]
    return _SIMPLE[field.type_str]


def _array(read: Read, work: int, reader: Reader) -> list[Any] | None:
    count = _count(reader, 1)
    if count is None:
        return None
    reader.begin_elements(count * work)
    return [read(reader) for _ in range(count)]


def _numbers(kind: Any, reader: Reader) -> list[Any] | None:
    count = _count(reader, kind.size)
    if not count:
        return None if count is None else []
    reader.begin_elements(count * _WORK_OF_NUMBER)
    numbers = struct.unpack_from(f">{count}{kind.fmt}", reader.data, reader.at)
    reader.at += count * kind.size
    return list(numbers)


def _count(reader: Reader, least: int) -> int | None:
    """Read the number of elements of an array, each of which has `least` bytes or more; None is null."""
    count, left = reader.length(), len(reader.data) - reader.at
    if count == -1:
        return None
    if not 0 <= count * least <= left:
        raise BadFrame(f"an array of {count} elements has {left} bytes")
    return count


def _nullable(read: Read, reader: Reader) -> Any:
    return None if reader.take(_BYTE)[0] == _NULL_STRUCTURE else read(reader)


def read_text(reader: Reader) -> str | None:
    """Read a nullable text; raise BadFrame if it is not UTF-8."""
    size = reader.short_length()
    if size == -1:
        return None
    try:
        text = str(reader.slice(size), "utf-8")
    except UnicodeDecodeError as error:
        raise BadFrame(f"a text is not UTF-8: {error.reason}") from None
    reader.hold(sys.getsizeof(text))
    return text


def _data(reader: Reader) -> bytes | None:
    size = reader.length()
    if size == -1:
        return None
    reader.hold(size)
    return bytes(reader.slice(size))


def _id(reader: Reader) -> uuid.UUID | None:
    data = bytes(reader.slice(16))
    return None if data == _NO_ID else uuid.UUID(bytes=data)


def _bits(reader: Reader) -> set[int] | None:
    (number,) = reader.take(_UNSIGNED)
    return None if number == _NO_BITS else {bit for bit in range(32) if number >> bit & 1}


_SIMPLE: dict[str, Read] = {"string": read_text, "bytes": _data, "records": _data, "uuid": _id, "bitfield": _bits}
