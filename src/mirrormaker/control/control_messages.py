"""The messages between driver and streams, as values; on the wire each is one line of JSON.

A stream says `Hello` once and then `Report` twice a second. The driver says `Challenge` once and then `Order` whenever it has one.
`decode_*` validates at the edge: anything that is not such a message raises `BadMessage`, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mirrormaker.errors import BadMessage
from mirrormaker.model.position import Position
from mirrormaker.wire.protocol.codec import TopicPartition

VERSION = 1
MAX_LINE = 64 << 20  # bytes: a report of 100,000 partitions

T = TypeVar("T")


# -- the first words


@dataclass(frozen=True)
class Challenge:
    """Driver to stream: prove that you know the secret."""

    nonce: bytes


@dataclass(frozen=True)
class Hello:
    """Stream to driver: the proof, and which attempt at which stream this is."""

    proof: str
    flow: int
    job: int
    stream: int
    attempt: int


# -- orders


@dataclass(frozen=True)
class Take:
    """Mirror this partition from its position on.

    `clean`: no earlier sender can have requests under way. `tenancy` tells this stay on the stream from earlier ones.
    """

    position: Position
    clean: bool
    tenancy: int


@dataclass(frozen=True)
class Order:
    """Driver to stream. `heard` is the number of the last report that the driver has answered: it extends the lease."""

    take: tuple[Take, ...] = ()
    release: tuple[TopicPartition, ...] = ()
    stop: bool = False
    heard: int | None = None


# -- reports


@dataclass(frozen=True)
class CounterReport:
    """Figures for status page and metrics that are new since the last report."""

    batches_forwarded: int
    batches_repacked: int
    latency_counts: tuple[tuple[int, int], ...]  # (latency class, records)
    latency_ms: int  # sum over all records
    retries: int
    resumes: int


@dataclass(frozen=True)
class PartitionReport:
    """How far one partition is. `records` and `bytes` count from when the stream took the partition."""

    position: Position
    tenancy: int
    state: str
    note: str = ""
    records: int = 0
    bytes: int = 0
    high_watermark: int = -1
    clean: bool = False
    counters: CounterReport | None = None


@dataclass(frozen=True)
class Released:
    """The stream let go of the partition because it was asked to."""


@dataclass(frozen=True)
class Stopped:
    """The partition cannot go on for now; `final` if trying again would not help."""

    reason: str
    final: bool


@dataclass(frozen=True)
class NeedsIdentity:
    """The partition needs a new producer identity; `restart_at` is a `RestartAt`, `topics` are those that a handler writes to."""

    restart_at: int
    reason: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class CannotDeliver:
    """The target will never take the record at this offset."""

    offset: int
    cause: str
    reason: str


Outcome = Released | Stopped | NeedsIdentity | CannotDeliver


@dataclass(frozen=True)
class Ended:
    """A stream's last word on a partition."""

    partition: PartitionReport
    outcome: Outcome


@dataclass(frozen=True)
class Report:
    """Stream to driver: its partitions, those that ended since the last report, and figures of its process.

    `never_taken` are partitions that the driver asked to release and that the stream does not have.
    """

    number: int
    partitions: tuple[PartitionReport, ...] = ()
    ended: tuple[Ended, ...] = ()
    never_taken: tuple[TopicPartition, ...] = ()
    buffer_bytes: int = 0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0


# -- on the wire


_OUTCOMES: dict[str, type[Outcome]] = {
    "released": Released,
    "stopped": Stopped,
    "needs-identity": NeedsIdentity,
    "cannot-deliver": CannotDeliver,
}
_OUTCOME_NAMES = {kind: name for name, kind in _OUTCOMES.items()}


def encode(message: Challenge | Hello | Order | Report) -> bytes:
    """Return a message as one line."""
    return json.dumps(_ENCODERS[type(message)](message), separators=(",", ":")).encode() + b"\n"


def decode_challenge(line: bytes) -> Challenge:
    """Read the driver's first line."""
    return _decode(line, lambda data: Challenge(bytes.fromhex(data["nonce"])))


