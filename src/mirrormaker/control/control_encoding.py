"""Orders and reports as bytes: JSON in pieces of bounded size, and of a position only what changed.

A session delivers each message once and in order, or ends, and the stream ends with it. So both ends always know the same last
position of each tenancy, first the one that was taken and then the one that was last reported, and a report says only what is
different now. Bytes that are no message raise `BadMessage`, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from mirrormaker.control.control_messages import (
    CannotDeliver,
    CounterReport,
    Ended,
    NeedsIdentity,
    Order,
    Outcome,
    PartitionReport,
    Released,
    Report,
    Stopped,
    Take,
)
from mirrormaker.errors import BadMessage
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Place, Position
from mirrormaker.wire.protocol.codec import TopicPartition

# A message ends with the row that brings it to so many bytes. The driver takes in such a piece of a report in 5 ms or so.
PIECE = 16 << 10
# The limit of one message: a row has one partition, and the ledger bounds its position to a fraction of this.
MAX_MESSAGE = 4 << 20
# The longest note or reason, in characters: an error of a message handler may quote a whole record.
_MAX_TEXT = 2000

_ID_BYTES = 16  # of a topic's id
# A partition's row in a report, without its counters: see `StreamEnd._row`.
_ROW_TYPES = [int, int, int, list, list, str, str, int, int, int, list]

T = TypeVar("T")

_dumps = json.JSONEncoder(separators=(",", ":")).encode


class DriverEnd:
    """The driver's end of a session: writes orders, reads reports."""

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}  # by tenancy

    def orders(self, order: Order) -> list[bytes]:
        """Return an order as messages."""
        self._positions.update((take.tenancy, take.position) for take in order.take)
        last: dict[str, Any] = {}
        if order.stop:
            last["stop"] = True
        if order.heard is not None:
            last["heard"] = order.heard
        return _pieces(_order_rows(order), {}, last)

    def report(self, message: bytes) -> Report:
        """Read a message of the stream."""
        return _decode(message, self._report)

    def _report(self, data: dict[str, Any]) -> Report:
        match data["process"]:
            case [int(buffer_bytes), int() | float() as cpu_seconds, int(memory_bytes)]:
                return Report(
                    _integer(data.get("number", 0)),
                    tuple(self._partition(row, clean=False) for row in data.get("partitions", ())),
                    tuple(self._ended(row) for row in data.get("ended", ())),
                    _keys(data.get("never_taken", ())),
                    buffer_bytes,
                    float(cpu_seconds),
                    memory_bytes,
                )
        raise BadMessage("a report without the figures of its process")

    def _partition(self, row: Any, *, clean: bool) -> PartitionReport:
        tenancy, offset, leader_epoch, cuts, ids, state, note, records, size, high_watermark, runs, counters = row
        if list(map(type, row[:-1])) != _ROW_TYPES:
            raise BadMessage("a partition's row in a report cannot be read")
        moved = [Cut.from_json(cut) for cut in cuts]
        position = self._positions[tenancy].advanced(offset, leader_epoch, moved)
        if ids:
            source_id, target_id = _topic_ids(ids)
            position = replace(position, topic_id=source_id, target_topic_id=target_id)
        self._positions[tenancy] = position
        counted = None if counters is None else _counters(counters)
        noted = tuple(map(_runs, runs))
        return PartitionReport(position, tenancy, state, note, records, size, high_watermark, clean, counted, noted)

    def _ended(self, row: Any) -> Ended:
        match row:
            case [partition, bool(clean), outcome]:
                ended = Ended(self._partition(partition, clean=clean), _outcome(outcome))
                del self._positions[ended.partition.tenancy]
                return ended
        raise BadMessage("the end of a partition cannot be read")


class StreamEnd:
    """A stream's end of a session: reads orders, writes reports."""

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}  # by tenancy

    def order(self, message: bytes) -> Order:
        """Read a message of the driver."""
        order = _decode(message, _order)
        self._positions.update((take.tenancy, take.position) for take in order.take)
        return order

    def reports(self, report: Report) -> list[bytes]:
        """Return a report as messages."""
        process = {"process": [report.buffer_bytes, report.cpu_seconds, report.memory_bytes]}
        return _pieces(self._report_rows(report), process, {"number": report.number})

    def _report_rows(self, report: Report) -> Iterator[tuple[str, Any]]:
        for partition in report.partitions:
            yield "partitions", self._row(partition)
        for ended in report.ended:
            yield "ended", [self._row(ended.partition), ended.partition.clean, _outcome_row(ended.outcome)]
            del self._positions[ended.partition.tenancy]
        for key in report.never_taken:
            yield "never_taken", key

    def _row(self, part: PartitionReport) -> list[Any]:
        position, before = part.position, self._positions[part.tenancy]
        moved = position.cuts_since(before)
        ids = [position.topic_id, position.target_topic_id]
        if ids == [before.topic_id, before.target_topic_id]:
            ids = []  # as always, but for the time when a cluster from before Kafka 2.8 is upgraded
        self._positions[part.tenancy] = position
        counters = part.counters
        return [
            part.tenancy, position.offset, position.leader_epoch, [cut.to_json() for cut in moved], ids, part.state,
            _clip(part.note), part.records, part.bytes, part.high_watermark, list(map(_runs_row, part.runs)),
            None if counters is None else list(counters.__dict__.values()),
        ]  # fmt: skip


