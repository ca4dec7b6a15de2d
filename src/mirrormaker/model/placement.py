"""Which stream of this process mirrors which partition: by measured load, with as few moves as possible."""

from __future__ import annotations

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
    plan = {key: current[key] for key in current}
    new = sorted((key for key in partitions if key not in plan), key=lambda key: (-loads.get(key, 0.0), key))
    for key in new:
        plan[key] = min(streams, key=lambda s: (_load(plan, loads, s), _count(plan, s), s))
    return plan


def moves(
    plan: Mapping[TopicPartition, int], streams: Sequence[int], loads: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Return the partition to move now and its new stream, or nothing.

    One partition at a time is enough: repeated calls even out any imbalance.
    """
    if len(streams) < 2 or not plan:
        return {}
    totals = {s: _load(plan, loads, s) for s in streams}
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


def _load(plan: Mapping[TopicPartition, int], loads: Mapping[TopicPartition, float], stream: int) -> float:
    return sum(loads.get(key, 0.0) for key, s in plan.items() if s == stream)


def _count(plan: Mapping[TopicPartition, int], stream: int) -> int:
    return sum(s == stream for s in plan.values())
