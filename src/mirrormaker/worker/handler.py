"""Message handlers: user code that every record passes through.

A handler is a function, or a callable object, from a `Record` to a list of records. With the decorator `@tables` it is
one from an Arrow table to an Arrow table. A class is instantiated first, with the text of `--message.handler.args` if
there is any.
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
    """One record, as a message handler gets and returns it; `dataclasses.replace` makes a changed one.

    `partition` is the source partition. A returned record with another number goes to that target partition; with the
    same number or None, the partitioner chooses.
    """

    topic: str
    partition: int | None
    offset: int  # at the source
    timestamp: int  # milliseconds since 1970; -1 if the producer set none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def tables(function: F) -> F:
    """Mark a handler (a function, or a class with `__call__`) as one from Arrow table to Arrow table."""
    function.takes_tables = True  # type: ignore[attr-defined]
    return function


class Handled(NamedTuple):
    """A handler's records for one topic. Their offsets are those of the source records that they come from."""

    topic: str  # empty: the name of the source topic
    records: Records
    # The target partition of each record; -1, or None for all of them: the partitioner chooses.
    partitions: Ints | None

    def between(self, start: int, stop: int) -> Handled:
        """Return the records that come from a range of source offsets."""
        some = slice(*np.searchsorted(self.records.offsets, [start, stop]).tolist())
        return Handled(self.topic, self.records[some], None if self.partitions is None else self.partitions[some])


class HandlerFailed(NamedTuple):
    """A handler raised an exception: the source offset of the record, and the exception as text."""

    offset: int
    cause: str


class _BadTable(Exception):
    """The handler returned a table that cannot be sent; that is not the fault of one record."""


class Handler:
    """A loaded handler."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        """`call` is the user's function or object."""
        self._call = call
        self._takes_tables = bool(getattr(call, "takes_tables", False))
        self.is_deterministic = bool(getattr(call, "deterministic", True))

    def __call__(self, topic: str, partition: int, records: Records) -> tuple[list[Handled], HandlerFailed | None]:
        """Return the handler's records, up to the first source record at which it fails, and that failure."""
        table = arrow.to_table(records)
        return (self._by_table if self._takes_tables else self._by_record)(topic, partition, table)

    # -- handlers from record to records

    def _by_record(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        by_topic: dict[str, list[tuple[int, Record]]] = {}
        failed = None
        columns = [table.column(field.name).to_pylist() for field in arrow.SCHEMA]
        for offset, timestamp, key, value, headers in zip(*columns, strict=True):
            pairs = tuple((h["key"], h["value"]) for h in headers) if headers else ()
            try:
                for out in _checked(self._call(Record(topic, partition, offset, timestamp, key, value, pairs))):
                    by_topic.setdefault("" if out.topic == topic else out.topic, []).append((offset, out))
            except (Exception, SystemExit) as error:
                failed = HandlerFailed(offset, _cause(error))
                break
        return [_records_of(name, rows, partition) for name, rows in by_topic.items()], failed

    # -- handlers from table to table

    def _by_table(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        try:
            return self._handle_table(topic, partition, table), None
        except _BadTable as error:
            return [], HandlerFailed(table.column("offset")[0].as_py(), f"its message handler is wrong: {error}")
        except (Exception, SystemExit):
            return self._row_by_row(topic, partition, table)

    def _row_by_row(self, topic: str, partition: int, table: pa.Table) -> tuple[list[Handled], HandlerFailed | None]:
        """Hand over the rows one at a time, to find the record that fails; perhaps none of them fails alone."""
        handled: list[Handled] = []
        for row in range(table.num_rows):
            try:
                handled += self._handle_table(topic, partition, table.slice(row, 1))
            except (Exception, SystemExit) as error:
                return handled, HandlerFailed(table.column("offset")[row].as_py(), _cause(error))
        return handled, None

    def _handle_table(self, topic: str, partition: int, table: pa.Table) -> list[Handled]:
        count = table.num_rows
        with_place = table.append_column("topic", pa.array([topic] * count, pa.string())).append_column(
            "partition", pa.array(np.full(count, partition, np.int32))
        )
        out = self._call(with_place)
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
        chosen = _chosen_partitions(out, partition)
        handled = []
        for name in dict.fromkeys(names.tolist()):
            mine = np.flatnonzero(names == name)
            rows = out if len(mine) == out.num_rows else out.take(pa.array(mine))
            records = arrow.from_table(rows)
            handled.append(Handled("" if name == topic else name, records, None if chosen is None else chosen[mine]))
        return handled


def _chosen_partitions(out: pa.Table, partition: int) -> Ints | None:
    """Return the target partitions that the handler chose; -1 where it left the source partition's number."""
    if "partition" not in out.column_names:
        return None
    chosen = out.column("partition").fill_null(-1).to_numpy().astype(np.int64)
    chosen = np.where(chosen == partition, -1, chosen)
    return chosen if (chosen >= 0).any() else None


def _checked(returned: Any) -> Iterable[Record]:
    """Return what a handler returned, if it is a list of proper records; raise TypeError or ValueError if not."""
    if returned is None:
        raise TypeError("it must return a list of records (an empty one to drop the record), not None")
    records = list(returned) if not isinstance(returned, Record) else [returned]
    for out in records:
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
    return records


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
    """Return the object that `package.module:name` names; a class is instantiated, with `args` if there are any."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise SettingError(f"{option} {name}: this must be package.module:name", option=True)
    try:
        loaded: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            loaded = getattr(loaded, part)
    except ImportError as error:
        raise SettingError(f"{option} {name}: {error}; is its directory in PYTHONPATH?", option=True) from error
    except AttributeError as error:
        raise SettingError(f"{option} {name}: there is no {attribute} in {module_name}", option=True) from error
    except Exception as error:
        raise SettingError(
            f"{option} {name}: importing {module_name} failed: {type(error).__name__}: {error}", option=True
        ) from error
    if inspect.isclass(loaded):
        try:
            return loaded(args) if args is not None else loaded()  # type: ignore[call-arg]
        except Exception as error:
            raise SettingError(f"{option} {name}: {type(error).__name__}: {error}", option=True) from error
    if args is not None:
        raise SettingError(f"{option} {name}: it is not a class, so it cannot take arguments", option=True)
    return loaded


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
    """Return the rebalance listener: an object with the two methods of kafka-python's ConsumerRebalanceListener."""
    option = "--consumer.rebalance.listener"
    loaded = load(name, args, option)
    for method in ("on_partitions_assigned", "on_partitions_revoked"):
        if not callable(getattr(loaded, method, None)):
            raise SettingError(f"{option} {name}: it has no method {method}", option=True)
    return loaded
