"""A running mirror on the console: a live display on a terminal, plain or JSON lines otherwise."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirrormaker.events.event import Event
from mirrormaker.status.event_log import EventLog
from mirrormaker.status.figures import Totals


def progress_line(totals: Totals) -> str:
    """Return the progress line."""
    parts = [
        f"{count(totals.records_per_second)} records/s",
        f"{totals.bytes_per_second / 1e6:.1f} MB/s",
        f"{totals.records:,} records in total",
        f"lag {totals.lag:,}",
        totals.standing,
    ]
    if totals.waiting:
        parts.append(f"{totals.waiting} of {totals.partitions} partitions wait")
    if totals.stopped:
        parts.append(f"{totals.stopped} partitions stopped")
    return ", ".join(parts)


def count(number: float) -> str:
    """Return a number with three digits and a unit: 1234567 is 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= limit:
            scaled = number / (1e3 if unit == " k" else limit)
            return f"{scaled:.3g}{unit}"
    return f"{number:,.0f}"


def json_line(text: str, kind: str, **figures: float) -> str:
    """Return a line of `--log.format json`."""
    now = time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": when, "kind": kind, "text": text, **figures}, ensure_ascii=False)


class LogStream:
    """stderr without its errors: a full disk or a closed pipe costs log lines, and not the mirror."""

    @property
    def _stderr(self) -> TextIO:
        # While rich's live display runs, it stands in for sys.stderr and writes to this stream.
        stream: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
        return stream

    def write(self, text: str) -> int:
        """Write a text, or as much of it as is possible."""
        # ValueError: the stream is closed.
        with contextlib.suppress(OSError, ValueError):
            self._stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        with contextlib.suppress(OSError, ValueError):
            self._stderr.flush()

    def isatty(self) -> bool:
        """Return True if somebody looks at a terminal."""
        with contextlib.suppress(OSError, ValueError):
            return self._stderr.isatty()
        return False


class Display:
    """Writes to stderr; stdout stays free."""

    def __init__(
        self, interval: float, totals: Callable[[], Totals], console: Console | None = None, *, as_json: bool = False
    ) -> None:
        """`totals` returns the mirror's totals; `as_json` writes one JSON object per line (--log.format)."""
        self._stream = LogStream()
        self.console = console or Console(file=cast(TextIO, self._stream), highlight=False)
        self.events = EventLog()
        self._as_json = as_json
        self._interval, self._totals = interval, totals
        self._started = self._last_line = time.monotonic()
        self._live: Live | None = None
        self._shown: Totals | None = None  # on the live display: those of the last tick

    def report(self, event: Event) -> None:
        """Log an event, and write it in its own line."""
        self.events.add(event)
        self._write(event.text, event.kind.value)

    def show(self, text: str) -> None:
        """Write a line that is not an event, without the time."""
        if self._as_json:
            self._write(text, "start")
        else:
            self.console.print(text, markup=False, soft_wrap=True)

    def complain(self, text: str) -> None:
        """Write why the exit code is not 0."""
        if self._as_json:
            self._write(text, "error")
        else:
            print(f"mirrormaker: {text}", file=self._stream)

    def _write(self, text: str, kind: str, **figures: float) -> None:
        if self._as_json:
            print(json_line(text, kind, **figures), file=self._stream, flush=True)
        else:
            self.console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, soft_wrap=True)

    def start(self) -> None:
        """Start the live display, if stderr is a terminal."""
        if self.console.is_terminal and not self._as_json:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True, get_renderable=self._render)
            self._live.start()

    def tick(self) -> None:
        """Take in the totals, and write the progress line when it is due; call it about once a second."""
        now = time.monotonic()
        self._shown = totals = self._totals()
        if self._live is None and now - self._last_line >= self._interval:
            self._last_line = now
            self._write(
                progress_line(totals),
                "progress",
                records_per_second=round(totals.records_per_second, 1),
                bytes_per_second=round(totals.bytes_per_second),
                records=totals.records,
                bytes=totals.bytes,
                lag=totals.lag,
                lag_unknown=totals.lag_unknown,
                streams_at_work=totals.streams_at_work,
            )

    def stop(self) -> None:
        """End the live display."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def _render(self) -> Group:
        totals = self._shown or self._totals()
        table = Table(box=None, pad_edge=False, show_edge=False)
        for title in ("stream", "partitions", "MB/s", "lag"):
            table.add_column(title, justify="left" if title == "stream" else "right", header_style="dim")
        for stream in totals.streams:
            name = str(stream.number) if len(totals.sources) == 1 else f"{stream.source}/{stream.number}"
            speed = f"{stream.bytes_per_second / 1e6:.1f}" if stream.is_at_work else "not at work"
            table.add_row(name, str(stream.partitions), speed, f"{stream.lag:,}")
        return Group(Text(progress_line(totals), style="bold"), table)
