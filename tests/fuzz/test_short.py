"""`make fuzz` with --quick: at most a minute, and at most 500 damaged inputs of each kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_damaged_answer_gets_out_of_hand() -> None:
    done = subprocess.run([sys.executable, "-m", "fuzz", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
