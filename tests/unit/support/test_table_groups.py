"""The groups of the error table, with clusters that only pretend."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.errors import BrokerError
from mirrormaker.kafka_errors import COORDINATOR_LOAD_IN_PROGRESS
from tests.support import table_groups
from tests.support.table_groups import TableGroups


def test_a_group_whose_coordinator_cannot_tell_yet_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [BrokerError(COORDINATOR_LOAD_IN_PROGRESS, "listing the groups"), {}, {0: 6}, {0: 7}]

    def committed(*_: object) -> dict[int, int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: dict[int, int] = answer
        return found

    monkeypatch.setattr(table_groups, "committed", committed)
    monkeypatch.setattr(table_groups, "commit", lambda *_: None)
    groups = TableGroups(None, None, "act1", lambda _: 7)  # type: ignore[arg-type]
    groups.begin("topic", of_shares=False)
    assert [groups.behind() for _ in range(4)] == [["act1-g0"], ["act1-g0"], ["act1-g0"], []]
