"""Decoders without a connection: answers in every version, fetched records, group members' bytes, control messages."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import stamp_crc

from fuzz.case import Attempt, Case
from fuzz.limits import ALLOWED
from fuzz.mutations import mutate
from fuzz.recorded import Recorded
from mirrormaker.control import control_messages as control
from mirrormaker.driver import group_protocol
from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.protocol import fetch, messages, produce
from mirrormaker.wire.protocol.answer_checks import check_answer
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack_some
from mirrormaker.wire.records.transactions import flag_data

_MAX_UNPACKED = 16 << 20  # bytes of the records of one batch
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
        name, found = _inputs_of(row)
        inputs.setdefault(name, []).extend(found)
    inputs["consumer-protocol"] = list(_group_members())
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
    request = _REQUESTS.get(row.api_key)
    if request is None:  # one that kafka-python does not know
        return "others", []
    return str(request.name), list(_answer_inputs(request, row))


def _answer_inputs(request: Any, row: Recorded) -> Iterator[_Input]:
    """Yield the answer in its own version and in all older ones, as old brokers would write it."""
    asked = request.decode(row.request, version=row.version)
    answer = messages.decode_response(request, row.answer, row.version)
    yield _Input(row.answer, partial(_use_answer, asked, row.version))
    for version in range(row.version):
        # kafka-python cannot write every recorded answer in every old version.
        with contextlib.suppress(struct.error, TypeError, ValueError, AttributeError, NotImplementedError):
            yield _Input(bytes(answer.encode(version=version)), partial(_use_answer, asked, version))


def _use_answer(request: Any, version: int, data: bytes) -> None:
    answer = messages.decode_response(type(request), data, version)
    check_answer(request, answer)


def _use_produce(version: int, data: bytes) -> None:
    produce.decode_response(version, memoryview(data))


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


def _unpack(run: Batches | memoryview, aborted: Sequence[tuple[int, int]]) -> None:
    if isinstance(run, memoryview):
        for _ in legacy.unpack(run, _MAX_UNPACKED):
            pass
        return
    run.check()
    for _ in flag_data(list(run), aborted):
        pass
    while len(run):
        _, used = unpack_some(run, _MAX_UNPACKED, _MAX_UNPACKED)
        run = run.part(used, len(run))


# -- between members of a group, and between driver and streams


def _group_members() -> Iterator[_Input]:
    keys = [("orders", 0), ("orders", 1), ("payments", 0)]
    subscription = group_protocol.encode_subscription(["orders", "payments"], keys, 4, 7)
    yield _Input(subscription, partial(_discard, group_protocol.decode_subscription))
    yield _Input(group_protocol.encode_assignment(keys), partial(_discard, group_protocol.decode_assignment))


def _control_messages() -> Iterator[_Input]:
    """Yield a message of each kind that there is a decoder for."""
    for name, decode in vars(control).items():
        if name.startswith("decode_"):
            message = _made_up(get_type_hints(decode)["return"])
            yield _Input(control.encode(message), partial(_discard, decode))


def _made_up(kind: Any) -> Any:
    """Return a value of a type, with made-up values inside."""
    if get_origin(kind) is tuple:
        inner = [part for part in get_args(kind) if part is not Ellipsis]
        # A tuple of any length gets an element of each kind.
        kinds = get_args(inner[0]) if get_origin(inner[0]) in _UNIONS and Ellipsis in get_args(kind) else inner
        return tuple(_made_up(each) for each in kinds)
    if get_origin(kind) in _UNIONS:
        return _made_up(get_args(kind)[0])
    if hints := get_type_hints(kind) if isinstance(kind, type) and hasattr(kind, "__annotations__") else {}:
        return kind(**{name: _made_up(hint) for name, hint in hints.items()})
    return _MADE_UP.get(kind, lambda: kind())()


def _discard(decode: Callable[[bytes], object], data: bytes) -> None:
    decode(data)


_UNIONS = (Union, UnionType)
_MADE_UP: dict[Any, Callable[[], Any]] = {
    int: lambda: 7,
    float: lambda: 0.5,
    bool: lambda: True,
    str: lambda: "ab" * 16,
    bytes: lambda: bytes(32),
}
