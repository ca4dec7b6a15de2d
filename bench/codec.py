"""`python -m bench.codec`: how many records a second one core takes out of batches and puts into new ones."""

from __future__ import annotations

import os
import random
import struct
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from rich.console import Console
from rich.table import Table

from mirrormaker.wire.records.arrow import from_table, to_table
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import Records, pack, sizes, unpack
from mirrormaker.wire.records.compression import LZ4, NONE, ZSTD

_AT_ONCE = 8 << 20
"""Bytes of records that are decoded and encoded in one go: about what a fetch brings."""
_NEW = 1 << 20
"""Bytes of records in a new batch."""
_ROUNDS, _SECONDS = 5, 0.12
"""Each thing is measured this often at least, and for this long, in CPU time: the best round counts, others were disturbed."""
_GOAL = 1.5
"""Million records of 100 B a second, uncompressed, taken out of batches and put into new ones."""


class Workload(NamedTuple):
    """Records of one kind, in batches of one kind."""

    name: str
    size: int  # of a value; half to one and a half times as much if it varies
    varies: bool
    batch: int  # records
    codec: int = NONE


class Speeds(NamedTuple):
    """In million records a second."""

    decode: float
    encode: float
    both: float
    with_crcs: float
    to_table: float
    from_table: float
    kafka_python: float


WORKLOADS = (
    Workload("100 B", 100, False, 8000),
    Workload("100 B varying", 100, True, 8000),
    Workload("100 B varying, 100 a batch", 100, True, 100),
    Workload("100 B varying, 5 a batch", 100, True, 5),
    Workload("1 KB", 1000, False, 900),
    Workload("1 KB varying", 1000, True, 900),
    Workload("1 KB varying, 5 a batch", 1000, True, 5),
    Workload("100 B varying, lz4", 100, True, 8000, LZ4),
    Workload("100 B varying, zstd", 100, True, 8000, ZSTD),
)


def main() -> int:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    console = Console(width=None if sys.stdout.isatty() else 120)
    began = time.monotonic()
    table = Table(
        "M records/s", "decode", "encode", "both", "with CRCs", "to table", "from table", "kafka-python decodes"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    goal = []
    for work in WORKLOADS:
        speeds = _measure(work)
        table.add_row(work.name, *(f"{speed:.2f}" for speed in speeds))
        if work.size == 100 and work.codec == NONE:
            goal.append(speeds.both)
    console.print(table)
    verdict = "met" if min(goal) >= _GOAL else "missed"
    console.print(
        f"100 B uncompressed, both, at least {_GOAL}: {verdict}, {min(goal):.2f} to {max(goal):.2f}", highlight=False
    )
    console.print(f"One core, {time.monotonic() - began:.0f} s in all", highlight=False)
    return 0


def _measure(work: Workload) -> Speeds:
    data = memoryview(_write(work))
    batches = _batches(data)
    records = unpack(batches)
    bounds = _bounds(records)
    table = to_table(records)

    def both() -> None:
        pack(unpack(_batches(data)), bounds, work.codec)

    def with_crcs() -> None:
        fetched = _batches(data)
        fetched.check()
        for packed in pack(unpack(fetched), bounds, work.codec):
            Batch(packed).stamp(1, 0, 0)

    def speed(run: Callable[[], object]) -> float:
        return _best(run, len(records))

    return Speeds(
        decode=speed(lambda: unpack(_batches(data))),
        encode=speed(lambda: pack(records, bounds, work.codec)),
        both=speed(both),
        with_crcs=speed(with_crcs),
        to_table=speed(lambda: to_table(records)),
        from_table=speed(lambda: from_table(table)),
        kafka_python=_kafka_python(batches),
    )


def _best(run: Callable[[], object], records: int) -> float:
    """Million records a second in the best of several rounds."""
    best, rounds, ends = float("inf"), 0, time.process_time() + _SECONDS
    while rounds < _ROUNDS or time.process_time() < ends:
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
        rounds += 1
    return records / best / 1e6


def _kafka_python(batches: Batches) -> float:
    """The same data, as far as there is time for it."""
    some = [bytes(batches[index].data) for index in range(min(len(batches), 1000))]
    some = some[: max(1, 5000 // batches[0].count)]
    return _best(
        lambda: [[(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(data)] for data in some],
        len(some) * batches[0].count,
    )


def _batches(data: memoryview) -> Batches:
    (found,) = split(data)
    assert isinstance(found, Batches)
    return found


def _bounds(records: Records) -> list[int]:
    """Batches of about 1 MB."""
    until = np.cumsum(sizes(records))
    edges = np.searchsorted(until, np.arange(_NEW, int(until[-1]), _NEW))
    return [0, *edges.tolist(), len(records)]


def _write(work: Workload) -> bytearray:
    """A slice of a log, as a broker would answer a fetch; kafka-python writes some batches, which come again."""
    luck = random.Random(1)
    count = max(1, _AT_ONCE // (work.size * work.batch))
    some = [_write_batch(work, luck) for _ in range(min(count, 1 + 10_000 // work.batch))]
    log = bytearray()
    for number in range(count):
        log += struct.pack(">q", number * work.batch) + some[number % len(some)][8:]
    return log


def _write_batch(work: Workload, luck: random.Random) -> bytes:
    builder = DefaultRecordBatchBuilder(2, work.codec, False, -1, -1, -1, 1 << 30)
    for number in range(work.batch):
        size = luck.randrange(work.size // 2, work.size * 3 // 2) if work.varies else work.size
        text = b"%032x" % luck.getrandbits(128) * (size // 32 + 1)
        builder.append(number, 1_700_000_000_000 + number // 10, b"key-%04d" % luck.randrange(10_000), text[:size], [])
    return bytes(builder.build())


if __name__ == "__main__":
    sys.exit(main())
