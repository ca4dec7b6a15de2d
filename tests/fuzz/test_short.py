"""A minute of `make fuzz`, and whether it keeps the limits that it promises."""

from __future__ import annotations

import hashlib
import re
import secrets
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from fuzz.conversations import CONVERSATIONS
from fuzz.decoders import _order, _report
from fuzz.recording import load
from fuzz.replay import SlowAnswer, talk
from fuzz.runner import Attempt, Case, judge, run

from mirrormaker.errors import BadFrame

ROOT = Path(__file__).parents[2]
_FIXED = 1


def test_the_report_that_is_damaged_has_runs_and_new_topic_ids() -> None:
    """Otherwise their decoders would be reached by luck alone."""
    taken = {take.tenancy: take.position for take in _order().take}
    report = _report()
    for row in [*report.partitions, *(ended.partition for ended in report.ended)]:
        assert row.runs
        assert row.position.target_topic_id != taken[row.tenancy].target_topic_id


def test_a_limit_that_is_not_kept_is_found() -> None:
    def raises() -> None:
        raise ValueError

    def refuses() -> None:
        raise BadFrame

    def opens_a_file() -> None:
        Path("/nowhere/orders").read_bytes()

    def computes() -> None:
        hashlib.pbkdf2_hmac("sha512", b"", b"", 3_000_000)

    attempts = (refuses, raises, opens_a_file, computes, lambda: bytearray(200 << 20).clear())
    troubles = [judge(Attempt(b"", attempt)) for attempt in attempts]
    found = ["" if trouble is None else trouble.summary.split()[-1] for trouble in troubles]
    assert found == ["", "ValueError", "FileNotFoundError", "time", "memory"]


def test_a_second_of_each_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(step=2)
    monkeypatch.setattr(time, "process_time", lambda: float(next(seconds)))
    rows = [row for row in load() if row.conversation == "read-log"]
    with pytest.raises(SlowAnswer):
        talk(CONVERSATIONS["read-log"], rows, may_fail=False)


def test_each_case_is_tried_however_little_time_there_is() -> None:
    cases = [Case(name, lambda dice: Attempt(b"", lambda: None)) for name in ("first", "last")]
    tried, findings = run(cases, seed=1, seconds=-1, first=7, show=lambda finding: None)
    assert (tried, findings) == ({"first": 1, "last": 1}, [])


@pytest.mark.parametrize("seed", [_FIXED, secrets.randbelow(1 << 32)], ids=["fixed", "random"])
def test_no_damaged_answer_gets_out_of_hand(seed: int) -> None:
    command = [sys.executable, "-m", "fuzz", "--seed", str(seed), "--minutes", "0.4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(f"seed {seed}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9][\d,]* attempts in .* 0 findings", done.stdout), done.stdout
    cases = re.match(r"(\d+) cases", done.stdout)
    tried = re.findall(r"^\S+ +[1-9][\d,]*$", done.stdout, re.MULTILINE)
    assert cases and len(tried) == int(cases[1]), done.stdout
