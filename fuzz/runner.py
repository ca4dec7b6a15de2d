"""Run cases in turn until the time is over, or until there were enough attempts."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz.case import Case
from fuzz.limits import judge


class Finding(NamedTuple):
    """A limit that a case did not keep, the first time that it happened."""

    case: str
    summary: str
    detail: str
    file: Path  # the damaged input


def run(
    cases: Sequence[Case], *, seed: int, seconds: float, most: int | None, show: Callable[[str], None]
) -> tuple[Counter[str], list[Finding]]:
    """Return how often each case was tried, and what was found. `most` is the largest number of attempts for each case."""
    tried: Counter[str] = Counter()
    findings: dict[tuple[str, str], Finding] = {}
    deadline = time.monotonic() + seconds
    for number in count() if most is None else range(most):
        for case in cases:
            if time.monotonic() > deadline:
                return tried, list(findings.values())
            # The same seed and number always make the same input.
            attempt = case.attempt(Random(f"{seed} {case.name} {number}"))
            tried[case.name] += 1
            trouble = judge(attempt.run, len(attempt.data))
            if trouble is not None and (case.name, trouble.summary) not in findings:
                finding = Finding(case.name, trouble.summary, trouble.detail, _keep(case.name, number, attempt.data))
                findings[case.name, trouble.summary] = finding
                show(f"{finding.case} {finding.summary}: {finding.file}\n{finding.detail}")
    return tried, list(findings.values())


def _keep(name: str, number: int, data: bytes) -> Path:
    file = Path(tempfile.gettempdir()) / f"fuzz-{name}-{number}"
    file.write_bytes(data)
    return file
