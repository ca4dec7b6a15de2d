"""The console of a running mirror: nothing that happens to stderr may stop the mirror."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from mirrormaker.console.display import Display, LogStream
from mirrormaker.status.figures import Totals

TOTALS = Totals(records=0, bytes=0, lag=0, partitions=1, flowing=1, waiting=0, stopped=0)
PROGRAM = """
import sys
from mirrormaker.console.display import Display
from mirrormaker.status.figures import Totals
from mirrormaker.events.partition_events import Waiting
display = Display(0.0, lambda: Totals(0, 0, 0, 1, 1, 0, 0), as_json={as_json})
for _ in range(3):
    display.show("shown")
    display.report(Waiting("the source does not answer"))
    display.tick()
    display.complain("no")
print("went on")
"""


class Broken(io.StringIO):
    """A stream on which everything fails, as on a full disk."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, _text: str) -> int:
        raise self._error

    def flush(self) -> None:
        raise self._error

    def isatty(self) -> bool:
        raise self._error


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError(), ValueError("closed")])
def test_a_stderr_that_fails_does_not_disturb_the_mirror(
    error: Exception, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Broken(error))
    display = Display(0.0, lambda: TOTALS, as_json=as_json)
    display.start()
    for _ in range(3):
        display.show("shown")
        display.complain("no")
        display.tick()
    display.stop()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_full_disk_and_a_closed_pipe_do_not_end_the_program(as_json: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(as_json=as_json)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stderr=writing, stdout=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_lines_go_on_when_there_is_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(0.0, lambda: TOTALS)
    monkeypatch.setattr(sys, "stderr", Broken(OSError(28, "No space left on device")))
    display.show("lost")
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    display.show("written")
    assert written.getvalue() == "written\n"


def test_a_terminal_is_still_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not LogStream().isatty()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert LogStream().isatty()
