"""How far each partition is on both sides, moment by moment."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from faults.load import PARTITIONS
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets

_EVERY = 0.2
"""Seconds between two looks, and so the precision of every pause."""

_PATIENCE = 1.0
"""Seconds for one broker's answer: a frozen one must not keep the others' answers waiting."""

UNKNOWN = -1


class Moment(NamedTuple):
    """The ends of all partitions at one time; UNKNOWN where no leader answered."""

    time: float
    source: list[int]
    target: list[int]


class Watch(threading.Thread):
    """Looks several times a second until it is told to stop."""

    def __init__(self, source: str, target: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._sides, self._topic = (_Side(source, topic), _Side(target, topic)), topic
        self._over = threading.Event()
        self.moments: list[Moment] = []
        self.source, self.target = [UNKNOWN] * PARTITIONS, [UNKNOWN] * PARTITIONS
        """The furthest ends that were ever seen."""

    def run(self) -> None:
        asyncio.run(self._look_on())

    async def _look_on(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            source, target = await asyncio.gather(*(side.ends() for side in self._sides))
            self.moments.append(Moment(time.monotonic(), source, target))
            self.source = [max(pair) for pair in zip(self.source, source, strict=True)]
            self.target = [max(pair) for pair in zip(self.target, target, strict=True)]
            await asyncio.sleep(max(0.0, began + _EVERY - time.monotonic()))
        for side in self._sides:
            side.close()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def pause(self, since: float, until: float = float("inf")) -> float:
        """The longest time for which a partition stood still on the target while the source had more of it."""
        return longest_pause([moment for moment in list(self.moments) if since <= moment.time <= until])


def longest_pause(seen: list[Moment]) -> float:
    return max(_stood_still(seen, partition) for partition in range(PARTITIONS))


def _stood_still(seen: list[Moment], partition: int) -> float:
    longest = stood = 0.0
    reached = max((moment.target[partition] for moment in seen[:1]), default=UNKNOWN)
    for before, now in pairwise(seen):
        if now.target[partition] > reached:
            reached, stood = now.target[partition], 0.0
        elif now.source[partition] > reached:  # also false while the source itself has no leader
            stood += now.time - before.time
            longest = max(longest, stood)
    return longest


class _Side:
    """One cluster, asked by our wire client."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        pairs = [address.split(":") for address in bootstrap.split(",")]
        self._endpoint = Endpoint(
            tuple((host, int(port)) for host, port in pairs), "faults-watch", request_timeout=_PATIENCE
        )
        self._topic = topic
        self._cluster: Cluster | None = None

    async def ends(self) -> list[int]:
        """The end of each partition, as its leader sees it."""
        found = [UNKNOWN] * PARTITIONS
        try:
            if self._cluster is None:
                self._cluster = Cluster(self._endpoint)
                await asyncio.wait_for(self._cluster.refresh([self._topic]), _PATIENCE)
            by_leader: dict[int, list[tuple[str, int]]] = defaultdict(list)
            for partition in range(PARTITIONS):
                leader = self._cluster.leader(self._topic, partition)
                if leader is not None:
                    by_leader[leader.leader].append((self._topic, partition))
            asked = (
                asyncio.wait_for(list_offsets(self._cluster, mine, LATEST), _PATIENCE) for mine in by_leader.values()
            )
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                for (_, partition), end in answer.items() if isinstance(answer, dict) else ():
                    found[partition] = end if isinstance(end, int) else UNKNOWN
        except Exception:  # whatever a dying broker makes of it: unknown, and asked again
            found = [UNKNOWN] * PARTITIONS
        if UNKNOWN in found:
            self.close()
        return found

    def close(self) -> None:
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close()
            self._cluster = None
