"""What is going on, for whoever waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

_EVERY = 5.0
"""Seconds between two lines where there is no terminal to rewrite one."""


@contextlib.contextmanager
def step(console: Console, text: str, unit: str = "records") -> Iterator[Callable[[int], None]]:
    """Show a step while it lasts; the function that is handed out takes how far it is."""
    began = printed = time.monotonic()

    def line(done: int) -> str:
        return f"{text}: {done:,} {unit}, {time.monotonic() - began:.0f} s"

    if console.is_terminal:
        with console.status(text) as status:
            yield lambda done: status.update(line(done))
        return

    def tell(done: int) -> None:
        nonlocal printed
        if time.monotonic() - printed > _EVERY:
            printed = time.monotonic()
            console.print("  " + line(done), highlight=False)

    console.print(text, highlight=False)
    yield tell
    console.print(f"  {time.monotonic() - began:.1f} s", highlight=False)
