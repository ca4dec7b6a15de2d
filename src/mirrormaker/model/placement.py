"""Which stream mirrors which partition: by measured load, moving as little as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Key = tuple[str, int]

_TOLERATED = 0.25  # of the mean load: below that, a move costs more than it brings


def spread(
    partitions: Iterable[Key], streams: Sequence[int], loads: Mapping[Key, float], now: Mapping[Key, int]
) -> dict[Key, int]:
    """Give each partition that has no stream yet to the one with the least to do."""
    plan = {key: now[key] for key in now}
    new = sorted((key for key in partitions if key not in plan), key=lambda key: (-loads.get(key, 0.0), key))
    for key in new:
        plan[key] = min(streams, key=lambda s: (_load(plan, loads, s), _count(plan, s), s))
    return plan


def moves(plan: Mapping[Key, int], streams: Sequence[int], loads: Mapping[Key, float]) -> dict[Key, int]:
    """What to move now, and where: one partition at a time evens out any imbalance within a few rounds."""
    if len(streams) < 2 or not plan:
        return {}
    totals = {s: _load(plan, loads, s) for s in streams}
    heavy, light = max(streams, key=lambda s: totals[s]), min(streams, key=lambda s: totals[s])
    gap = totals[heavy] - totals[light]
    mean = sum(totals.values()) / len(streams)
    if mean <= 0 or gap <= 2 * _TOLERATED * mean:
        return {}
    # Moving a partition of load w changes the gap by 2 w; only one that makes it smaller is worth it.
    candidates = [
        (abs(gap / 2 - loads.get(key, 0.0)), key)
        for key, s in plan.items()
        if s == heavy and 0 < loads.get(key, 0.0) < gap
    ]
    return {min(candidates)[1]: light} if candidates else {}


def _load(plan: Mapping[Key, int], loads: Mapping[Key, float], stream: int) -> float:
    return sum(loads.get(key, 0.0) for key, s in plan.items() if s == stream)


def _count(plan: Mapping[Key, int], stream: int) -> int:
    return sum(s == stream for s in plan.values())
