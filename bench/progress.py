"""Show on the terminal which step runs and how far it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

_INTERVAL = 5.0  # seconds between two lines if the output is not a terminal


@contextlib.contextmanager
def step(console: Console, text: str) -> Iterator[Callable[[int], None]]:
    """Show a step while it lasts. The function that it yields takes the number of records that are done."""
    began = printed = time.monotonic()

    def line(done: int) -> str:
        return f"{text}: {done:,} records, {time.monotonic() - began:.0f} s"

    if console.is_terminal:
        with console.status(text) as status:
            yield lambda done: status.update(line(done))
        return

    def progress(done: int) -> None:
        nonlocal printed
        if time.monotonic() - printed > _INTERVAL:
            printed = time.monotonic()
            console.print("  " + line(done), highlight=False)

    console.print(text, highlight=False)
    yield progress
    console.print(f"  {time.monotonic() - began:.1f} s", highlight=False)