def decode_hello(line: bytes) -> Hello:
    """Read a stream's first line."""
    return _decode(
        line,
        lambda data: Hello(
            str(data["proof"]), int(data["flow"]), int(data["job"]), int(data["stream"]), int(data["attempt"])
        ),
    )


def decode_order(line: bytes) -> Order:
    """Read a line of the driver."""
    return _decode(line, _order)


def decode_report(line: bytes) -> Report:
    """Read a line of a stream."""
    return _decode(line, _report)


def _decode(line: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    try:
        data = json.loads(line)
        if data["version"] != VERSION:
            raise BadMessage(f"a control message has version {data['version']}; this program speaks {VERSION}")
        return build(data)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise BadMessage(f"a control message cannot be read ({type(error).__name__})") from error


def _encode_challenge(message: Challenge) -> dict[str, Any]:
    return {"version": VERSION, "nonce": message.nonce.hex()}


def _encode_hello(message: Hello) -> dict[str, Any]:
    return {"version": VERSION, **message.__dict__}


def _encode_order(order: Order) -> dict[str, Any]:
    data: dict[str, Any] = {"version": VERSION}
    if order.take:
        data["take"] = [(take.position.to_json(), take.clean, take.tenancy) for take in order.take]
    if order.release:
        data["release"] = order.release
    if order.stop:
        data["stop"] = True
    if order.heard is not None:
        data["heard"] = order.heard
    return data


def _order(data: dict[str, Any]) -> Order:
    return Order(
        tuple(
            Take(Position.from_json(position), bool(clean), int(tenancy))
            for position, clean, tenancy in data.get("take", ())
        ),
        _keys(data.get("release", ())),
        bool(data.get("stop", False)),
        data.get("heard"),
    )


def _encode_report(report: Report) -> dict[str, Any]:
    return {
        "version": VERSION,
        "number": report.number,
        "partitions": [_encode_partition(partition) for partition in report.partitions],
        "ended": [
            (_encode_partition(ended.partition), _OUTCOME_NAMES[type(ended.outcome)], ended.outcome.__dict__)
            for ended in report.ended
        ],
        "never_taken": report.never_taken,
        "process": (report.buffer_bytes, report.cpu_seconds, report.memory_bytes),
    }


def _report(data: dict[str, Any]) -> Report:
    buffer_bytes, cpu_seconds, memory_bytes = data["process"]
    return Report(
        int(data["number"]),
        tuple(_partition(row) for row in data["partitions"]),
        tuple(Ended(_partition(row), _outcome(name, fields)) for row, name, fields in data["ended"]),
        _keys(data["never_taken"]),
        int(buffer_bytes),
        float(cpu_seconds),
        int(memory_bytes),
    )


def _encode_partition(part: PartitionReport) -> list[Any]:
    counters = part.counters
    return [
        part.position.to_json(), part.tenancy, part.state, part.note, part.records, part.bytes, part.high_watermark, part.clean,
        None if counters is None else list(counters.__dict__.values()),
    ]  # fmt: skip


def _partition(row: Sequence[Any]) -> PartitionReport:
    position, tenancy, state, note, records, size, high_watermark, clean, counters = row
    return PartitionReport(
        Position.from_json(position), int(tenancy), str(state), str(note), int(records), int(size), int(high_watermark),
        bool(clean), None if counters is None else _counters(counters),
    )  # fmt: skip


def _counters(row: Sequence[Any]) -> CounterReport:
    forwarded, repacked, latencies, milliseconds, retries, resumes = row
    counts = tuple((int(at), int(count)) for at, count in latencies)
    return CounterReport(int(forwarded), int(repacked), counts, int(milliseconds), int(retries), int(resumes))


def _outcome(name: str, fields: dict[str, Any]) -> Outcome:
    if name == "needs-identity":
        fields = {**fields, "topics": tuple(fields["topics"])}
    return _OUTCOMES[name](**fields)


def _keys(rows: Sequence[Any]) -> tuple[TopicPartition, ...]:
    return tuple((str(topic), int(partition)) for topic, partition in rows)


_ENCODERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Challenge: _encode_challenge,
    Hello: _encode_hello,
    Order: _encode_order,
    Report: _encode_report,
}
