"""The error table: every request of the mirror, times every error code of Kafka, times one topic of several.

Whatever a broker answers for one topic, the other topics flow; a topic that stands still is named; and when the error
ends, the topic flows again, with every record there once. Answers about the whole group concern all topics: there the
process survives, and all topics flow again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.attempt import RECOVERED_WHOLE, Attempt, Cell
from tests.support.error_row import Row
from tests.support.error_rows import batches, grow
from tests.support.own_attempt import OwnAttempt
from tests.support.refusals import WHOLE
from tests.support.table_stage import Stage, now
from tests.support.waiting import NotInTime

CALM = 2  # topics that no error concerns


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
        stage.wait_until_flowing(RECOVERED_WHOLE * stage.slack)
        calm, pool = stage.topics[:CALM], self._pool(len(codes))
        newcomer = stage.new_names(1) if row.new and not row.whole else []
        topics = stage.new_names(len(codes)) if row.new or row.trigger is grow else pool
        if row.trigger is grow:
            stage.create_on_source(topics)
            stage.wait_until_flowing(RECOVERED_WHOLE * stage.slack)
        cells = [Cell(row.name, code) for code in codes]
        kind = OwnAttempt if row.spares_topics else Attempt
        attempt = kind(stage, row, dict(zip(topics, cells, strict=True)), calm, newcomer)
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
