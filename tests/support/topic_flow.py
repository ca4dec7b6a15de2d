"""Many topics under a light load: write records to each, and see how long each one stands still on the target."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable

from kafka import KafkaProducer

from mirrormaker.embedded import Cluster as EmbeddedCluster
from mirrormaker.embedded import metadata
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from tests.support.counting import Count, count_rows, read_log
from tests.support.load import VALUE
from tests.support.offset_watch import Sample, longest_pause_of
from tests.support.waiting import NotInTime, wait_until
from tests.support.wire_clients import wire_client

_WRITE_EVERY, _LOOK_EVERY = 0.1, 0.1  # seconds
_TIMEOUT = 2.0  # seconds for a broker's answer to the watch
_REFRESH_EVERY = 0.5  # seconds after which the watch has seen new partitions
_SETTLED_WITHIN = 3.0  # seconds
_KEEP = 3000  # samples: some minutes
_PATIENCE_MS = 300_000  # for an acknowledgement: longer than any broker is away


class TopicLoad(threading.Thread):
    """Writes a record to each of its topics ten times a second. The n-th record of a topic has the value n."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), enable_idempotence=True, acks="all", linger_ms=5,
            delivery_timeout_ms=_PATIENCE_MS, max_block_ms=_PATIENCE_MS, reconnect_backoff_max_ms=500,
            metadata_max_age_ms=2000,
        )  # fmt: skip
        self._topics: dict[str, int] = {}  # topic -> number of partitions to write to
        self._sent: Counter[str] = Counter()
        self._stopping, self._sending = threading.Event(), threading.Lock()
        self._paused = False
        self.failures: list[str] = []

    def add(self, topics: Iterable[str], partitions: int = 1) -> None:
        """Write to these topics from now on."""
        self._topics = self._topics | dict.fromkeys(topics, partitions)

    def remove(self, topics: Iterable[str]) -> None:
        """Write to these topics no more, and wait for the last acknowledgements."""
        gone = set(topics)
        with self._sending:
            self._topics = {topic: count for topic, count in self._topics.items() if topic not in gone}
        self._producer.flush()

    def pause(self) -> None:
        """Write nothing until `resume`, and wait for the last acknowledgements."""
        with self._sending:
            self._paused = True
        self._producer.flush()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._paused = False

    def run(self) -> None:
        """Write until `stop`."""
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            with self._sending:
                for topic, partitions in () if self._paused else self._topics.items():
                    self._send(topic, partitions)
            due = max(due + _WRITE_EVERY, time.monotonic())
        self._producer.flush()
        self._producer.close()

    def _send(self, topic: str, partitions: int) -> None:
        number = self._sent[topic]
        # The producer may not have seen yet that the topic has grown.
        partitions = min(partitions, len(self._producer.partitions_for(topic) or (0,)))
        future = self._producer.send(topic, VALUE.pack(number), b"k%02d" % (number % 97), partition=number % partitions)
        future.add_errback(self._failed)
        self._sent[topic] += 1

    def _failed(self, error: object) -> None:
        self.failures.append(repr(error))

    def stop(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._stopping.set()
        self.join()

    def stop_without_waiting(self) -> None:
        """Stop soon, without waiting for acknowledgements."""
        self._stopping.set()


class TopicWatch(threading.Thread):
    """Follows the end offsets of many topics on both clusters; a topic counts as the sum of its partitions."""

    def __init__(self, source: str, target: str) -> None:
        super().__init__(daemon=True)
        self._sides = (_Side(source), _Side(target))
        self._topics: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self.samples: list[tuple[float, dict[str, int], dict[str, int]]] = []

    def watch(self, topics: Iterable[str]) -> None:
        """Follow these topics from now on, and no others."""
        self._topics = frozenset(topics)

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the newest end offsets of a topic on source and target; -1 where it is unknown."""
        _, source, target = self.samples[-1] if self.samples else (0.0, {}, {})
        return source.get(topic, -1), target.get(topic, -1)

    def has_looked_since(self, moment: float) -> bool:
        """Return True if the newest sample was begun after this moment."""
        return len(self.samples) > 1 and self.samples[-2][0] > moment

    def settle(self) -> None:
        """Wait until nothing has moved for five samples, the first of which begins after now."""
        began = time.monotonic()

        def is_settled() -> bool:
            last = self.samples[-6:]
            return len(last) == 6 and last[0][0] > began and all(sample[1:] == last[0][1:] for sample in last)

        with contextlib.suppress(NotInTime):
            wait_until("the topics stand still", is_settled, _SETTLED_WITHIN)

    def longest_pause(self, topic: str, since: float, until: float = float("inf")) -> float:
        """Return the longest time for which the topic stood still on the target while the source had more records."""
        chosen = [sample for sample in list(self.samples) if since <= sample[0] <= until]
        return longest_pause_of([Sample(at, [s.get(topic, -1)], [t.get(topic, -1)]) for at, s, t in chosen], 0)

    def run(self) -> None:
        """Take samples until `stop`."""
        asyncio.run(self._take_samples())

    async def _take_samples(self) -> None:
        while not self._stopping.is_set():
            began, topics = time.monotonic(), self._topics
            source, target = await asyncio.gather(*(side.ends(topics) for side in self._sides))
            self.samples.append((time.monotonic(), source, target))
            del self.samples[:-_KEEP]
            await asyncio.sleep(max(0.0, began + _LOOK_EVERY - time.monotonic()))
        for side in self._sides:
            side.close()

    def stop(self) -> None:
        """Stop, and wait for the last sample."""
        self._stopping.set()
        self.join()


class _Side:
    """One cluster, asked by our wire client. The client is replaced after every failure."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client: Cluster | None = None
        self._refreshed = 0.0

    async def ends(self, topics: frozenset[str]) -> dict[str, int]:
        """Return the end offset of each topic whose leaders answer."""
        try:
            if self._client is None:
                self._client = wire_client(self._bootstrap, "topic-watch", request_timeout=_TIMEOUT)
            if topics - self._client.topics.keys() or time.monotonic() - self._refreshed > _REFRESH_EVERY:
                await asyncio.wait_for(self._client.refresh(topics), _TIMEOUT)
                self._refreshed = time.monotonic()
            known = self._client.topics
            keys = [(topic, partition) for topic in topics if topic in known for partition in known[topic].partitions]
            answers = await asyncio.wait_for(list_offsets(self._client, keys, LATEST), _TIMEOUT)
        except Exception:  # a dying broker can cause any error; the next sample asks again
            self.close()
            return {}
        found: Counter[str] = Counter()
        failed = {topic for (topic, _), end in answers.items() if not isinstance(end, int)}
        for (topic, _), end in answers.items():
            found[topic] += end if isinstance(end, int) else 0
        for topic in failed:
            # Its leader has moved, or the topic was created again.
            self._client.topics.pop(topic, None)
            del found[topic]
        return dict(found)

    def close(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None


def count_topic(source: EmbeddedCluster, target: EmbeddedCluster, topic: str) -> Count:
    """Compare both clusters partition by partition, for a topic that a `TopicLoad` has written."""
    broker = next(broker for broker in source.brokers if broker.pid is not None)
    known = metadata.ask(broker.port)
    assert known is not None, f"{broker.name} does not answer"
    total = Count()
    for partition in range(len(known.topics[topic])):
        total += count_rows(read_log(source, topic, partition), read_log(target, topic, partition))
    return total