def _topic_ids(row: Any) -> tuple[str, str]:
    """Return the ids of a partition's topics on source and target."""
    match row:
        case [str(source_id), str(target_id)]:
            if {len(bytes.fromhex(source_id)), len(bytes.fromhex(target_id))} <= {0, _ID_BYTES}:
                return source_id, target_id
    raise BadMessage("the topic ids of a partition cannot be read")


# -- pieces


def _pieces(rows: Iterable[tuple[str, Any]], every: dict[str, Any], last: dict[str, Any]) -> list[bytes]:
    """Return messages with all rows in their order; each has the fields `every`, and the last one the fields `last`."""
    pieces: list[bytes] = []
    lists: dict[str, list[str]] = {}
    size = 0
    for name, row in rows:
        text = _dumps(row)
        lists.setdefault(name, []).append(text)
        size += len(text) + 1
        if size >= PIECE:
            pieces.append(_piece(lists, every))
            lists, size = {}, 0
    return [*pieces, _piece(lists, {**every, **last})]


def _piece(lists: dict[str, list[str]], fields: dict[str, Any]) -> bytes:
    parts = [f'"{name}":[{",".join(rows)}]' for name, rows in lists.items()]
    parts += [f'"{name}":{_dumps(value)}' for name, value in fields.items()]
    return f"{{{','.join(parts)}}}".encode("ascii")


def _decode(message: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    try:
        data = json.loads(message)
        if not isinstance(data, dict):
            raise BadMessage("a control message is no JSON object")
        return build(data)
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise BadMessage(f"a control message cannot be read ({type(error).__name__})") from error


# -- orders


def _order_rows(order: Order) -> Iterator[tuple[str, Any]]:
    for take in order.take:
        yield "take", [take.position.to_json(), take.clean, take.tenancy]
    for key in order.release:
        yield "release", key


def _order(data: dict[str, Any]) -> Order:
    heard = data.get("heard")
    return Order(
        tuple(_take(row) for row in data.get("take", ())),
        _keys(data.get("release", ())),
        bool(data.get("stop", False)),
        None if heard is None else _integer(heard),
    )


def _take(row: Any) -> Take:
    match row:
        case [position, bool(clean), int(tenancy)]:
            return Take(Position.from_json(position), clean, tenancy)
    raise BadMessage("an order to take a partition cannot be read")


# -- parts of reports


def _outcome_row(outcome: Outcome) -> list[Any]:
    match outcome:
        case Stopped(reason, final):
            return ["stopped", _clip(reason), final]
        case NeedsIdentity(restart_at, reason, topics):
            return ["needs-identity", int(restart_at), _clip(reason), topics]
        case CannotDeliver(offset, cause, reason):
            return ["cannot-deliver", offset, _clip(cause), _clip(reason)]
    return ["released"]


def _outcome(row: Any) -> Outcome:
    match row:
        case ["released"]:
            return Released()
        case ["stopped", str(reason), bool(final)]:
            return Stopped(reason, final)
        case ["needs-identity", int(restart_at), str(reason), list(topics)]:
            return NeedsIdentity(restart_at, reason, tuple(map(_text, topics)))
        case ["cannot-deliver", int(offset), str(cause), str(reason)]:
            return CannotDeliver(offset, cause, reason)
    raise BadMessage("a partition's outcome cannot be read")


def _runs_row(noted: tuple[Place, Sequence[NotedRun]]) -> list[Any]:
    (topic, partition), runs = noted
    return [topic, partition, list(chain.from_iterable(runs))]


def _runs(row: Any) -> tuple[Place, tuple[NotedRun, ...]]:
    match row:
        case [str(topic), int(partition), [_, *_] as numbers] if set(map(type, numbers)) == {int}:
            if len(numbers) % 4 == 0 and min(numbers) >= 0:
                return (topic, partition), tuple(map(NotedRun, *[iter(numbers)] * 4))
    raise BadMessage("the runs of a partition cannot be read")


def _counters(row: Any) -> CounterReport:
    forwarded, repacked, latencies, milliseconds, retries, resumes = row
    counts = tuple((_integer(at), _integer(count)) for at, count in latencies)
    return CounterReport(
        _integer(forwarded), _integer(repacked), counts, _integer(milliseconds), _integer(retries), _integer(resumes)
    )


def _keys(rows: Any) -> tuple[TopicPartition, ...]:
    return tuple((_text(topic), _integer(partition)) for topic, partition in rows)


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise BadMessage("a control message has something else where a number belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadMessage("a control message has something else where a text belongs")
    return value


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
