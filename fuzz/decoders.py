"""Decoders without a connection: answers in every version, fetched records, group members' bytes, control messages."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import stamp_crc

from fuzz.group_conversations import MIRROR, ORDERS, PARTITIONS, SHARERS
from fuzz.mutations import decode_to_encode, mutate
from fuzz.recording import ZOOKEEPER, Recorded
from fuzz.runner import ALLOWED, Attempt, Case
from mirrormaker.control.control_encoding import DriverEnd, StreamEnd
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
from mirrormaker.control.control_session import DriverHandshake, Session, StreamAttempt, StreamHandshake
from mirrormaker.driver import group_protocol
from mirrormaker.errors import CorruptBatch
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.wire.client.cluster_description import decode_description
from mirrormaker.wire.protocol import fetch, group_messages, messages, produce
from mirrormaker.wire.protocol.answer_checks import check_answer
from mirrormaker.wire.protocol.group_messages import CommitRow
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack_in_pieces
from mirrormaker.wire.records.transactions import Aborted, flag_data
from mirrormaker.zookeeper.ensemble import ZooKeeper
from mirrormaker.zookeeper.registrations import broker_addresses

_MAX_UNPACKED, _PIECE = 16 << 20, 4 << 20  # bytes of the records of one batch, and of them at a time
_REQUESTS = {
    request.API_KEY: request
    for request in (getattr(messages, name) for name in messages.__all__ if name.endswith("Request"))
}
_CRC_END = 21  # of a batch's header


class _Input(NamedTuple):
    data: bytes
    use: Callable[[bytes], None]


def cases(recorded: Sequence[Recorded]) -> list[Case]:
    """Return a case for each kind of answer, and one for each kind of message between our own processes."""
    inputs: dict[str, list[_Input]] = {}
    for row in recorded:
        if row.conversation == ZOOKEEPER:
            continue
        name, found = _inputs_of(row)
        inputs.setdefault(name, []).extend(found)
    inputs["consumer-protocol"] = list(_group_members())
    inputs["zookeeper"] = list(_znodes(recorded))
    inputs["control"] = list(_control_messages())
    everything = [each.data for found in inputs.values() for each in found]
    return [Case(f"decode-{name}", partial(_attempt, found, everything)) for name, found in sorted(inputs.items())]


def _attempt(inputs: Sequence[_Input], others: Sequence[bytes], dice: Random) -> Attempt:
    chosen = dice.choice(inputs)
    damaged = mutate(chosen.data, dice, others)
    return Attempt(damaged, partial(chosen.use, damaged))


# -- answers


def _inputs_of(row: Recorded) -> tuple[str, list[_Input]]:
    if row.api_key == fetch.API_KEY:
        return "fetch", list(_fetch_inputs(row))
    if row.api_key == produce.API_KEY:
        return "produce", [_Input(row.answer, partial(_use_produce, version)) for version in range(row.version + 1)]
    if row.api_key == consumer_protocol_groups.API_KEY:
        return "consumer-groups", [_Input(row.answer, lambda data: _use_consumer_groups(data))]
    if row.api_key in _SHARE_GROUPS:
        return "share-groups", [_Input(row.answer, _SHARE_GROUPS[row.api_key])]
    request = _REQUESTS[row.api_key]
    return str(request.name), [*_answer_inputs(request, row), *_group_inputs(request, row)]


def _answer_inputs(request: Any, row: Recorded) -> Iterator[_Input]:
    """Yield the answer in its own version and in all older ones, as old brokers would write it."""
    asked = request.decode(row.request, version=row.version)
    answer = decode_to_encode(row.api_key, row.answer, row.version)
    yield _Input(row.answer, partial(_use_answer, asked, row.version))
    for version in range(row.version):
        # kafka-python cannot write every recorded answer in every old version.
        with contextlib.suppress(struct.error, TypeError, ValueError, AttributeError, NotImplementedError):
            yield _Input(bytes(answer.encode(version=version)), partial(_use_answer, asked, version))


def _group_inputs(request: Any, row: Recorded) -> Iterator[_Input]:
    """Yield an answer about the offsets of groups, which has a decoder of its own."""
    if row.api_key == group_messages.OFFSET_FETCH and row.version >= group_messages.FETCH_VERSIONS[0]:
        groups = [group.group_id for group in request.decode(row.request, version=row.version).groups]
        yield _Input(row.answer, lambda data: _discard(partial(_decode_offset_fetch, groups), data))
    if row.api_key == group_messages.OFFSET_COMMIT and row.version >= group_messages.COMMIT_VERSIONS[0]:
        asked = request.decode(row.request, version=row.version)
        rows = [CommitRow(topic.name, part.partition_index, 0) for topic in asked.topics for part in topic.partitions]
        yield _Input(row.answer, lambda data: _discard(partial(_decode_offset_commit, rows), data))


def _decode_offset_fetch(groups: Sequence[str], data: bytes) -> object:
    found = group_messages.decode_offset_fetch(memoryview(data), groups)
    return [offsets.rows() for group in found.values() for offsets in group.topics.values()]


def _decode_offset_commit(rows: Sequence[CommitRow], data: bytes) -> object:
    return group_messages.decode_offset_commit(memoryview(data), rows)


_SHARED_ROWS = [CommitRow(ORDERS, partition, 1) for partition in range(PARTITIONS)]
_SHARE_GROUPS: dict[int, Callable[[bytes], None]] = {
    group_messages.DESCRIBE_SHARE_OFFSETS: lambda data: _discard(
        lambda raw: group_messages.decode_describe_share_offsets(memoryview(raw), [SHARERS]), data
    ),
    group_messages.ALTER_SHARE_OFFSETS: lambda data: _discard(
        lambda raw: group_messages.decode_alter_share_offsets(memoryview(raw), _SHARED_ROWS), data
    ),
}


def _use_answer(request: Any, version: int, data: bytes) -> None:
    if isinstance(request, messages.MetadataRequest):
        # Whole clusters have a decoder of their own.
        decode_description(data, version)
    answer = messages.decode_response(type(request), data, version)
    check_answer(request, answer)


def _use_produce(version: int, data: bytes) -> None:
    produce.decode_response(version, memoryview(data))


def _use_consumer_groups(data: bytes) -> None:
    consumer_protocol_groups.read(memoryview(data))


# -- records


def _fetch_inputs(row: Recorded) -> Iterator[_Input]:
    error, partitions = fetch.decode_response(row.version, memoryview(row.answer))
    whole = FetchAnswer(error, [("orders", bytes(range(16)), list(partitions))], None, [])
    for version in range(fetch.VERSIONS[1] + 1):
        yield _Input(encode_fetch_answer(version, whole), partial(_use_fetch, version))


def _use_fetch(version: int, data: bytes) -> None:
    """Decode an answer and unpack its records: as they are, and again with checksums that fit."""
    for is_repaired in (False, True):
        with contextlib.suppress(*ALLOWED):
            _, partitions = fetch.decode_response(version, memoryview(bytearray(data)))
            for partition in partitions:
                if is_repaired:
                    _repair(partition.records)
                for run in split(partition.records):
                    _unpack(run, partition.aborted_transactions)


def _repair(records: memoryview) -> None:
    """Write the right checksum into each batch."""
    with contextlib.suppress(CorruptBatch):
        for run in split(records):
            for batch in run if isinstance(run, Batches) else ():
                if len(batch.data) > _CRC_END:
                    repaired = bytearray(batch.data)
                    stamp_crc(repaired)
                    batch.data[:] = repaired


def _unpack(run: Batches | memoryview, aborted: Aborted) -> None:
    if isinstance(run, memoryview):
        for _ in legacy.unpack(run, _MAX_UNPACKED):
            pass
        return
    run.check()
    for _ in flag_data(list(run), aborted):
        pass
    for _ in unpack_in_pieces(run, _MAX_UNPACKED, _PIECE):
        pass


# -- between members of a group


def _group_members() -> Iterator[_Input]:
    keys = [("orders", 0), ("orders", 1), ("payments", 0)]
    subscription = group_protocol.encode_subscription(["orders", "payments"], keys, 4, 7)
    yield _Input(subscription, partial(_discard, group_protocol.decode_subscription))
    yield _Input(group_protocol.encode_assignment(keys), partial(_discard, group_protocol.decode_assignment))


# -- ZooKeeper


def _znodes(recorded: Sequence[Recorded]) -> Iterator[_Input]:
    znodes = {row.request.decode(): row.answer for row in recorded if row.conversation == ZOOKEEPER}
    for path, content in znodes.items():
        yield _Input(content, partial(_use_znodes, znodes, path))
    names = "\n".join(znodes).encode()
    yield _Input(
        names, lambda data: _use_znodes(dict.fromkeys(data.decode("utf-8", "replace").split("\n"), b"1"), "/", b"")
    )


def _use_znodes(znodes: Mapping[str, bytes], path: str, data: bytes) -> None:
    """Ask everything that the program asks ZooKeeper for, with one znode changed."""
    zookeeper = ZooKeeper("localhost:2181")
    zookeeper._client = _Znodes({**znodes, path: data})
    questions: tuple[Callable[[], object], ...] = (
        lambda: broker_addresses(zookeeper.brokers(), "PLAINTEXT"),
        lambda: zookeeper.partitions(ORDERS),
        lambda: zookeeper.leader(ORDERS, 0),
        lambda: zookeeper.topic_settings(ORDERS),
        lambda: zookeeper.group_topics(MIRROR),
        lambda: zookeeper.owners(MIRROR),
        lambda: zookeeper.current_offsets(MIRROR),
    )
    for ask in questions:
        with contextlib.suppress(*ALLOWED):
            ask()


class _Znodes:
    """In place of a kazoo client: answers from a dictionary."""

    handler = SequentialThreadingHandler

    def __init__(self, znodes: Mapping[str, bytes]) -> None:
        self._znodes = znodes

    def get_async(self, path: str) -> Any:
        """Return a znode's content."""
        return _Answer((self._znodes[path], _STAT)) if path in self._znodes else _Answer(None)

    def get_children_async(self, path: str) -> Any:
        """Return the names below a znode."""
        below = [name[len(path) + 1 :].split("/")[0] for name in self._znodes if name.startswith(f"{path}/")]
        return _Answer(list(dict.fromkeys(below)))

    def exists_async(self, path: str) -> Any:
        """Return when a znode was created and changed."""
        return _Answer(_STAT if path in self._znodes else None)


