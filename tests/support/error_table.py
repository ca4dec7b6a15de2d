"""The error table: every request of the mirror, times every error code of Kafka, times one topic of several.

Whatever a broker answers for one topic, the other topics flow; a topic that stands still is named; and when the error
ends, the topic flows again, with every record there once. Answers about the whole group concern all topics: there the
process survives, and all topics flow again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mirrormaker.kafka_errors import Scope, error_code
from tests.support.error_rows import Row, batches, grow, wait_for_hits
from tests.support.refusals import WHOLE
from tests.support.table_stage import Stage, now
from tests.support.waiting import NotInTime, wait_until

CALM = 2  # topics that no error concerns
_REFUSED = 1.5  # seconds for which the answers carry the error
_LIMIT = 1.0  # seconds for which a topic that no error concerns may stand still
_NEW_FLOWS = 8.0  # seconds until a new topic that no error concerns flows, while others are refused
_RECOVERED = 12.0  # seconds after the error until every topic has caught up; a stopped partition waits for 5
_RECOVERED_WHOLE = 25.0  # the same for an error of the whole source, which may start the source anew
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


class Table:
    """Runs rows of the table on one stage."""

    def __init__(self, stage: Stage, at_once: int, report: Callable[[str], None] = lambda _: None) -> None:
        """`at_once`: so many codes are tried at the same time, each with a topic of its own."""
        self._stage, self._at_once, self._report = stage, at_once, report
        self._needs_new_act = True
        self._turn = 0

    def run(self, row: Row, codes: Sequence[int], deadline: float = float("inf")) -> list[Cell]:
        """Return the cells of a row; those that are not begun before the deadline are missing."""
        cells = []
        for some in batches(row, codes, self._at_once):
            if now() < deadline:
                cells += self._run_some(row, some)
        return cells

    def _run_some(self, row: Row, codes: Sequence[int]) -> list[Cell]:
        """Try codes at the same time; if they do more harm than to their own topics, find out which of them does."""
        if row.request == "LeaveGroup":
            cells, common = self._leave(row, codes), False
        else:
            cells, common = self._try(row, codes)
        if common and len(codes) > 1:
            half = len(codes) // 2
            return self._run_some(row, codes[:half]) + self._run_some(row, codes[half:])
        for cell in cells:
            self._report(str(cell))
        return cells

    def _try(self, row: Row, codes: Sequence[int]) -> tuple[list[Cell], bool]:
        """Return a cell for each code, and True if topics that no error concerns suffered."""
        stage = self._stage
        if self._needs_new_act or (stage.mirror is not None and stage.mirror.has_ended):
            stage.begin_act(CALM + self._at_once)
            self._needs_new_act = False
        stage.load.resume()
        stage.wait_until_flowing(_RECOVERED_WHOLE * stage.slack)
        calm, pool = stage.topics[:CALM], self._pool(len(codes))
        newcomer = stage.new_names(1) if row.new and not row.whole else []
        topics = stage.new_names(len(codes)) if row.new or row.trigger is grow else pool
        if row.trigger is grow:
            stage.create_on_source(topics)
            stage.wait_until_flowing(_RECOVERED_WHOLE * stage.slack)
        cells = [Cell(row.name, code) for code in codes]
        attempt = _Attempt(stage, row, dict(zip(topics, cells, strict=True)), calm, newcomer)
        try:
            attempt.run()
        except NotInTime as error:
            attempt.common.append(str(error).splitlines()[0])
        for cell in cells:
            cell.problems += attempt.common
        if attempt.common or any(cell.problems for cell in cells):
            self._needs_new_act = True
        elif row.new or row.trigger is grow:
            # Topics of this kind are used once.
            stage.remove([*topics, *newcomer])
        return cells, bool(attempt.common)

    def _pool(self, count: int) -> list[str]:
        """Return topics to be refused, in turns: one that was stopped several times in a row is tried again later and later."""
        pool = self._stage.topics[CALM : CALM + self._at_once]
        start, self._turn = self._turn, self._turn + count
        return [pool[number % len(pool)] for number in range(start, start + count)]

    def _leave(self, row: Row, codes: Sequence[int]) -> list[Cell]:
        """Stop a mirror whose leave the coordinator refuses; it has to end in good order all the same."""
        stage, (code,) = self._stage, codes
        cell = Cell(row.name, code)
        stage.begin_act(CALM)
        assert stage.mirror is not None
        refusal = stage.source_proxy.refuse(row.request, {WHOLE: code})
        exit_code = stage.mirror.stop()
        cell.note_reached(bool(refusal.hits))
        if exit_code:
            cell.problems.append(f"exit code {exit_code}")
        if "Traceback" in stage.mirror.text:
            cell.problems.append("a traceback in the log")
        self._needs_new_act = True
        return [cell]


class _Attempt:
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
        began, printed = now(), len(self._mirror.text)
        self._status.reasons.clear()
        codes = {WHOLE if row.whole else topic: cell.code for topic, cell in cells.items()}
        refusal = stage.proxy(row.side).refuse(row.request, codes)
        row.trigger(stage, [*cells, *self._newcomer])
        reached = wait_for_hits(stage, refusal.hits, codes)
        for topic, cell in cells.items():
            cell.note_reached(reached or bool(refusal.hits[WHOLE if row.whole else topic]))
        if self._newcomer:
            self._await_newcomer()
        _rest(began, _REFUSED)
        stage.proxy(row.side).allow(refusal)
        self._check_requests(refusal.hits, now() - began)
        if self._has_to_end():
            return
        ended = now()
        self._await_recovery(ended)
        self._check_pauses(began)
        self._check_records()
        self._check_names(began, self._mirror.text[printed:])

    def _await_newcomer(self) -> None:
        try:
            self._stage.wait_until_flowing(_NEW_FLOWS * self._stage.slack, self._newcomer)
        except NotInTime as error:
            self.common.append(f"another new topic does not flow meanwhile: {error}")

    def _check_requests(self, hits: Mapping[str, int], seconds: float) -> None:
        for topic, cell in self._cells.items():
            count = hits.get(WHOLE if self._row.whole else topic, 0)
            if count > _TOO_MANY * max(1.0, seconds / _REFUSED):
                cell.problems.append(f"{count} requests in {seconds:.1f} s: a busy loop")

    def _has_to_end(self) -> bool:
        """Return True if the process has ended, as it must after this code."""
        codes = {cell.code for cell in self._cells.values()}
        if not codes & set(self._row.ends):
            return False
        try:
            wait_until("the end", lambda: self._mirror.has_ended, _RECOVERED_WHOLE * self._stage.slack)
        except NotInTime:
            self.common.append("the process does not end")
        return True

    def _await_recovery(self, ended: float) -> None:
        stage = self._stage
        limit = (_RECOVERED_WHOLE if self._row.whole else _RECOVERED) * stage.slack

        def is_over() -> bool:
            stage.check_mirror()
            waiting = stage.waiting(stage.topics)
            for topic, cell in self._cells.items():
                if not cell.recovered and topic not in waiting:
                    cell.recovered = now() - ended
            return not waiting

        _rest(ended, 0.5)  # records that are written after the error has ended
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

    def _check_pauses(self, began: float) -> None:
        pause = max(self._stage.watch.longest_pause(topic, began) for topic in self._calm)
        for cell in self._cells.values():
            cell.calm_pause = pause
        if pause > _LIMIT * self._stage.slack and not self._row.spreads:
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

    def _check_names(self, began: float, text: str) -> None:
        """A topic that stands still must be named, in the log or on the status page."""
        if "Traceback" in text:
            self.common.append("a traceback in the log")
        for topic, cell in self._cells.items():
            pause = self._stage.watch.longest_pause(topic, began)
            is_named = topic in self._status.reasons or re.search(rf"\b{re.escape(topic)}\b", text)
            if pause > _LIMIT * self._stage.slack and not is_named and not self._row.spreads:
                cell.problems.append(f"stood still for {pause:.1f} s and is not named")


def _rest(since: float, seconds: float) -> None:
    """Wait until so many seconds have passed."""
    wait_until("", lambda: now() - since >= seconds, seconds + 1)
