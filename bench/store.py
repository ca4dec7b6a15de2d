"""The log of all full measurements: one line for each workload and run, written as soon as it is measured, never changed."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.results import Measurement
from bench.workloads import FULL, AnyWorkload

LOG = ROOT / "bench" / "results.jsonl"
_PROGRAM = "src"  # a change of anything else leaves the figures valid


@dataclass(frozen=True)
class Version:
    """The program that is measured."""

    commit: str
    is_changed: bool  # the sources differ from the commit


@dataclass(frozen=True)
class Stored:
    """Measurements from the log, the oldest first, and the days on which they were made."""

    measurements: list[Measurement]
    days: list[str]


def append(work: AnyWorkload, measurements: Iterable[Measurement], version: Version) -> None:
    """Append what one run of one workload has shown."""
    line = heading([work], quick=False) | {
        "commit": version.commit,
        "changed": version.is_changed,
        "measurements": [rounded(asdict(measurement)) for measurement in measurements],
    }
    with open(LOG, "a") as log:
        log.write(json.dumps(line) + "\n")


def load(commits: Collection[str], lines: Iterable[str] | None = None) -> Stored:
    """Return the measurements of these commits. Workloads that have changed since then are left out."""
    titles = {work.name: work.title for work in FULL}
    measurements: list[Measurement] = []
    days = set()
    for text in lines if lines is not None else LOG.read_text().splitlines():
        line = json.loads(text)
        if line["quick"] or line.get("changed") or line.get("commit") not in commits:
            continue
        measured = {work["name"] for work in line["work"] if titles.get(work["name"]) == work["title"]}
        rows = [Measurement(**row | {"notes": tuple(row["notes"])}) for row in line["measurements"]]
        measurements += [row for row in rows if row.workload in measured]
        if measured:
            days.add(line["date"][:10])
    return Stored(measurements, sorted(days))


def version() -> Version:
    """Return which program is measured now. Without a repository that is unknown, and the figures belong to no version."""
    head = _git("rev-parse", "HEAD")
    return Version(head[0], bool(_git("status", "--porcelain", "--", _PROGRAM))) if head else Version("", True)


def commits_since(first: str | None) -> set[str]:
    """Return a commit and everything that was built on it. By default, `first` is the last one that changed the program."""
    wanted = ("rev-parse", "--verify", f"{first}^{{commit}}") if first else ("log", "-1", "--format=%H", "--", _PROGRAM)
    oldest = _git(*wanted)
    return {*oldest, *_git("rev-list", "--ancestry-path", f"{oldest[0]}..HEAD")} if oldest else set()


def _git(*arguments: str) -> list[str]:
    """Return the lines that git prints, none if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def heading(works: Sequence[AnyWorkload], quick: bool) -> dict[str, Any]:
    """Return when, where and with which workloads something is measured."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "work": [asdict(work) for work in works],
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def rounded(value: Any) -> Any:
    """Return a value with all floats rounded to five significant digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value
