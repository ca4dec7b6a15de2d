"""A producer that sends records at a steady rate, alone or in small batches. Each record holds the time at which it was made."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import struct
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

import pyarrow as pa
from tests.support import raw_requests

from bench.workloads import LatencyWorkload
from mirrormaker.wire.records.arrow import from_columns
from mirrormaker.wire.records.batch import HEADER, Batch
from mirrormaker.wire.records.columns import pack
from mirrormaker.wire.records.compression import CODECS, compress

_NO_PRODUCER = (-1, -1, -1)  # producer id, epoch and sequence number of a producer that is not idempotent
_MOST_IN_FLIGHT = 5  # requests, as of Java's producer
# Fields of a batch's header by number, and the bytes that its length does not count.
_LENGTH, _ATTRIBUTES, _FIRST_TIMESTAMP, _MAX_TIMESTAMP = 1, 5, 7, 8
_BEFORE_LENGTH = 12
CREATED = struct.Struct(">q")  # nanoseconds since 1970, at the beginning of each value


class SteadyProducer:
    """A producer in a process of its own, so that the benchmark cannot delay it. It runs inside `with`."""

    def __init__(self, port: int, topic: str, work: LatencyWorkload) -> None:
        context = multiprocessing.get_context("spawn")
        self._stopping = context.Event()
        self._sent = context.Value("q", 0)
        arguments = (port, topic, work, self._stopping, self._sent)
        self._process = context.Process(target=_produce, args=arguments, daemon=True)

    def __enter__(self) -> SteadyProducer:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid or 0

    def stop(self) -> int:
        """Stop, and return the number of records that were sent."""
        self._stopping.set()
        self._process.join()
        return int(self._sent.value)


def _produce(port: int, topic: str, work: LatencyWorkload, stopping: Event, sent: Synchronized[int]) -> None:
    connection = raw_requests.RawConnection(port)
    make_batch = _single(work) if work.batch == 1 else _several(work)
    turns = itertools.cycle(range(work.partitions))
    in_flight = 0
    began = time.monotonic()
    while not stopping.is_set():
        time.sleep(max(0.0, began + sent.value / work.rate - time.monotonic()))
        partitions = [next(turns) for _ in range(work.together)]
        connection.send(raw_requests.produce_request(topic, dict.fromkeys(partitions, make_batch())))
        sent.value += work.batch * len(partitions)
        in_flight += 1
        if in_flight == _MOST_IN_FLIGHT:
            raw_requests.check_produced(connection.receive())
            in_flight -= 1
    for _ in range(in_flight):
        raw_requests.check_produced(connection.receive())
    connection.close()


def _single(work: LatencyWorkload) -> Callable[[], bytes]:
    padding = bytes(work.record_size - CREATED.size)
    return lambda: raw_requests.record_batch([CREATED.pack(time.time_ns()) + padding])


def _several(work: LatencyWorkload) -> Callable[[], bytes]:
    """Return a function that makes a batch of JSON lines, which compress as usual data does.

    It writes the time into batches that are ready but for that, and compresses them: the producer must cost little itself.
    """
    generator = random.Random(1)
    words = [
        f'"{name}":{generator.randrange(10**9)},' for name in ("id", "price", "user", "item", "shop") for _ in range(99)
    ]
    lines = ["".join(generator.choices(words, k=60)).encode() for _ in range(500)]
    size, codec = work.record_size - CREATED.size, CODECS.index(work.codec)
    offsets, keys = pa.array(range(work.batch), pa.int64()), pa.nulls(work.batch, pa.binary())
    stamps = pa.array([time.time_ns() // 1_000_000] * work.batch, pa.int64())
    mark = CREATED.pack(-(1 << 62) + 1)
    plain: list[bytes] = []
    for _ in range(100):
        values = [mark + line[:size].ljust(size) for line in generator.choices(lines, k=work.batch)]
        records = from_columns(offsets, stamps, keys, pa.array(values, pa.binary()))
        plain.append(bytes(pack(records, [0, work.batch], 0)[0]))
    ready = itertools.cycle(plain)

    def make() -> bytes:
        batch, now = next(ready), time.time_ns()
        body = compress(codec, batch[HEADER.size :].replace(mark, CREATED.pack(now)))
        fields = list(HEADER.unpack_from(batch))
        fields[_LENGTH], fields[_ATTRIBUTES] = HEADER.size + len(body) - _BEFORE_LENGTH, codec
        fields[_FIRST_TIMESTAMP] = fields[_MAX_TIMESTAMP] = now // 1_000_000
        made = Batch(memoryview(bytearray(HEADER.pack(*fields) + body)))
        made.stamp(*_NO_PRODUCER)
        return bytes(made.data)

    return make
