"""A minute of `make fuzz`, and whether its recorded answers are complete."""

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
from fuzz.recording import ZNODE, load
from fuzz.replay import SlowAnswer, talk
from fuzz.runner import Attempt, Case, judge, run

from mirrormaker.errors import BadFrame
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.wire.protocol import messages

ROOT = Path(__file__).parents[2]
_FIXED = 1


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_recorded_answers_are_answers_while_they_are_whole(name: str) -> None:
    """Otherwise damaged ones would never reach the code behind the first check."""
    rows = [row for row in load() if row.conversation == name]
    assert rows, f"record the answers again: python -m fuzz.recording ({name} has none)"
    talk(CONVERSATIONS[name], rows, may_fail=False)


def test_every_request_has_a_recorded_answer() -> None:
    names = [name for name in messages.__all__ if name.endswith("Request")]
    keys = {name: getattr(messages, name).API_KEY for name in names}
    keys |= {"FetchRequest": 1, "ConsumerGroupDescribe": consumer_protocol_groups.API_KEY}
    recorded = {row.api_key for row in load()}
    assert ZNODE in recorded
    missing = [name for name, key in keys.items() if key not in recorded]
    assert not missing, "add them to a conversation (fuzz/conversations.py), then: python -m fuzz.recording"


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
