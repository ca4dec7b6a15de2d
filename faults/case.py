"""The description of a fault case, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.counting import Count

from faults.scenario import Scenario


@dataclass(frozen=True)
class Case:
    """A fault on the shared clusters. `round` is repeated under one load; records are counted after the last round."""

    name: str
    title: str
    round: Callable[[Scenario], None]
    processes: int = 2  # mirrors in the group; a case with 0 starts its own
    limit: float | None = None  # seconds for which no partition may stand still, if there is a promise
    rounds: int = 2  # unless the command line says otherwise
    once: bool = False  # one round at most, because it takes minutes or changes the group for good
    quick: bool = False  # part of --quick
    expired: bool = False  # the target's brokers forget producer ids, and the records are two days old
    cluster: bool = False  # the streams run on a Spark cluster instead of in the driver's machine
    on_request: bool = False  # runs only if it is named, because it takes an hour
    exact: bool = True  # if not, a Java MirrorMaker takes part: nothing may be lost, but records may be duplicated


@dataclass(frozen=True)
class SeparateCase:
    """A case with clusters of its own. `run` gets a directory and fills the result."""

    name: str
    title: str
    run: Callable[[Path, Result], None]
    limit: float | None = None
    exact: bool = True


def is_on_request(case: Case | SeparateCase) -> bool:
    """Return True if `make faults` leaves the case out."""
    return isinstance(case, Case) and case.on_request


@dataclass
class Result:
    """The result of a case."""

    case: str
    rounds: int
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    longest_pause: float = 0.0  # seconds
    committed_lag_zero_after: float | None = None  # seconds from the end of the load; None if not measured
    seconds: float = 0.0
    holds: bool = False
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def set_count(self, count: Count) -> None:
        """Take over the counted records."""
        self.records, self.lost, self.duplicated = count.records, count.lost, count.duplicated
        self.out_of_order = count.out_of_order

    def add(self, count: Count, what: str) -> None:
        """Add the counted records of a topic or a partition. If they are not exact, that is a problem."""
        self.records += count.records
        self.lost += count.lost
        self.duplicated += count.duplicated
        self.out_of_order += count.out_of_order
        if not count.is_exact:
            self.problems.append(
                f"{what}: {count.lost} lost, {count.duplicated} duplicated, {count.out_of_order} out of order"
            )
