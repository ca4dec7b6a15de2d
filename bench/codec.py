"""`python -m bench.codec`: measure how many records one core unpacks and packs again per second."""

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

_FETCHED = 8 << 20  # bytes of records that are unpacked and packed together: about as many as one fetch brings
_NEW = 1 << 20  # bytes of records in a new batch
_ROUNDS, _SECONDS = 5, 0.12  # least number of rounds and least CPU time for each figure; the best round counts
_GOAL = 1.5  # million uncompressed records of 100 B per second, unpacked from batches and packed into new ones


class Workload(NamedTuple):
    """Records of one kind, in batches of one kind."""

    name: str
    size: int  # bytes of a value; if it varies, from half of it to one and a half times as much
    varies: bool
    batch: int  # records per batch
    codec: int = NONE


class Speeds(NamedTuple):
    """Million records per second."""

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
    """Measure all workloads and print a table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    console = Console(width=None if sys.stdout.isatty() else 120)
    began = time.monotonic()
    table = Table(
        "M records/s", "decode", "encode", "both", "with CRCs", "to table", "from table", "kafka-python decodes"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    both = []
    for work in WORKLOADS:
        speeds = _measure(work)
        table.add_row(work.name, *(f"{speed:.2f}" for speed in speeds))
        if work.size == 100 and work.codec == NONE:
            both.append(speeds.both)
    console.print(table)
    verdict = "met" if min(both) >= _GOAL else "missed"
    text = f"{verdict}: {min(both):.2f} to {max(both):.2f} M records/s of 100 B, uncompressed, both ways"
    console.print(f"{text} (goal: at least {_GOAL})", highlight=False)
    console.print(f"One core; the benchmark took {time.monotonic() - began:.0f} s", highlight=False)
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
    """Return million records per second in the best of several rounds."""
    best, rounds, until = float("inf"), 0, time.process_time() + _SECONDS
    while rounds < _ROUNDS or time.process_time() < until:
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
        rounds += 1
    return records / best / 1e6


def _kafka_python(batches: Batches) -> float:
    """Measure kafka-python with a part of the same data; it would take too long with all of it."""
    part = [bytes(batches[index].data) for index in range(min(len(batches), 1000))]
    part = part[: max(1, 5000 // batches[0].count)]
    return _best(
        lambda: [[(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(data)] for data in part],
        len(part) * batches[0].count,
    )


def _batches(data: memoryview) -> Batches:
    (batches,) = split(data)
    assert isinstance(batches, Batches)
    return batches


def _bounds(records: Records) -> list[int]:
    """Return the bounds of new batches of about 1 MB."""
    ends = np.cumsum(sizes(records))
    bounds = np.searchsorted(ends, np.arange(_NEW, int(ends[-1]), _NEW))
    return [0, *bounds.tolist(), len(records)]


def _write(work: Workload) -> bytearray:
    """Return a part of a log, as a fetch brings it. kafka-python writes a few batches, which are repeated."""
    generator = random.Random(1)
    count = max(1, _FETCHED // (work.size * work.batch))
    batches = [_write_batch(work, generator) for _ in range(min(count, 1 + 10_000 // work.batch))]
    log = bytearray()
    for number in range(count):
        log += struct.pack(">q", number * work.batch) + batches[number % len(batches)][8:]
    return log


def _write_batch(work: Workload, generator: random.Random) -> bytes:
    builder = DefaultRecordBatchBuilder(2, work.codec, False, -1, -1, -1, 1 << 30)
    for number in range(work.batch):
        size = generator.randrange(work.size // 2, work.size * 3 // 2) if work.varies else work.size
        text = b"%032x" % generator.getrandbits(128) * (size // 32 + 1)
        builder.append(
            number, 1_700_000_000_000 + number // 10, b"key-%04d" % generator.randrange(10_000), text[:size], []
        )
    return bytes(builder.build())


if __name__ == "__main__":
    sys.exit(main())