class _Answer(NamedTuple):
    value: Any

    def get(self, timeout: float) -> Any:
        """Return the answer, or raise as kazoo does."""
        if self.value is None:
            raise NoNodeError
        return self.value


class _Stat(NamedTuple):
    ctime: int = 1
    mtime: int = 2


_STAT = _Stat()


# -- control messages

_SECRET, _KEY = b"secret", b"key"
_ATTEMPT = StreamAttempt(0, 1, 0, 0)


def _control_messages() -> Iterator[_Input]:
    """Yield a message of each kind, before and after the MAC that protects it."""
    order, report = _order(), _report()
    driver, stream = DriverEnd(), StreamEnd()
    (order_bytes,) = driver.orders(order)
    stream.order(order_bytes)
    (report_bytes,) = stream.reports(report)
    yield _Input(order_bytes, lambda data: _discard(StreamEnd().order, data))
    yield _Input(report_bytes, _use_report)
    yield _Input(Session(_KEY, b">", b"<").seal(report_bytes), lambda data: _discard(_open_session, data))
    yield _Input(DriverHandshake(_SECRET).challenge(), lambda data: _discard(_stream_handshake().hello, data))
    challenge = DriverHandshake(_SECRET).challenge()
    yield _Input(_stream_handshake().hello(challenge), lambda data: _discard(DriverHandshake(_SECRET).accept, data))
    _, welcome, _ = (server := DriverHandshake(_SECRET)).accept(_stream_handshake().hello(server.challenge()))
    yield _Input(welcome, lambda data: _discard(_stream_handshake().session, data))


