"""Records to Arrow tables and back."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.protocol.codec import varint
from mirrormaker.wire.records import arrow, varints
from mirrormaker.wire.records.arrow import HEADERS, MOST_HEADERS, SCHEMA, from_columns, from_table, to_table
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records, pack
from tests.support.batches import Record, read_records
from tests.support.memory import peak
from tests.support.strategies import offsets, records

NOW = 1_700_000_000_000
ROWS: list[dict[str, Any]] = [
    {"offset": 3, "timestamp": NOW, "key": b"k", "value": b"v" * 200, "headers": [{"key": "a", "value": b"x"}]},
    {"offset": 4, "timestamp": -1, "key": None, "value": None, "headers": []},
    {"offset": 9, "timestamp": NOW - 7, "key": b"", "value": b"", "headers": [{"key": "", "value": b""}]},
    {"offset": 10, "timestamp": 0, "key": b"\0" * 70, "value": None, "headers": [{"key": "größe", "value": None}] * 3},
    {"offset": 11, "timestamp": 1, "key": b"\xff", "value": b"\x80", "headers": []},
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)

tables = st.lists(st.tuples(offsets, records), max_size=8).map(
    lambda rows: pa.Table.from_pylist(
        [
            {
                "offset": offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
            }
            for offset, record in rows
        ],
        SCHEMA,
    )
)


def back(table: pa.Table) -> list[dict[str, Any]]:
    """Convert a table to records and back, and return its rows."""
    found = to_table(from_table(table))
    found.validate(full=True)
    assert found.schema == SCHEMA
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


# -- tables of any shape


@given(tables)
def test_a_table_comes_back_as_it_was(table: pa.Table) -> None:
    assert back(table) == table.to_pylist()


@given(tables)
def test_the_records_of_a_table_are_what_kafka_python_reads(table: pa.Table) -> None:
    found = from_table(table)
    assert len(found) == table.num_rows
    if table.num_rows:
        (data,) = pack(found, [0, len(found)])
        Batch(data).stamp(1, 0, 0)
        assert read_records(data) == tuple(
            Record(r["timestamp"], r["key"], r["value"], tuple((h["key"], h["value"]) for h in r["headers"]))
            for r in table.to_pylist()
        )


@given(tables, tables, tables)
def test_a_table_of_several_chunks_comes_back_whole(one: pa.Table, two: pa.Table, three: pa.Table) -> None:
    table = pa.concat_tables([one, two, three])
    assert back(table) == table.to_pylist()


@given(tables, st.data())
def test_a_part_of_a_table_comes_back_as_that_part(table: pa.Table, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, table.num_rows))
    part = table.slice(start, data.draw(st.integers(0, table.num_rows - start)))
    assert back(part) == part.to_pylist()
    doubled = pa.concat_tables([part, table, part])
    assert back(doubled) == doubled.to_pylist()
    middle = doubled.slice(min(1, doubled.num_rows), max(0, doubled.num_rows - 2))
    assert back(middle) == middle.to_pylist()


@given(tables, st.data())
def test_rows_taken_and_filtered_come_back(table: pa.Table, data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=table.num_rows, max_size=table.num_rows))
    some = table.filter(pa.array(mask, pa.bool_()))
    assert back(some) == some.to_pylist()


def test_a_table_without_rows_or_chunks_has_no_records() -> None:
    assert back(SCHEMA.empty_table()) == []
    assert back(pa.table([pa.chunked_array([], field.type) for field in SCHEMA], SCHEMA)) == []


def test_columns_may_come_in_any_order_and_others_are_not_looked_at() -> None:
    table = TABLE.append_column("other", pa.array(range(TABLE.num_rows)))
    table = table.select(["headers", "other", "value", "key", "timestamp", "offset"])
    assert back(table) == ROWS


def test_records_chosen_in_any_order_become_the_rows_in_that_order() -> None:
    found = from_table(TABLE)
    order = np.array([4, 0, 0, 2])
    assert to_table(found[order]).to_pylist() == [ROWS[i] for i in order]
    assert to_table(found[::-1]).to_pylist() == ROWS[::-1]


# -- other types


def as_types(**types: pa.DataType) -> pa.Table:
    fields = [pa.field(field.name, types.get(field.name, field.type)) for field in SCHEMA]
    return pa.Table.from_arrays(
        [TABLE.column(field.name).cast(field.type) for field in fields], schema=pa.schema(fields)
    )


OTHER_HEADERS = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


@pytest.mark.parametrize(
    "types",
    [
        {"key": pa.large_binary(), "value": pa.large_binary()},
        {"headers": OTHER_HEADERS},
        {"headers": pa.large_list(OTHER_HEADERS.value_type)},
        {"headers": pa.list_(pa.field("element", HEADERS.value_type))},
        {"timestamp": pa.timestamp("ms")},
        {"timestamp": pa.timestamp("ms", "UTC")},
        {"offset": pa.uint64()},
        {"offset": pa.int32()},
    ],
    ids=str,
)
def test_other_types_are_cast(types: dict[str, pa.DataType]) -> None:
    assert back(as_types(**types)) == ROWS


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_finer_timestamps_become_milliseconds(unit: str) -> None:
    """Microseconds must not be taken for milliseconds."""
    fine = TABLE.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp(unit, "UTC"))
    assert back(TABLE.set_column(1, "timestamp", fine)) == ROWS


def test_text_is_taken_for_its_bytes() -> None:
    texts = pa.array(["größe", "", None, "b", "c"])
    for column in (texts, texts.cast(pa.large_string()), texts.dictionary_encode()):
        found = back(TABLE.set_column(2, "key", column).set_column(3, "value", column))
        assert [row["key"] for row in found] == ["größe".encode(), b"", None, b"b", b"c"]
        assert [row["value"] for row in found] == [row["key"] for row in found]


def test_columns_that_are_all_null_are_nulls() -> None:
    nothing = pa.nulls(TABLE.num_rows)
    found = back(TABLE.set_column(2, "key", nothing).set_column(3, "value", nothing))
    assert {(row["key"], row["value"]) for row in found} == {(None, None)}


def test_a_table_as_python_makes_it_is_good_enough() -> None:
    assert back(pa.Table.from_pylist(ROWS)) == ROWS


def test_no_headers_are_a_common_case() -> None:
    found = from_columns(*(TABLE.column(field.name).combine_chunks() for field in list(SCHEMA)[:4]))
    assert to_table(found).to_pylist() == [{**row, "headers": []} for row in ROWS]


# -- tables that are refused


@pytest.mark.parametrize("name", ["offset", "timestamp", "headers"])
def test_nulls_where_a_record_needs_something_are_refused_by_name(name: str) -> None:
    row = {**ROWS[0], name: None}
    fields = [field.with_nullable(True) for field in SCHEMA]
    with pytest.raises(ValueError, match=f"column {name} contains nulls"):
        from_table(pa.Table.from_pylist([ROWS[0], row], pa.schema(fields)))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_is_refused(header: dict[str, Any] | None) -> None:
    """A null in the list must not become a header with an empty key."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[], [header]], pa.list_(pair))
    with pytest.raises(ValueError, match="column headers"):
        from_table(TABLE.slice(0, 2).set_column(4, "headers", headers))


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="value"):
        from_table(TABLE.drop(["value"]))


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "value", "headers"])
@pytest.mark.parametrize("wrong", [[True], 1.5, {"a": 1}], ids=str)
def test_a_column_that_cannot_be_cast_is_named(name: str, wrong: object) -> None:
    at = TABLE.schema.get_field_index(name)
    with pytest.raises(ValueError, match=f"column {name} cannot be converted"):
        from_table(TABLE.set_column(at, name, pa.array([wrong] * TABLE.num_rows)))


