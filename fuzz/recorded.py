"""The recorded answers: one line of `answers.jsonl` for each request of each conversation, in their order."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("answers.jsonl")


class Recorded(NamedTuple):
    """A request and its answer, both without headers."""

    conversation: str
    api_key: int
    version: int
    request: bytes
    answer: bytes


def load() -> list[Recorded]:
    """Return all recorded answers."""
    rows = (json.loads(line) for line in FILE.read_text(encoding="ascii").splitlines())
    return [
        Recorded(name, key, version, base64.b64decode(request), base64.b64decode(answer))
        for name, key, version, request, answer in rows
    ]


def save(recorded: Iterable[Recorded]) -> None:
    """Replace all recorded answers."""
    lines = (
        json.dumps([*row[:3], base64.b64encode(row.request).decode(), base64.b64encode(row.answer).decode()])
        for row in recorded
    )
    FILE.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
