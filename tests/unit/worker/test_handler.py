"""Message handlers without a broker: what they get, what they may return, and what is said if they fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mirrormaker.errors import SettingError
from mirrormaker.handlers import Record, tables
from mirrormaker.wire.records import arrow
from mirrormaker.wire.records.columns import Records
from mirrormaker.worker.handler import Handler, load, load_handler, load_listener


def some_records(count: int = 5) -> Records:
    """At offsets 10, 12, 14, ..."""
    rows = [
        {
            "offset": 10 + 2 * n, "timestamp": 1000 + n, "key": b"k%d" % n, "value": None if n == 3 else b"v%d" % n,
            "headers": [{"key": "h", "value": None}] if n == 1 else [],
        }
        for n in range(count)
    ]  # fmt: skip
    return arrow.from_table(pa.Table.from_pylist(rows, arrow.SCHEMA))


def outcome(handler: Any) -> tuple[list[tuple[str, int, int, bytes | None]], Any]:
    """(topic, partition or -1, source offset, value) of all that comes out, and the failure."""
    handled, failed = Handler(handler)("t", 4, some_records())
    found = []
    for topic, records, partitions in handled:
        chosen = np.full(len(records), -1) if partitions is None else partitions
        for partition, row in zip(chosen.tolist(), arrow.to_table(records).to_pylist(), strict=True):
            found.append((topic, partition, row["offset"], row["value"]))
    return found, failed


ALL = [("", -1, 10 + 2 * n, None if n == 3 else b"v%d" % n) for n in range(5)]


def test_a_record_has_everything_that_is_known_of_it() -> None:
    seen: list[Record] = []

    def handler(record: Record) -> list[Record]:
        seen.append(record)
        return [record]

    handled, failed = Handler(handler)("t", 4, some_records())
    assert failed is None
    assert seen[0] == Record("t", 4, 10, 1000, b"k0", b"v0")
    assert seen[1].headers == (("h", None),)
    assert seen[3].value is None
    assert [row["headers"] for row in arrow.to_table(handled[0].records).to_pylist()][1] == [
        {"key": "h", "value": None}
    ]


def test_what_is_given_back_is_sent_with_the_offset_it_came_from() -> None:
    def handler(record: Record) -> list[Record]:
        if record.offset == 12:
            return []
        if record.offset == 14:
            return [record, replace(record, topic="other", offset=99), replace(record, partition=7)]
        return [replace(record, partition=None)]

    found, failed = outcome(handler)
    assert failed is None
    assert found == [
        ("", -1, 10, b"v0"), ("", -1, 14, b"v2"), ("", 7, 14, b"v2"), ("", -1, 16, None), ("", -1, 18, b"v4"),
        ("other", -1, 14, b"v2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "must return a list of records (an empty one to drop the record), not None"),
        ([b"value"], "must return a list of records, not of bytes"),
        (5, "TypeError"),
    ],
)
def test_what_is_no_list_of_records_is_refused(given: Any, words: str) -> None:
    found, failed = outcome(lambda record: given)
    assert (found, failed.offset) == ([], 10)
    assert words in failed.cause


def test_values_are_bytes() -> None:
    _, failed = outcome(lambda record: [replace(record, value="text")])
    assert "the value of a record must be bytes or None, not str" in failed.cause


def test_records_before_the_one_that_fails_are_handled() -> None:
    def handler(record: Record) -> list[Record]:
        if record.offset == 14:
            raise KeyError("missing")
        return [record]

    found, failed = outcome(handler)
    assert found == ALL[:2]
    assert (failed.offset, failed.cause) == (14, "its message handler raised KeyError: 'missing'")


def test_a_table_goes_in_and_a_table_comes_out() -> None:
    @tables
    def handler(table: pa.Table) -> pa.Table:
        assert table["topic"].to_pylist() == ["t"] * 5
        assert table["partition"].to_pylist() == [4] * 5
        kept = table.filter(pc.greater(table["offset"], 12))
        names = pa.array(["t" if n < 18 else "other" for n in kept["offset"].to_pylist()])
        return kept.set_column(kept.column_names.index("topic"), "topic", names)

    found, failed = outcome(handler)
    assert failed is None
    assert found == [*ALL[2:4], ("other", *ALL[4][1:])]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.to_pylist(), "must return an Arrow table, not list"),
        (lambda table: table.drop_columns(["key", "value"]), "has no column key, value"),
        (lambda table: table.take(list(reversed(range(table.num_rows)))), "must keep the source offsets, in order"),
    ],
)
def test_what_is_no_such_table_is_refused(change: Any, words: str) -> None:
    _, failed = outcome(tables(lambda table: change(table)))
    assert failed.offset == 10
    assert words in failed.cause


def test_the_row_that_a_table_fails_for_is_found() -> None:
    @tables
    def handler(table: pa.Table) -> pa.Table:
        if 14 in table["offset"].to_pylist():
            raise ValueError("not this one")
        return table

    found, failed = outcome(handler)
    assert found == ALL[:2]
    assert (failed.offset, failed.cause) == (14, "its message handler raised ValueError: not this one")


def test_everything_may_be_dropped() -> None:
    assert outcome(lambda record: []) == ([], None)
    assert outcome(tables(lambda table: table.slice(0, 0))) == ([], None)


# -- loading


class WithArguments:
    deterministic = False

    def __init__(self, text: str) -> None:
        if text == "bad":
            raise ValueError("no such mode")

    def __call__(self, record: Record) -> list[Record]:
        return [record]


NUMBER = 5


def test_a_class_is_made_with_its_arguments() -> None:
    assert load_handler((f"{__name__}:WithArguments", "good")).is_deterministic is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("", None, "must be package.module:name"),
        ("json:nothing", None, "there is no nothing in json"),
        ("no.such.module:f", None, "No module named 'no'; is its directory in PYTHONPATH?"),
        ("json:loads", "x", "it is not a class"),
        (f"{__name__}:NUMBER", None, "it cannot be called"),
        (f"{__name__}:WithArguments", "bad", "ValueError: no such mode"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_reason(name: str, args: str | None, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        load_handler((name, args))
    assert str(refused.value).startswith(f"--message.handler {name}: ")
    assert words in str(refused.value)


def test_a_listener_needs_both_methods() -> None:
    with pytest.raises(SettingError, match="it has no method on_partitions_assigned"):
        load_listener("json:JSONDecoder", None)
    assert load("json:loads", None)("1") == 1
