"""A table as plain text: columns as wide as their longest cell, two spaces between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]
    for row in everything:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
