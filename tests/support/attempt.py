"""One try of the error table: refuse a request for some topics, allow it again, and compare what the mirror has made of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mirrormaker.kafka_errors import Scope, error_code
from tests.support.error_row import REACHED, Row, wait_for_hits
from tests.support.refusals import WHOLE
from tests.support.table_stage import Stage, now
from tests.support.waiting import NotInTime, wait_until

_REFUSED = 1.5  # seconds for which the answers carry the error, from the moment when each topic was asked for
LIMIT = 1.0  # seconds for which a topic that no error concerns may stand still
_NEW_FLOWS = 8.0  # seconds until a new topic that no error concerns flows, while others are refused
_RECOVERED = 12.0  # seconds after the error until every topic has caught up; a stopped partition waits for 5
RECOVERED_WHOLE = 25.0  # the same for an error of the whole source, which may start the source anew
_TOO_MANY = 100  # requests for one topic within `_REFUSED`: more is a busy loop


@dataclass
class Cell:
    """One row and one code: what went wrong, and how long things took."""

    row: str
    code: int
    problems: list[str] = field(default_factory=list)
    calm_pause: float = 0.0  # seconds for which a topic that the error does not concern stood still
    recovered: float = 0.0  # seconds from the end of the error until everything had arrived

    @property
    def holds(self) -> bool:
        """True if everything is as it must be."""
        return not self.problems

    def note_reached(self, reached: bool) -> None:
        """Note whether the mirror sent such a request: without one, nothing was tried."""
        if not reached:
            self.problems.append("the mirror sent no such request")

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "; ".join(self.problems)
        name = error_code(self.code).name
        times = f"calm {self.calm_pause:.1f} s, recovered {self.recovered:.1f} s"
        return f"{self.row} x {name} ({self.code}): {times}: {verdict}"


class Attempt:
    """One or several codes at the same time, each for a topic of its own."""

    def __init__(self, stage: Stage, row: Row, cells: Mapping[str, Cell], calm: list[str], newcomer: list[str]) -> None:
        """`cells` are by topic. `newcomer` is a new topic that no error concerns, if the row is about new topics."""
        self._stage, self._row, self._cells = stage, row, cells
        self._calm, self._newcomer = calm, newcomer
        self.common: list[str] = []  # problems that concern more than the refused topics
        assert stage.mirror is not None and stage.status is not None
        self._mirror, self._status = stage.mirror, stage.status
        self._given_up = stage.undelivered()

    def run(self) -> None:
        """Refuse, wait, allow, wait, and compare."""
        stage, row, cells = self._stage, self._row, self._cells
        self.prepare()
        began, printed = now(), len(self._mirror.text)
        self._status.reasons.clear()
        codes = {self.key(topic): cell.code for topic, cell in cells.items()}
        refusal = stage.proxy(row.side).refuse(row.request, codes)
        row.trigger(stage, [*cells, *self._newcomer])
        reached = wait_for_hits(stage, refusal.hits, codes, self.reached_within)
        asked = now()
        for topic, cell in cells.items():
            cell.note_reached(reached or bool(refusal.hits[self.key(topic)]))
        if self._newcomer:
            self._await_newcomer()
        self.hold(asked, printed)
        # Lines about the recovery name each topic too.
        text, named = self._mirror.text[printed:], frozenset(self._status.reasons)
        stage.proxy(row.side).allow(refusal)
        self._check_requests(refusal.hits, now() - began)
        if self._has_to_end():
            return
        ended = now()
        self.await_upkeep(ended)
        self._await_recovery(ended)
        self.check_pauses(began)
        self._check_records()
        self._check_names(began, text, named)
        if "Traceback" in self._mirror.text[printed:]:
            self.common.append("a traceback in the log")

    # -- what is different for errors that concern no mirrored topic

    reached_within = REACHED  # seconds until the mirror has asked for each topic

    def prepare(self) -> None:
        """Do what has to be done before the error."""

    def key(self, topic: str) -> str:
        """Return the name under which a topic's request is refused."""
        return WHOLE if self._row.whole else topic

    def hold(self, asked: float, printed: int) -> None:
        """Wait until the error may end; the mirror had asked for each topic at `asked`, and had printed so much before."""
        rest(asked, _REFUSED)

    def await_upkeep(self, ended: float) -> None:
        """Wait for what the mirror keeps beside the records."""

    # -- the parts of a try

    def _await_newcomer(self) -> None:
        try:
            self._stage.wait_until_flowing(_NEW_FLOWS * self._stage.slack, self._newcomer)
        except NotInTime as error:
            self.common.append(f"another new topic does not flow meanwhile: {error}")

    def _check_requests(self, hits: Mapping[str, int], seconds: float) -> None:
        for topic, cell in self._cells.items():
            count = hits.get(self.key(topic), 0)
            if count > _TOO_MANY * max(1.0, seconds / _REFUSED):
                cell.problems.append(f"{count} requests in {seconds:.1f} s: a busy loop")

    def _has_to_end(self) -> bool:
        """Return True if the process has ended, as it must after this code."""
        codes = {cell.code for cell in self._cells.values()}
        if not codes & set(self._row.ends):
            return False
        try:
            wait_until("the end", lambda: self._mirror.has_ended, RECOVERED_WHOLE * self._stage.slack)
        except NotInTime:
            self.common.append("the process does not end")
        return True

    def _await_recovery(self, ended: float) -> None:
        stage = self._stage
        limit = (RECOVERED_WHOLE if self._row.whole else _RECOVERED) * stage.slack

        def is_over() -> bool:
            stage.check_mirror()
            waiting = stage.waiting(stage.topics)
            for topic, cell in self._cells.items():
                if not cell.recovered and topic not in waiting:
                    cell.recovered = now() - ended
            return not waiting

        rest(ended, 0.5)  # records that are written after the error has ended
        stage.load.pause()
        stage.watch.settle()
        missing = [topic for topic in stage.topics if stage.watch.ends(topic)[0] < 0]
        if missing:
            self.common.append(f"the source does not show {', '.join(missing)}")
        try:
            wait_until("", is_over, limit)
        except NotInTime as error:
            waiting = stage.waiting(stage.topics)
            for topic in waiting:
                if topic in self._cells:
                    self._cells[topic].problems.append(f"does not flow {limit:g} s after the error")
            if set(waiting) - set(self._cells) or self._mirror.has_ended:
                self.common.append(f"{len(waiting)} topics do not flow {limit:g} s after the error {error}".strip())

    def check_pauses(self, began: float) -> None:
        pause = max(self._stage.watch.longest_pause(topic, began) for topic in self._calm)
        for cell in self._cells.values():
            cell.calm_pause = pause
        if pause > LIMIT * self._stage.slack and not self._row.spreads:
            self.common.append(f"other topics stood still for {pause:.1f} s")

    def _check_records(self) -> None:
        """Look for records on the target that are there twice or out of order, and count the others.

        Records that are missing have been noted: their topics have not caught up.
        """
        stage = self._stage
        for topic in [*self._cells, *self._calm, *self._newcomer]:
            if min(stage.watch.ends(topic)) < 0 or topic in stage.waiting([topic]):
                continue
            for problem in stage.misplaced(topic):
                if topic in self._cells:
                    self._cells[topic].problems.append(problem)
                else:
                    self.common.append(f"{topic}: {problem}")
            # How many records a trigger has made the source lose is an estimate.
            stage.surplus[topic] -= stage.behind(topic)
        self._check_given_up()

    def _check_given_up(self) -> None:
        """A record may be given up only if the code says that the target will never take it."""
        new = self._stage.undelivered() - self._given_up
        for topic, count in new.items():
            cell = self._cells.get(topic)
            known = error_code(cell.code) if cell is not None else None
            if known is not None and known.scope is Scope.RECORD and not known.retriable:
                continue
            problem = f"{count} records were given up"
            (cell.problems if cell is not None else self.common).append(problem)

    def _check_names(self, began: float, text: str, named: Collection[str]) -> None:
        """A topic that stands still must be named while the error lasts: in the log, or (`named`) on the status page."""
        if self._row.spreads or self._row.spares_topics:
            return
        for topic, cell in self._cells.items():
            pause = self._stage.watch.longest_pause(topic, began)
            is_named = topic in named or re.search(rf"\b{re.escape(topic)}\b", text)
            if pause > LIMIT * self._stage.slack and not is_named:
                cell.problems.append(f"stood still for {pause:.1f} s and is not named")


def rest(since: float, seconds: float) -> None:
    """Wait until so many seconds have passed."""
    wait_until("", lambda: now() - since >= seconds, seconds + 1)
