"""Which stream of this process mirrors which partition: by measured load, with as few moves as possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from mirrormaker.wire.protocol.codec import TopicPartition

# A fraction of the mean load: evening out a smaller difference costs more than it brings.
_TOLERATED = 0.25


def place(
    partitions: Iterable[TopicPartition],
    streams: Sequence[int],
    loads: Mapping[TopicPartition, float],
    current: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return a stream for every partition: the current one, or for a new partition the stream with the least load."""
    plan = dict(current)
    totals = {stream: [0.0, 0] for stream in streams}
    for key, stream in plan.items():
        if stream in totals:
            totals[stream][0] += loads.get(key, 0.0)
            totals[stream][1] += 1
    heap = [(load, count, stream) for stream, (load, count) in totals.items()]
    heapq.heapify(heap)
    # The heaviest ones first.
    for negative_load, key in sorted([(-loads.get(key, 0.0), key) for key in partitions if key not in plan]):
        load, count, stream = heap[0]
        plan[key] = stream
        heapq.heapreplace(heap, (load - negative_load, count + 1, stream))
    return plan


def moves(
    plan: Mapping[TopicPartition, int], streams: Sequence[int], loads: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Return the partition to move now and its new stream, or nothing.

    One partition at a time is enough: repeated calls even out any imbalance.
    """
    if len(streams) < 2 or not plan:
        return {}
    totals = dict.fromkeys(streams, 0.0)
    for key, s in plan.items():
        if s in totals:
            totals[s] += loads.get(key, 0.0)
    heavy, light = max(streams, key=lambda s: totals[s]), min(streams, key=lambda s: totals[s])
    gap = totals[heavy] - totals[light]
    mean = sum(totals.values()) / len(streams)
    if mean <= 0 or gap <= 2 * _TOLERATED * mean:
        return {}
    # Moving a partition of load w changes the gap by 2 w, so only a load below the gap makes it smaller.
    candidates = [
        (abs(gap / 2 - loads.get(key, 0.0)), key)
        for key, s in plan.items()
        if s == heavy and 0 < loads.get(key, 0.0) < gap
    ]
    return {min(candidates)[1]: light} if candidates else {}
