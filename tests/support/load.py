"""A steady load of numbered, keyed records on a topic of eight partitions."""

from __future__ import annotations

import struct
import threading
import time

from kafka import KafkaProducer

PARTITIONS = 8
RATE = 1600  # records a second: each partition gets some between two samples of an OffsetWatch
VALUE = struct.Struct(">q")  # a record's number
_KEYS = [b"k%02d" % number for number in range(97)]
_INTERVAL = 0.05  # seconds between two groups of records: short against every pause that is measured

# How long a record may take to be acknowledged: longer than any fault case takes the source's brokers away.
_TIMEOUT_MS = 300_000


class Load(threading.Thread):
    """Writes records until `stop`, whatever happens to the brokers. The n-th record has the value n."""

    def __init__(self, bootstrap: str, topic: str, per_second: int = RATE, age: float = 0.0) -> None:
        """`age` is subtracted from the timestamps, in seconds."""
        super().__init__(daemon=True)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), enable_idempotence=True, acks="all", linger_ms=5,
            delivery_timeout_ms=_TIMEOUT_MS, max_block_ms=_TIMEOUT_MS, reconnect_backoff_max_ms=500,
        )  # fmt: skip
        self._topic, self._per_second, self._age = topic, per_second, age
        self._stopping = threading.Event()
        self._paused = False
        self._sending = threading.Lock()
        self.limit: int | None = None  # stop by itself after this many records
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Send records at a steady rate."""
        count = int(self._per_second * _INTERVAL)
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            if self.limit is not None and self.sent >= self.limit:
                break
            with self._sending:
                if not self._paused:
                    self._send(count)
            # After the producer was blocked, the missed records are not sent in a burst: the load stays steady.
            due = max(due + _INTERVAL, time.monotonic())
        self._producer.flush()
        self._producer.close()

    def _send(self, count: int) -> None:
        timestamp = int((time.time() - self._age) * 1000)
        for number in range(self.sent, self.sent + count):
            options = {"partition": number % PARTITIONS, "timestamp_ms": timestamp}
            future = self._producer.send(self._topic, VALUE.pack(number), _KEYS[number % len(_KEYS)], **options)
            future.add_callback(self._acknowledged).add_errback(self._failed)
        self.sent += count

    def _acknowledged(self, _: object) -> None:
        self.acknowledged += 1

    def _failed(self, error: object) -> None:
        self.failures.append(repr(error))

    def pause(self) -> None:
        """Send nothing until `resume`, and wait for the last acknowledgements."""
        with self._sending:
            self._paused = True
        self._producer.flush()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._paused = False

    def stop(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._stopping.set()
        self.join()

    def stop_without_waiting(self) -> None:
        """Stop soon, without waiting for acknowledgements."""
        self._stopping.set()
