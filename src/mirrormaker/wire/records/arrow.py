"""Convert unpacked records to Arrow tables and back, for message handlers and for reading topics as DataFrames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.slices import binary_array, in_memory_order
from mirrormaker.wire.records.varints import Data, Ints

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # milliseconds since 1970; -1 if the record has none
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
    ]
)

# Headers of one record: more would take many times the memory of the record, and no program has a use for them.
MOST_HEADERS = 1 << 17

# A round of numpy over the n-th header of all records costs as much as this many headers, read one by one.
_ROUND = 64


def to_table(records: Records) -> pa.Table:
    """Return a table with one row for each record, and the columns of SCHEMA."""
    try:
        columns = _tail_columns(records)
    except BadVarint as error:
        raise CorruptBatch(f"a record is damaged: {error}") from error
    return pa.Table.from_arrays([pa.array(records.offsets), pa.array(records.timestamps), *columns], schema=SCHEMA)


def _tail_columns(records: Records) -> list[Any]:
    """Return keys, values and headers."""
    data, ends = records.data, records.ends
    key, key_size = records.keys()
    value_size, value = varints.read(data, key + np.maximum(key_size, 0))
    _check_inside(value_size, value, ends)
    count, at = varints.read(data, value + np.maximum(value_size, 0))
    if len(count) and (int(count.min()) < 0 or bool((count > ends - at + 1).any())):
        raise BadVarint("a record has an impossible number of headers")
    if int(count.max(initial=0)) > MOST_HEADERS:
        offset = int(records.offsets[np.argmax(count)])
        raise CorruptBatch(f"the record at offset {offset} has {int(count.max())} headers, more than {MOST_HEADERS}")
    headers = _headers(data, count, at, ends)
    return [slices(data, key, key_size), slices(data, value, value_size), headers]


def _headers(data: Data, count: Ints, at: Ints, ends: Ints) -> Any:
    edges = np.concatenate([[0], np.cumsum(count)])
    key, key_size, value, value_size = (np.empty(int(edges[-1]), np.int64) for _ in range(4))
    live, number = np.flatnonzero(count), 0
    at = at.copy()
    # First the n-th header of every record that has one, as long as there are many; then record by record.
    while live.size > _ROUND:
        slot, end, here = edges[live] + number, ends[live], at[live]
        for start, length in (key, key_size), (value, value_size):
            size, here = varints.read(data, here)
            _check_inside(size, here, end)
            start[slot], length[slot] = here, size
            here = here + np.maximum(size, 0)
        at[live] = here
        number += 1
        live = live[count[live] > number]
    for record in live.tolist():
        slots = slice(int(edges[record]) + number, int(edges[record + 1]))
        fields, at[record] = _read_headers(data.data, int(at[record]), slots.stop - slots.start)
        key[slots], key_size[slots], value[slots], value_size[slots] = fields
    if not np.array_equal(at, ends):
        raise BadVarint("a record is longer or shorter than its fields")
    if len(key_size) and int(key_size.min()) < 0:
        raise BadVarint("a header has no key")
    try:
        names = slices(data, key, key_size).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatch("a header's key is not UTF-8") from error
    pairs = pa.StructArray.from_arrays([names, slices(data, value, value_size)], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(edges.astype(np.int32)), pairs, type=HEADERS)


def _read_headers(raw: memoryview, at: int, count: int) -> tuple[Ints, int]:
    """Return start and size of the keys, and start and size of the values, of one record's headers, and where they end."""
    fields: list[int] = []
    end = len(raw)
    try:
        for _ in range(2 * count):
            # This is `varints.read_one` written out for small numbers: a call for each would make the loop much slower.
            size = raw[at]
            if size < 0x80:
                size = size >> 1 ^ -(size & 1)
                at += 1
            else:
                size, at = varints.read_one(raw, at)
            if not -1 <= size <= end - at:
                raise BadVarint("a field is longer than its record")
            fields += (at, size)
            if size > 0:
                at += size
    except IndexError as error:
        raise BadVarint("a header goes beyond the end of the data") from error
    return np.array(fields, np.int64).reshape(-1, 4).T, at


