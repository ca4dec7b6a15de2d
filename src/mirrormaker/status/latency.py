"""Quantiles of latencies that were counted by class."""

from __future__ import annotations

from collections.abc import Sequence

from mirrormaker.worker.counters import BOUNDS

QUANTILES = (0.5, 0.99, 0.999)


def quantiles(counts: Sequence[int]) -> tuple[float, ...] | None:
    """Return milliseconds for each of `QUANTILES`, interpolated within a class; None if nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    found, before, at = [], 0, 0
    for share in QUANTILES:
        wanted = share * total
        while before + counts[at] < wanted:
            before += counts[at]
            at += 1
        low = BOUNDS[at - 1] if at else 0
        # The last class has no upper bound.
        high = BOUNDS[at] if at < len(BOUNDS) else low
        found.append(low + (high - low) * (wanted - before) / counts[at])
    return tuple(found)
