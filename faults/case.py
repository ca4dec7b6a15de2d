"""A case: what is done to whom, and what must hold."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from faults.judge import Count
from faults.play import Play
from faults.stage import Stage

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """`round` is repeated under one load; the target is judged when the last one is over."""

    name: str
    title: str
    round: Callable[[Play], None]
    processes: int = 2
    limit: float | None = None
    """Seconds that no partition may stand still for, if that is promised."""
    once: bool = False
    """Takes minutes or changes the group for good: one round, however many are asked for."""
    quick: bool = False
    """Is part of the short form."""
    forgetful: bool = False
    """To the target whose brokers forget identities, with records that are two days old."""
    cluster: bool = False
    """The streams run on a Spark cluster instead of beside the driver."""
    exact: bool = True
    """A Java MirrorMaker takes part: nothing may be lost, but records may come twice."""


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


def play(stage: Stage, case: Case, rounds: int, chance: random.Random, quick: bool, tell: Tell) -> Row:
    """Run a case to its end; whatever goes wrong is in the row."""
    began = time.monotonic()
    target, age = (stage.forgetful, _TWO_DAYS) if case.forgetful else (stage.target, 0.0)
    master = stage.spark.start().master if case.cluster else None
    scene = Play(stage, case.name, target, chance, quick, age, master)
    row = Row(case.name, 0)
    found = Count()
    try:
        scene.begin(case.processes)
        for number in range(1, rounds + 1):
            tell(f"round {number} of {rounds}")
            case.round(scene)
            row.rounds = number
        tell("waiting for the last record, and counting")
        found = scene.finish()
    except Exception as error:
        scene.troubles.append(str(error))
        scene.load.stop_without_waiting()
    finally:
        scene.close()
    row.records, row.lost, row.doubled, row.out_of_order = found.records, found.lost, found.doubled, found.out_of_order
    row.pause, row.seconds = max(scene.pauses, default=0.0), time.monotonic() - began
    if case.limit is not None and row.pause > case.limit:
        scene.troubles.append(f"a partition stood still for {row.pause:.1f} s; {case.limit:g} s are allowed")
    right = found.exact if case.exact else not found.lost
    row.holds = right and not scene.troubles and found.records > 0
    row.notes, row.troubles = scene.notes, scene.troubles
    return row
