"""Progress as people read it: a live display on a terminal, plain lines otherwise."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirrormaker.status.event_log import Events

_WINDOW = 10.0  # seconds over which rates are averaged


@dataclass(frozen=True)
class Totals:
    """The mirror at one moment, added up."""

    records: int
    bytes: int
    lag: int
    partitions: int
    flowing: int
    waiting: int
    stopped: int
    streams: tuple[tuple[str, int, float, float], ...] = ()  # name, partitions, bytes/s, lag


class Rates:
    """Records and bytes per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, now: float, records: int, size: int) -> None:
        self._seen.append((now, records, size))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()

    @property
    def per_second(self) -> tuple[float, float]:
        if len(self._seen) < 2:
            return 0.0, 0.0
        (t0, r0, b0), (t1, r1, b1) = self._seen[0], self._seen[-1]
        seconds = max(1e-6, t1 - t0)
        return (r1 - r0) / seconds, (b1 - b0) / seconds


def line(snapshot: Totals, rates: tuple[float, float]) -> str:
    """One line that says how it goes."""
    parts = [
        f"{count(rates[0])} records/s",
        f"{rates[1] / 1e6:.1f} MB/s",
        f"{snapshot.records:,} records in total",
        f"lag {snapshot.lag:,}",
        catch_up(snapshot.lag, rates[0]),
    ]
    if snapshot.waiting:
        parts.append(f"{snapshot.waiting} of {snapshot.partitions} partitions wait")
    if snapshot.stopped:
        parts.append(f"{snapshot.stopped} partitions stopped")
    return ", ".join(parts)


def catch_up(lag: int, rate: float) -> str:
    """Time to catch up at this pace."""
    if lag == 0:
        return "caught up"
    if rate < 1:
        return "not moving"
    return f"caught up in {duration(lag / rate)}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def count(number: float) -> str:
    """1234567 as 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= limit:
            scaled = number / (1e3 if unit == " k" else limit)
            return f"{scaled:.3g}{unit}"
    return f"{number:,.0f}"


def json_line(text: str, kind: str, **figures: float) -> str:
    """What `--log.format json` writes."""
    now = time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": when, "kind": kind, "text": text, **figures}, ensure_ascii=False)


class Display:
    """Writes to stderr, so that stdout stays free for whoever wants to use it."""

    def __init__(
        self, interval: float, look: Callable[[], Totals], console: Console | None = None, *, as_json: bool = False
    ) -> None:
        """`as_json`: for machines, one JSON object in each line (--log.format)."""
        self.console = console or Console(stderr=True, highlight=False)
        self.events = Events()
        self._as_json = as_json
        self._interval, self._look = interval, look
        self._rates = Rates()
        self._started = self._last_line = time.monotonic()
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """An event, in its own line."""
        self._write(text, self.events.add(text).kind)

    def show(self, text: str) -> None:
        """Something that is not an event, without the time."""
        if self._as_json:
            self._write(text, "start")
        else:
            self.console.print(text, markup=False, soft_wrap=True)

    def complain(self, text: str) -> None:
        """Why the exit code is not 0."""
        if self._as_json:
            self._write(text, "error")
        else:
            print(f"mirrormaker: {text}", file=sys.stderr)

    def _write(self, text: str, kind: str, **figures: float) -> None:
        if self._as_json:
            print(json_line(text, kind, **figures), file=sys.stderr, flush=True)
        else:
            self.console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, soft_wrap=True)

    def start(self) -> None:
        if self.console.is_terminal and not self._as_json:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True, get_renderable=self._picture)
            self._live.start()

    def tick(self) -> None:
        """Called about once a second."""
        now = time.monotonic()
        snapshot = self._look()
        self._rates.add(now, snapshot.records, snapshot.bytes)
        if self._live is None and now - self._last_line >= self._interval:
            self._last_line = now
            records, size = self._rates.per_second
            figures = {"records_per_second": round(records, 1), "bytes_per_second": round(size)}
            more = {"records": snapshot.records, "bytes": snapshot.bytes, "lag": snapshot.lag}
            self._write(line(snapshot, (records, size)), "progress", **figures, **more)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def _picture(self) -> Group:
        snapshot = self._look()
        rates = self._rates.per_second
        table = Table(box=None, pad_edge=False, show_edge=False)
        for title in ("stream", "partitions", "MB/s", "lag"):
            table.add_column(title, justify="left" if title == "stream" else "right", header_style="dim")
        for name, partitions, speed, lag in snapshot.streams:
            table.add_row(name, str(partitions), f"{speed / 1e6:.1f}", f"{lag:,.0f}")
        return Group(Text(line(snapshot, rates), style="bold"), table)
