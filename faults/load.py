"""Numbered, keyed records at a steady pace."""

from __future__ import annotations

import struct
import threading
import time

from kafka import KafkaProducer

PARTITIONS = 8
RATE = 1600
"""Records a second: each partition gets some in every look that the watch takes."""
VALUE = struct.Struct(">q")
_KEYS = [b"k%02d" % number for number in range(97)]
_EVERY = 0.05
"""Seconds between two handfuls: short against every pause that is measured."""

_PATIENCE_MS = 300_000
"""How long a record may take to be acknowledged: longer than a source is ever without its brokers here."""


class Load(threading.Thread):
    """Writes until it is told to stop, whatever happens to the brokers; the n-th record has the value n."""

    def __init__(self, bootstrap: str, topic: str, per_second: int = RATE, age: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), enable_idempotence=True, acks="all", linger_ms=5,
            delivery_timeout_ms=_PATIENCE_MS, max_block_ms=_PATIENCE_MS, reconnect_backoff_max_ms=500,
        )  # fmt: skip
        self._topic, self._per_second, self._age = topic, per_second, age
        self._enough = threading.Event()
        self.limit: int | None = None
        """So many records, if not until it is told to stop."""
        self._held = False
        self._sending = threading.Lock()
        self.sent = self.acknowledged = 0
        self.failures: list[str] = []

    def run(self) -> None:
        handful = int(self._per_second * _EVERY)
        due = time.monotonic()
        while not self._enough.wait(max(0.0, due - time.monotonic())):
            if self.limit is not None and self.sent >= self.limit:
                break
            with self._sending:
                if not self._held:
                    self._send(handful)
            # What a blocked producer could not send is not made up for: a burst would be another load.
            due = max(due + _EVERY, time.monotonic())
        self._producer.flush()
        self._producer.close()

    def _send(self, count: int) -> None:
        stamp = int((time.time() - self._age) * 1000)
        for number in range(self.sent, self.sent + count):
            where = {"partition": number % PARTITIONS, "timestamp_ms": stamp}
            sent = self._producer.send(self._topic, VALUE.pack(number), _KEYS[number % len(_KEYS)], **where)
            sent.add_callback(self._count).add_errback(self._fail)
        self.sent += count

    def _count(self, _: object) -> None:
        self.acknowledged += 1

    def _fail(self, error: object) -> None:
        self.failures.append(repr(error))

    def hold(self) -> None:
        """Send nothing for now, and wait for the last acknowledgements."""
        with self._sending:
            self._held = True
        self._producer.flush()

    def go_on(self) -> None:
        self._held = False

    def stop(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._enough.set()
        self.join()

    def stop_without_waiting(self) -> None:
        self._enough.set()