# -- damaged records


def tail(data: bytes) -> Records:
    """Return one record with this tail."""
    zero = np.zeros(1, np.int64)
    return Records(np.frombuffer(data, np.uint8), zero, np.array([len(data)], np.int64), zero, zero)


HUGE = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2**63 - 1, as a varint
BELOW = b"\xff" * 9 + b"\x01"  # the smallest number


@pytest.mark.parametrize(
    "data",
    [
        b"\x04k",
        b"\x03",
        HUGE + b"k",
        BELOW + b"k",
        b"\x80" * 11,
        b"\x80",
        b"\x02k",
        b"\x02k" + HUGE,
        b"\x02k" + BELOW,
        b"\x02k\x04v",
        b"\x02k\x02v",
        b"\x02k\x02v\x01",
        b"\x02k\x02v" + HUGE,
        b"\x02k\x02v\x02",
        b"\x02k\x02v\x02\x02h",
        b"\x02k\x02v\x02\x02h\x04v",
        b"\x02k\x02v\x02\x01\x02v",
        b"\x02k\x02v\x02" + HUGE + b"h\x02v",
        b"\x02k\x02v\x02\x02h" + HUGE + b"v",
        b"\x02k\x02v\x02\x02\xff\x02v",
        b"\x02k\x02v\0more",
    ],
)
@pytest.mark.parametrize("many", [1, 100])
def test_a_damaged_record_is_refused_by_itself_and_among_many(data: bytes, many: int) -> None:
    good = from_table(pa.Table.from_pylist([ROWS[3]] * many, SCHEMA))
    at = len(good.data)
    both = Records(
        np.concatenate([good.data, np.frombuffer(data, np.uint8)]),
        *(
            np.append(column, value)
            for column, value in (
                (good.starts, at),
                (good.ends, at + len(data)),
                (good.offsets, 0),
                (good.timestamps, 0),
            )
        ),
    )
    for found in (tail(data), both):
        with pytest.raises(CorruptBatch):
            to_table(found)


