"""A row of the error table: one request that the mirror sends, and what makes it send the request for a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.table_stage import Stage
from tests.support.waiting import NotInTime, wait_until

REACHED = 6.0  # seconds until the mirror has asked for each topic

Trigger = Callable[[Stage, Sequence[str]], None]


def nothing(stage: Stage, topics: Sequence[str]) -> None:
    """Do nothing: the mirror sends such requests all the time."""


def wait_for_hits(stage: Stage, hits: Mapping[str, int], topics: Iterable[str], within: float = REACHED) -> bool:
    """Wait until the mirror has asked for each topic; return False if it does not."""
    try:
        wait_until("every topic is asked for", lambda: all(hits.get(t) for t in topics), within * stage.slack)
    except NotInTime:
        return False
    return True


@dataclass(frozen=True)
class Row:
    """One request of the mirror to one of the clusters, and what makes the mirror send it for a topic."""

    request: str
    side: str
    trigger: Trigger = nothing
    why: str = ""  # tells rows with the same request and cluster apart
    whole: bool = False  # the error is about the whole answer, and not about topics in it
    spreads: bool = False  # the error concerns every topic of the cluster, so none can be expected to flow
    new: bool = False  # the topics do not exist before the trigger
    login: bool = False  # the clusters ask for a login
    # The error is about this topic of the mirror itself, and every mirrored topic has to flow. `{alias}` is that of the source.
    own: str = ""
    groups: bool = (
        False  # the mirror keeps groups in step, and the error is about them: every mirrored topic has to flow
    )
    restarts: bool = False  # the mirror is started again under another alias of the source, so every topic stands still
    # The mirror's log has to say this while the error lasts; empty if the mirror can do without the answer.
    says: str = ""
    # One code of each kind is tried: unit tests have shown for all codes that the mirror makes the same of each.
    sampled: bool = False
    # Several codes can be tried at the same time, each with a topic of its own, because the mirror sends these requests
    # for each partition alone, or looks at each row of the answer for itself. Elsewhere one error could hide another.
    together: bool = False
    # Several codes of one kind (retriable or not, and each scope) can be tried at the same time, apart from the special ones:
    # an answer carries the rows of many topics, and an error of another kind could hide one of this kind.
    alike: bool = False
    # Codes of which the request makes something special, beside one of each kind.
    special: tuple[int, ...] = ()
    # Codes after which the process has to end, with a line that says why.
    ends: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The row as people call it."""
        return f"{self.request}@{self.side}" + (f" ({self.why})" if self.why else "")

    @property
    def spares_topics(self) -> bool:
        """True if no mirrored topic may notice the error."""
        return bool(self.own) or self.groups