def _stream_handshake() -> StreamHandshake:
    return StreamHandshake(_SECRET, _ATTEMPT)


def _open_session(data: bytes) -> bytes:
    return Session(_KEY, b"<", b">").open(data)


def _use_report(data: bytes) -> None:
    driver = DriverEnd()
    driver.orders(_order())
    driver.report(data)


def _order() -> Order:
    return Order(tuple(Take(_position(n), True, n) for n in range(5)), (("orders", 9),), True, 3)


def _report() -> Report:
    rows = [
        PartitionReport(
            # The target topic's id is another one now, so the row has both ids.
            replace(_position(n).advanced(20, 1, [Cut(n, 7, 8)]), target_topic_id="ef" * 16),
            n, "flowing", "a note", 5, 500, 21, False, _COUNTERS, ((("", n), (NotedRun(0, 0, 5, 0),)),),
        )
        for n in range(5)
    ]  # fmt: skip
    outcomes: tuple[Outcome, ...] = (
        Released(),
        Stopped("why", True),
        NeedsIdentity(1, "why", ("other",)),
        CannotDeliver(12, "big", "why"),
    )
    ended = tuple(Ended(row, outcome) for row, outcome in zip(rows[1:], outcomes, strict=True))
    return Report(4, tuple(rows[:1]), ended, (("orders", 9),), 1000, 0.5, 1 << 27)


_COUNTERS = CounterReport(1, 2, ((3, 4), (5, 6)), 7, 8, 9)


def _position(partition: int) -> Position:
    return Position(
        "orders", partition, 10, 0, "ab" * 16, Identity(7, 0), "there", "cd" * 16, 5, (Cut(partition, 3, 4),)
    )


def _discard(decode: Callable[[bytes], object], data: bytes) -> None:
    decode(data)