@pytest.mark.parametrize("data", [HUGE + b"k", BELOW + b"k", b"\x80" * 11, b"\x80", b"\x04k", b"\x03"])
def test_keys_longer_than_their_record_are_refused(data: bytes) -> None:
    """Also a length near the largest number, and a varint without an end."""
    with pytest.raises(CorruptBatch, match="key"):
        tail(data).keys()


def test_a_record_with_a_hundred_thousand_headers_is_not_read_in_rounds() -> None:
    """A round costs as much for one record as for many: rounds for each header would take five seconds."""
    headers = [{"key": "a", "value": None}, {"key": "b", "value": b"x"}] * 50_000
    table = pa.Table.from_pylist([{**ROWS[0], "headers": headers}, *ROWS], SCHEMA)
    with patch.object(varints, "read", wraps=varints.read) as rounds:
        assert back(table) == table.to_pylist()
    assert rounds.call_count < 100


@pytest.mark.parametrize("header", [b"\0\0", b"\0\1"])
@pytest.mark.parametrize("count", [MOST_HEADERS + 1, 4_000_000])
def test_a_record_of_countless_headers_is_refused_before_it_takes_memory(header: bytes, count: int) -> None:
    """A few bytes of compressed zeros become millions of empty headers."""
    record = tail(b"\1\1" + varint(2 * count) + header * count)

    def run() -> None:
        with pytest.raises(CorruptBatch, match=f"offset 0 has {count} headers"):
            to_table(record)

    run()
    assert peak(run) < 1 << 20


@given(tables)
def test_headers_read_in_rounds_and_one_by_one_are_the_same(table: pa.Table) -> None:
    found = from_table(table)
    for rounds in (0, 1 << 30):
        with patch.object(arrow, "_ROUND", rounds):
            assert to_table(found).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_headers_of_few_and_of_many_records_are_read_alike(count: int) -> None:
    rows = [{**ROWS[0], "headers": [{"key": f"h{n}", "value": b"v" * n}] * (n % 7)} for n in range(count)]
    assert back(pa.Table.from_pylist(rows, SCHEMA)) == rows
