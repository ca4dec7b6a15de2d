"""One try of the error table with the mirror's own topics and its groups: no mirrored topic may notice the error."""

from __future__ import annotations

import contextlib

from mirrormaker.mapping.map_topic import TOPIC as MAP
from tests.support.attempt import LIMIT, Attempt, rest
from tests.support.refusals import WHOLE
from tests.support.table_stage import now
from tests.support.waiting import NotInTime, wait_until

_REFUSED = 1.5  # seconds for which the answers carry an error that need not be named
# The mirror tries to write its own topics for 30 s before it says that it cannot.
_NAMED = 45.0
# A group that was refused, and an offset map that could not be kept, are tried again after 30 s.
_KEPT = 60.0


class OwnAttempt(Attempt):
    """One code. The offset map, or the offsets of groups, must be kept again once the error has ended."""

    reached_within = 20.0  # the mirror looks at the end of the offset map every 5 s

    def prepare(self) -> None:
        """Have groups that are in step before the error."""
        (topic,) = self._cells
        self._map_end = 0
        if self._row.restarts:
            self._stage.new_alias()
        elif self._stage.groups is not None:
            self._stage.groups.begin(topic, of_shares="Share" in self._row.request)
            took = _KEPT * self._stage.slack
            wait_until("the groups are in step before the error", lambda: not self._stage.groups_behind(), took)

    def key(self, topic: str) -> str:
        """Return the name of the mirror's own topic, if the error is about one."""
        return self._row.own.format(alias=self._stage.alias) or (WHOLE if self._row.whole else topic)

    def hold(self, asked: float, printed: int) -> None:
        """Wait until the mirror says what is wrong, and let a topic that does not flow be noticed."""
        (cell,) = self._cells.values()
        if self._row.says:
            with contextlib.suppress(NotInTime):
                wait_until("", lambda: self._row.says in self._mirror.text[printed:], _NAMED * self._stage.slack)
            if self._row.says not in self._mirror.text[printed:]:
                cell.problems.append(f"the log does not say {self._row.says!r}")
        rest(asked, _REFUSED)
        if self._row.groups and not self._row.own and not self._stage.groups_behind():
            cell.problems.append("the groups are in step in spite of the error")
        self._map_end = self._stage.map_end()

    def await_upkeep(self, ended: float) -> None:
        """Wait until the groups are in step, or the offset map grows."""
        (cell,) = self._cells.values()
        stage = self._stage
        try:
            if self._row.own == MAP:
                wait_until("the offset map is written", lambda: stage.map_end() > self._map_end, _KEPT * stage.slack)
            elif stage.groups is not None:
                wait_until("the groups are in step", lambda: not stage.groups_behind(), _KEPT * stage.slack)
        except NotInTime as error:
            cell.problems.append(f"{error} after the error {', '.join(stage.groups_behind())}".strip())
        cell.recovered = now() - ended

    def check_pauses(self, began: float) -> None:
        """No mirrored topic may stand still, whatever the error is about."""
        pause = max(self._stage.watch.longest_pause(topic, began) for topic in self._stage.topics)
        for cell in self._cells.values():
            cell.calm_pause = pause
            if pause > LIMIT * self._stage.slack and not self._row.restarts:
                cell.problems.append(f"mirrored topics stood still for {pause:.1f} s")
