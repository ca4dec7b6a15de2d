"""`make faults` with --quick: one round of the worst cases on clusters of three brokers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_every_record_is_there_once_after_the_quick_fault_cases() -> None:
    done = subprocess.run([sys.executable, "-m", "faults", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
