"""Follow the end offsets of a topic on both clusters, and measure how long partitions stand still."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from tests.support.load import PARTITIONS
from tests.support.wire_clients import wire_client

_INTERVAL = 0.2  # seconds between two samples, and so the precision of every pause
_TIMEOUT = 1.0  # seconds for a broker's answer: a frozen broker must not delay the answers of the others

UNKNOWN = -1


class Sample(NamedTuple):
    """The end offsets of all partitions at one time; UNKNOWN for a partition whose leader did not answer."""

    time: float
    source: list[int]
    target: list[int]


class OffsetWatch(threading.Thread):
    """Takes samples several times a second until `stop`."""

    def __init__(self, source: str, target: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._clusters = (_WatchedCluster(source, topic), _WatchedCluster(target, topic))
        self._stopping = threading.Event()
        self.samples: list[Sample] = []
        # The highest end offset of each partition so far.
        self.source, self.target = [UNKNOWN] * PARTITIONS, [UNKNOWN] * PARTITIONS

    def run(self) -> None:
        """Take samples."""
        asyncio.run(self._take_samples())

    async def _take_samples(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            source, target = await asyncio.gather(*(cluster.end_offsets() for cluster in self._clusters))
            self.samples.append(Sample(time.monotonic(), source, target))
            self.source = [max(pair) for pair in zip(self.source, source, strict=True)]
            self.target = [max(pair) for pair in zip(self.target, target, strict=True)]
            await asyncio.sleep(max(0.0, began + _INTERVAL - time.monotonic()))
        for cluster in self._clusters:
            cluster.close()

    def stop(self) -> None:
        """Stop, and wait for the last sample."""
        self._stopping.set()
        self.join()

    def longest_pause(self, since: float, until: float = float("inf")) -> float:
        """Return the longest pause between two times; see the function of the same name."""
        return longest_pause([sample for sample in list(self.samples) if since <= sample.time <= until])


def longest_pause(samples: list[Sample]) -> float:
    """Return the longest time for which a partition of the target stood still while the source had more records."""
    return max(longest_pause_of(samples, partition) for partition in range(PARTITIONS))


def longest_pause_of(samples: list[Sample], partition: int) -> float:
    """Return the longest time for which one partition of the target stood still while the source had more records."""
    longest = pause = 0.0
    reached = max((sample.target[partition] for sample in samples[:1]), default=UNKNOWN)
    for before, now in pairwise(samples):
        if now.target[partition] > reached:
            reached, pause = now.target[partition], 0.0
        elif now.source[partition] > reached:  # also False while the source's partition has no leader
            pause += now.time - before.time
            longest = max(longest, pause)
    return longest


class _WatchedCluster:
    """One cluster, asked by our wire client. The client is replaced after every failure."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._client: Cluster | None = None

    async def end_offsets(self) -> list[int]:
        """Return the end offset of each partition from its leader."""
        ends = [UNKNOWN] * PARTITIONS
        try:
            if self._client is None:
                self._client = wire_client(self._bootstrap, "offset-watch", request_timeout=_TIMEOUT)
                await asyncio.wait_for(self._client.refresh([self._topic]), _TIMEOUT)
            by_leader: dict[int, list[tuple[str, int]]] = defaultdict(list)
            for partition in range(PARTITIONS):
                leader = self._client.leader(self._topic, partition)
                if leader is not None:
                    by_leader[leader.leader].append((self._topic, partition))
            requests = (
                asyncio.wait_for(list_offsets(self._client, partitions, LATEST), _TIMEOUT)
                for partitions in by_leader.values()
            )
            for answer in await asyncio.gather(*requests, return_exceptions=True):
                for (_, partition), end in answer.items() if isinstance(answer, dict) else ():
                    ends[partition] = end if isinstance(end, int) else UNKNOWN
        except Exception:  # a dying broker can cause any error; the next sample asks again
            ends = [UNKNOWN] * PARTITIONS
        if UNKNOWN in ends:
            self.close()
        return ends

    def close(self) -> None:
        """Close the client, if there is one."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
