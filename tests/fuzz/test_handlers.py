"""Whether an unexpected error can hide from `make fuzz` in a handler that catches everything and goes on."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.conversations import CONVERSATIONS
from fuzz.recording import load
from fuzz.replay import LAST_HANDLERS, talk

from mirrormaker.mapping.map_topic import MapTopic
from mirrormaker.worker.stream_metadata import StreamMetadata

PACKAGE = Path(__file__).parents[2] / "src/mirrormaker"
_PARTS = ("driver", "groups", "mapping", "offsets", "verification", "wire", "worker")  # what conversations run
# They catch what the user's own code or Spark raises, or hand the error on to all who wait for it.
_OTHERS = frozenset(
    {
        "driver/rebalance_listener.py",
        "driver/spark_supervisor.py",
        "driver/stream_jobs.py",
        "verification/command.py",
        "wire/client/log_offsets.py",
        "wire/transport/threads.py",
        "worker/handler.py",
    }
)


def handlers(file: Path) -> Iterator[ast.ExceptHandler]:
    """Yield the handlers of a file that catch every error."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler) and getattr(node.type, "id", "") in ("Exception", "BaseException"):
            yield node


def is_told(handler: ast.ExceptHandler, file: Path) -> bool:
    """Return True if the handler raises an error again, or calls something that the fuzzer listens to."""
    names = {
        name
        for owner, name in LAST_HANDLERS
        if owner is traceback or isinstance(owner, type) or Path(owner.__file__) == file
    }
    for node in (node for statement in handler.body for node in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names:
            return True
    return False


def test_no_handler_of_all_errors_hides_them_from_the_fuzzer() -> None:
    hiding = [
        f"{file.relative_to(PACKAGE)}:{handler.lineno}"
        for part in _PARTS
        for file in sorted((PACKAGE / part).rglob("*.py"))
        if file.relative_to(PACKAGE).as_posix() not in _OTHERS
        for handler in handlers(file)
        if not is_told(handler, file)
    ]
    assert not hiding, "add to LAST_HANDLERS (fuzz/replay.py) what they call"


@pytest.mark.parametrize(
    ("conversation", "owner", "method"), [("offset-map", MapTopic, "rows_of"), ("mirror", StreamMetadata, "learn")]
)
def test_an_unexpected_error_that_is_only_described_is_found(
    monkeypatch: pytest.MonkeyPatch, conversation: str, owner: type, method: str
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(owner, method, fail)
    with pytest.raises(ZeroDivisionError):
        talk(CONVERSATIONS[conversation], [row for row in load() if row.conversation == conversation])
