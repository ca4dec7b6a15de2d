"""The short form of `make faults`: a round of the worst cases on clusters of three brokers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from faults import ROOT


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_every_record_is_there_once_after_the_short_form_of_the_fault_cases() -> None:
    done = subprocess.run([sys.executable, "-m", "faults", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
