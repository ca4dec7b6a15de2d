"""Spark's calls block; they run in threads beside the event loop."""

from __future__ import annotations

from mirrormaker.wire.aside import aside

__all__ = ["aside", "first_line"]


def first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
