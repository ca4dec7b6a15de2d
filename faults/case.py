"""A case: what is done to whom, and what must hold."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faults.judge import Count
from faults.play import Play
from faults.stage import Stage


@dataclass(frozen=True)
class Case:
    """`round` is repeated under one load; the target is judged when the last one is over."""

    name: str
    title: str
    round: Callable[[Play], None]
    processes: int = 2
    limit: float | None = None
    """Seconds that no partition may stand still for, if that is promised."""
    rounds: int = 2
    """How often it happens, unless the command says otherwise."""
    once: bool = False
    """Takes minutes or changes the group for good: one round, however many are asked for."""
    quick: bool = False
    """Is part of the short form."""
    forgetful: bool = False
    """To the target whose brokers forget identities, with records that are two days old."""
    cluster: bool = False
    """The streams run on a Spark cluster instead of beside the driver."""
    exact: bool = True
    """If not, a Java MirrorMaker takes part, which goes by key: nothing may be lost, but records may come twice."""


@dataclass(frozen=True)
class Apart:
    """A case with clusters and a way of counting of its own; `run` fills the row."""

    name: str
    title: str
    run: Callable[[Path, Row], None]
    quick: bool = False
    limit: float | None = None
    exact: bool = True


Tell = Callable[[Case, str], None]


@dataclass
class Row:
    """What came of a case."""

    case: str
    rounds: int
    records: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    pause: float = 0.0
    seconds: float = 0.0
    holds: bool = False
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


_TWO_DAYS = 2 * 86_400.0
_QUICK_LIMIT = 2
"""Times as long may a pause be in the short form: it runs beside other things, and is about records."""


def play(
    stage: Stage, cases: Sequence[Case], rounds: Callable[[Case], int], seed: int, quick: bool, tell: Tell
) -> Iterator[Row]:
    """Run cases that need the same mirrors, one after the other under one load; whatever goes wrong is in their rows."""
    first = cases[0]
    target, age = (stage.forgetful, _TWO_DAYS) if first.forgetful else (stage.target, 0.0)
    master = stage.spark.start().master if first.cluster else None
    scene = Play(stage, first.name, target, quick, age, master)
    left = list(cases)
    try:
        while left:
            case = left.pop(0)
            yield _play_one(scene, case, rounds(case), seed, is_first=case is first, is_last=not left, tell=tell)
            if scene.troubles:
                break
            scene.clear()
    finally:
        scene.close()
    if left:  # what has seen trouble is not fit for more
        yield from play(stage, left, rounds, seed, quick, tell)


def _play_one(scene: Play, case: Case, rounds: int, seed: int, *, is_first: bool, is_last: bool, tell: Tell) -> Row:
    began = time.monotonic()
    scene.chance = random.Random(f"{seed} {case.name}")  # the same whether the case runs alone or after others
    row, before, found = Row(case.name, 0), scene.counted, Count()
    try:
        if is_first:
            scene.begin(case.processes)
        for number in range(1, rounds + 1):
            tell(case, f"round {number} of {rounds}")
            case.round(scene)
            row.rounds = number
        tell(case, "waiting for the last record, and counting")
        found = scene.settle(anywhere=not case.exact) - before
        if is_last:
            scene.stop_all()
    except Exception as error:
        scene.troubles.append(str(error))
    row.records, row.lost, row.doubled, row.out_of_order = found.records, found.lost, found.doubled, found.out_of_order
    row.pause, row.seconds = max(scene.pauses, default=0.0), time.monotonic() - began
    limit = None if case.limit is None else case.limit * (_QUICK_LIMIT if scene.quick else 1)
    if limit is not None and row.pause > limit:
        scene.troubles.append(f"a partition stood still for {row.pause:.1f} s; {limit:g} s are allowed")
    row.troubles, row.notes = list(scene.troubles), scene.remarks()
    row.holds = (found.exact if case.exact else not found.lost) and not row.troubles and found.records > 0
    if not row.holds:
        row.notes.append(f"logs kept in {scene.keep_logs(case.name)}")
    return row