def _check_inside(size: Ints, start: Ints, ends: Ints) -> None:
    if len(size) and (int(size.min()) < -1 or bool((np.maximum(size, 0) > ends - start).any())):
        raise BadVarint("a field is longer than its record")


def slices(data: Data, starts: Ints, sizes: Ints) -> Any:
    """Return data[start : start + size] for each start as an Arrow array; null where the size is negative."""
    null = sizes < 0
    starts, ends, places = in_memory_order(starts, starts + np.where(null, 0, sizes))
    count = len(starts)
    # Every second slice is the gap between two fields, and is left out.
    edges = np.empty(2 * count + 1, np.int32)
    edges[0 : 2 * count : 2] = starts
    edges[1 : 2 * count : 2] = ends
    edges[2 * count] = len(data)
    chosen = np.arange(0, 2 * count, 2, dtype=np.int32) if places is None else 2 * places
    return pc.take(binary_array(edges, data), pa.array(chosen, mask=null), boundscheck=False)


def from_table(table: pa.Table) -> Records:
    """Return the records of a table that has the columns of SCHEMA. Other columns are ignored."""
    columns = [_converted(table.column(field.name), field) for field in SCHEMA]
    return from_columns(*columns)


def _converted(column: Any, field: pa.Field) -> Any:
    """Return a column as one array of the field's type."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            raise ValueError(f"column {field.name} cannot be converted to {field.type}: {error}") from error
    if not field.nullable and column.null_count:
        raise ValueError(f"column {field.name} contains nulls")
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def from_columns(offset: Any, timestamp: Any, key: Any, value: Any, headers: Any | None = None) -> Records:
    """Return the records that consist of these Arrow arrays; without `headers` no record has any."""
    tails = pc.binary_join_element_wise(
        _varints(_lengths(key)), key.fill_null(b""), _varints(_lengths(value)), value.fill_null(b""),
        _encoded_headers(headers), b"",
    )  # fmt: skip
    _, edges, data = tails.buffers()
    at = np.frombuffer(edges, np.int32, len(tails) + 1, 4 * tails.offset).astype(np.int64)
    joined: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Records(joined, at[:-1], at[1:], _int64s(offset), _int64s(timestamp))


def _int64s(column: Any) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def _lengths(column: Any) -> Ints:
    return _int64s(pc.binary_length(column).fill_null(-1))


def _varints(values: Ints) -> Any:
    """Return each number as the bytes of its varint."""
    folded = varints.zigzag(values)
    size = varints.sizes(folded)
    edges = np.concatenate([[0], np.cumsum(size)])
    out = np.zeros(int(edges[-1]), np.uint8)
    varints.write(out, edges[:-1], folded, size)
    return binary_array(edges.astype(np.int32), out)


def _encoded_headers(headers: Any | None) -> Any:
    if headers is None or not len(headers.values):
        return pa.scalar(b"\0", pa.binary())
    pairs = headers.flatten()
    keys, values = pairs.field("key").cast(pa.binary()), pairs.field("value")
    if pairs.null_count or keys.null_count:
        raise ValueError("column headers contains a header without a key")
    encoded = pc.binary_join_element_wise(
        _varints(_lengths(keys)), keys, _varints(_lengths(values)), values.fill_null(b""), b""
    )
    sizes = _int64s(pc.list_value_length(headers).fill_null(0))
    lists = np.concatenate([[0], np.cumsum(sizes)])
    edges = np.frombuffer(encoded.buffers()[1], np.int32, len(encoded) + 1)[lists]
    joined = binary_array(edges, encoded.buffers()[2])
    return pc.binary_join_element_wise(_varints(sizes), joined, b"")
