"""A producer that sends single records at a steady rate. Each record holds the time at which it was made."""

from __future__ import annotations

import multiprocessing
import struct
import time
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from tests.support import raw_requests

from bench.workloads import PARTITIONS, LatencyWorkload

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
    padding = bytes(work.record_size - CREATED.size)
    began = time.monotonic()
    while not stopping.is_set():
        time.sleep(max(0.0, began + sent.value / work.rate - time.monotonic()))
        batch = raw_requests.record_batch([CREATED.pack(time.time_ns()) + padding])
        request = raw_requests.produce_request(topic, {sent.value % PARTITIONS: batch})
        raw_requests.check_produced(connection.ask(request))
        sent.value += 1
    connection.close()
