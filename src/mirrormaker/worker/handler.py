"""Message handlers: user code that sees every record on its way. Two shapes, told apart by what they declare.

A function (or an object that can be called) from a `Record` to a list of records; or, marked with `@tables`, from an Arrow table
to an Arrow table. A class is made first, with the text of `--message.handler.args` if there is any.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from mirrormaker.errors import SettingError
from mirrormaker.wire.records import arrow
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.varints import Ints

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Record:
    """One record, as a message handler sees it. `replace(record, value=...)` makes a changed one."""

    topic: str
    partition: (
        int | None
    )  # of the source; in a record that is given back: where it must go, or None (also if left as it is)
    offset: int  # at the source
    timestamp: int  # milliseconds since 1970; -1 where the producer gave none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def tables(function: F) -> F:
    """Mark a handler (a function, or a class that can be called) as one from Arrow table to Arrow table."""
    function.takes_tables = True  # type: ignore[attr-defined]
    return function


class Handled(NamedTuple):
    """What becomes of some records: those for one topic, with the source offset from which each one came."""

    topic: str  # empty: the source topic's name
    records: Records
    partitions: Ints | None  # where each must go; -1, or None for all: as the partitioner says

    def of(self, start: int, stop: int) -> Handled:
        """Those that came from a range of source offsets."""
        few = slice(*np.searchsorted(self.records.offsets, [start, stop]).tolist())
        return Handled(self.topic, self.records[few], None if self.partitions is None else self.partitions[few])


class HandlerFailed(NamedTuple):
    """A handler raised: at which source offset, and what it said."""

    offset: int
    cause: str


class _BadTable(Exception):
    """What came out is no table that could be sent: no record is to blame for that."""


class Handler:
    """A loaded handler."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call
        self._takes_tables = bool(getattr(call, "takes_tables", False))
        self.is_deterministic = bool(getattr(call, "deterministic", True))

    def __call__(self, topic: str, partition: int, records: Records) -> tuple[list[Handled], HandlerFailed | None]:
        """What becomes of the records, up to the first one at which the handler fails."""
        table = arrow.to_table(records)
        return (self._by_table if self._takes_tables else self._by_record)(topic, partition, table)

    # -- from record to records

    def _by_record(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        given: dict[str, list[tuple[int, Record]]] = {}
        failed = None
        columns = [table.column(field.name).to_pylist() for field in arrow.SCHEMA]
        for offset, timestamp, key, value, headers in zip(*columns, strict=True):
            pairs = tuple((h["key"], h["value"]) for h in headers) if headers else ()
            try:
                for out in _checked(self._call(Record(topic, partition, offset, timestamp, key, value, pairs))):
                    given.setdefault("" if out.topic == topic else out.topic, []).append((offset, out))
            except (Exception, SystemExit) as error:
                failed = HandlerFailed(offset, _cause(error))
                break
        return [_records_of(name, rows, partition) for name, rows in given.items()], failed

    # -- from table to table

    def _by_table(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        try:
            return self._whole(topic, partition, table), None
        except _BadTable as error:
            return [], HandlerFailed(table.column("offset")[0].as_py(), f"its message handler is wrong: {error}")
        except (Exception, SystemExit):
            return self._row_by_row(topic, partition, table)

    def _row_by_row(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        """Name the record: the table's rows, one at a time, until one fails alone. Perhaps none does."""
        found: list[Handled] = []
        for row in range(table.num_rows):
            try:
                found += self._whole(topic, partition, table.slice(row, 1))
            except (Exception, SystemExit) as error:
                return found, HandlerFailed(table.column("offset")[row].as_py(), _cause(error))
        return found, None

    def _whole(self, topic: str, partition: int, table: pa.Table) -> list[Handled]:
        count = table.num_rows
        given = table.append_column("topic", pa.array([topic] * count, pa.string())).append_column(
            "partition", pa.array(np.full(count, partition, np.int32))
        )
        out = self._call(given)
        if not isinstance(out, pa.Table):
            raise _BadTable(f"it must return an Arrow table, not {type(out).__name__}")
        missing = [field.name for field in arrow.SCHEMA if field.name not in out.column_names]
        if missing:
            raise _BadTable(f"the table that it returned has no column {', '.join(missing)}")
        offsets = out.column("offset").to_numpy()
        given_offsets = table.column("offset").to_numpy()
        if np.any(np.diff(offsets) < 0) or not np.isin(offsets, given_offsets).all():
            raise _BadTable("the table that it returned must keep the source offsets, in order")
        names = out.column("topic").to_numpy() if "topic" in out.column_names else np.full(out.num_rows, topic)
        if not all(isinstance(name, str) and name for name in dict.fromkeys(names.tolist())):
            raise _BadTable("the table that it returned has rows without a topic")
        wanted = _wanted(out, partition)
        found = []
        for name in dict.fromkeys(names.tolist()):
            mine = np.flatnonzero(names == name)
            rows = out if len(mine) == out.num_rows else out.take(pa.array(mine))
            records = arrow.from_table(rows)
            found.append(Handled("" if name == topic else name, records, None if wanted is None else wanted[mine]))
        return found


def _wanted(out: pa.Table, partition: int) -> Ints | None:
    """Partitions that the handler chose: those that are not the source's."""
    if "partition" not in out.column_names:
        return None
    chosen = out.column("partition").fill_null(-1).to_numpy().astype(np.int64)
    chosen = np.where(chosen == partition, -1, chosen)
    return chosen if (chosen >= 0).any() else None


def _checked(given: Any) -> Iterable[Record]:
    if given is None:
        raise TypeError("it must return a list of records (an empty one to drop the record), not None")
    found = list(given) if not isinstance(given, Record) else [given]
    for out in found:
        if not isinstance(out, Record):
            raise TypeError(f"it must return a list of records, not of {type(out).__name__}")
        for name, value, kind, wanted in (
            ("topic", out.topic, str, "text"),
            ("partition", out.partition, int | None, "a number or None"),
            ("timestamp", out.timestamp, int, "a number"),
            ("key", out.key, bytes | None, "bytes or None"),
            ("value", out.value, bytes | None, "bytes or None"),
            ("headers", out.headers, tuple | list, "pairs of text and bytes"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"the {name} of a record must be {wanted}, not {type(value).__name__}")
        for header in out.headers:
            if not (len(header) == 2 and isinstance(header[0], str) and isinstance(header[1], bytes | None)):
                raise TypeError(f"the headers of a record must be pairs of text and bytes or None, not {header!r}")
            header[0].encode()
        if not out.topic or (out.partition is not None and out.partition < 0):
            raise ValueError(f"there is no partition {out.topic}-{out.partition}")
    return found


def _records_of(topic: str, rows: list[tuple[int, Record]], partition: int) -> Handled:
    headers = None
    if any(out.headers for _, out in rows):
        headers = pa.array([[{"key": k, "value": v} for k, v in out.headers] for _, out in rows], arrow.HEADERS)
    records = arrow.from_columns(
        pa.array([offset for offset, _ in rows], pa.int64()),
        pa.array([out.timestamp for _, out in rows], pa.int64()),
        pa.array([out.key for _, out in rows], pa.binary()),
        pa.array([out.value for _, out in rows], pa.binary()),
        headers,
    )
    chosen = np.array([-1 if out.partition in (None, partition) else out.partition for _, out in rows], np.int64)
    return Handled(topic, records, chosen if (chosen >= 0).any() else None)


def _cause(error: BaseException) -> str:
    return f"its message handler raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def load(name: str, args: str | None, option: str = "--message.handler") -> Any:
    """What `package.module:name` stands for; a class is made, with its arguments."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise SettingError(f"{option} {name}: this must be package.module:name", option=True)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise SettingError(f"{option} {name}: {error}; is its directory in PYTHONPATH?", option=True) from error
    except AttributeError as error:
        raise SettingError(f"{option} {name}: there is no {attribute} in {module_name}", option=True) from error
    except Exception as error:
        raise SettingError(
            f"{option} {name}: importing {module_name} failed: {type(error).__name__}: {error}", option=True
        ) from error
    if inspect.isclass(found):
        try:
            return found(args) if args is not None else found()  # type: ignore[call-arg]
        except Exception as error:
            raise SettingError(f"{option} {name}: {type(error).__name__}: {error}", option=True) from error
    if args is not None:
        raise SettingError(f"{option} {name}: it is not a class, so nothing takes the arguments that are given")
    return found


def load_handler(
    reference: tuple[str, str | None] | None, handler: Callable[[Any], Any] | None = None
) -> Handler | None:
    """Return the handler that is given as an object, or by name and arguments; None if there is none."""
    if handler is not None:
        return Handler(handler)
    if reference is None:
        return None
    found = load(*reference)
    if not callable(found):
        raise SettingError(f"--message.handler {reference[0]}: it cannot be called", option=True)
    return Handler(found)


def load_listener(name: str, args: str | None) -> Any:
    """Anything with the two methods of kafka-python's ConsumerRebalanceListener."""
    option = "--consumer.rebalance.listener"
    found = load(name, args, option)
    for method in ("on_partitions_assigned", "on_partitions_revoked"):
        if not callable(getattr(found, method, None)):
            raise SettingError(f"{option} {name}: it has no method {method}", option=True)
    return found
