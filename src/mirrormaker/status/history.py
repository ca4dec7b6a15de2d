"""The pace, lag and latency of the last hour, in a ring of fixed size."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from mirrormaker.status.latency import quantiles

EVERY = 5  # seconds
_HOUR = 3600
_COLUMNS = ("time", "records", "bytes", "lag", "p50", "p99", "p999")


class History:
    """One row for every five seconds: the pace in between, the lag at its end, and the latencies of its records."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=_HOUR // EVERY)
        self._before: tuple[float, int, int, Sequence[int]] | None = None

    def add(self, when: float, records: int, size: int, lag: int, late: Sequence[int]) -> None:
        """Add a row. `records`, `size` and `late` count from the start; the row holds the change since the last call."""
        if self._before is not None:
            then, records_then, size_then, late_then = self._before
            seconds = max(1e-3, when - then)
            fresh = quantiles([a - b for a, b in zip(late, late_then, strict=True)]) or (None,) * 3
            pace = (records - records_then) / seconds, (size - size_then) / seconds
            self._rows.append((round(when, 1), round(pace[0], 1), round(pace[1]), lag, *map(_short, fresh)))
        self._before = (when, records, size, tuple(late))

    def columns(self, after: float = 0.0) -> dict[str, Any]:
        """Return the rows after that time as columns, the oldest first."""
        rows = [row for row in self._rows if (row[0] or 0.0) > after]
        return {"every": EVERY, **{name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS)}}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
