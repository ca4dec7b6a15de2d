"""A producer that sends records one by one at a steady rate, each carrying the time at which it was made."""

from __future__ import annotations

import multiprocessing
import struct
import time
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from bench import raw
from bench.stage import PARTITIONS
from bench.workloads import Latency

STAMP = struct.Struct(">q")
"""Nanoseconds since 1970, at the beginning of each value."""


class Trickle:
    """A process of its own, so that nothing the bench does keeps it waiting."""

    def __init__(self, port: int, topic: str, work: Latency) -> None:
        context = multiprocessing.get_context("spawn")
        self._over = context.Event()
        self._sent = context.Value("q", 0)
        arguments = (port, topic, work, self._over, self._sent)
        self._process = context.Process(target=_produce, args=arguments, daemon=True)

    def __enter__(self) -> Trickle:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def stop(self) -> int:
        """End, and say how many records were sent."""
        self._over.set()
        self._process.join()
        return int(self._sent.value)


def _produce(port: int, topic: str, work: Latency, over: Event, sent: Synchronized[int]) -> None:
    line = raw.Line(port)
    padding = bytes(work.record_size - STAMP.size)
    began = time.monotonic()
    while not over.is_set():
        time.sleep(max(0.0, began + sent.value / work.rate - time.monotonic()))
        batch = raw.batch([STAMP.pack(time.time_ns()) + padding])
        raw.check_produced(line.ask(raw.produce(topic, {sent.value % PARTITIONS: batch})))
        sent.value += 1
    line.close()
