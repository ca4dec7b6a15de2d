"""All groups of a process in a few numbers."""

from __future__ import annotations

import asyncio

from mirrormaker.groups.planning import Entry
from mirrormaker.groups.sync_figures import MOST_ROWS, figures_of
from mirrormaker.model.group_sync import Decision, State
from mirrormaker.status.snapshot import GroupRow

SYNCED = Decision(State.SYNCED, None, 2, 1, 50)


def entry(*parts: tuple[Decision, int, int | None], synced_at: float = 0.0) -> Entry:
    found = Entry(synced_at=synced_at)
    for partition, (decision, here, there) in enumerate(parts):
        found.decisions[partition] = decision
        found.offsets[partition] = (here, there)
    return found


def test_a_group_counts_once_in_its_worst_state() -> None:
    entries = {
        ("a", "t"): entry((SYNCED, 40, 50)),
        ("a", "u"): entry((SYNCED._replace(state=State.OWNED), 40, 10)),
        ("b", "t"): entry((SYNCED, 40, 50)),
    }
    found = asyncio.run(figures_of(entries))
    assert {state: count for state, count in found.states.items() if count} == {"synced": 1, "owned by the target": 1}
    assert found.states.keys() == {state.value for state in State}
    assert (found.groups, found.ready, found.all_rows) == (2, 1, 3)
    assert found.again == 2 + 42 + 2
    assert found.missing == 3
    assert [(row.group, row.topic) for row in found.rows] == [("a", "u"), ("a", "t"), ("b", "t")]


def test_an_offset_that_was_written_in_this_round_counts_as_written() -> None:
    moved = SYNCED._replace(commit=50)
    refused = SYNCED._replace(commit=50, state=State.ACTIVE)
    rows = {
        ("g", "moved"): entry((moved, 40, 20), (moved, 40, None), synced_at=7.0),
        ("g", "refused"): entry((refused, 40, 20), (refused, -1, None)),
    }
    found = asyncio.run(figures_of(rows))
    assert found.rows == (
        GroupRow("g", "refused", "active on the target", False, 40, 20, 32, 1, 0.0),
        GroupRow("g", "moved", "synced", True, 80, 100, 4, 2, 7.0),
    )


def test_only_the_rows_that_users_must_see_are_kept() -> None:
    entries = {(f"g{number:04d}", "t"): entry((SYNCED, 1, 50)) for number in range(1000)}
    entries["late", "t"] = entry((Decision(State.UNMAPPED), 1, None))
    found = asyncio.run(figures_of(entries))
    assert len(found.rows) == MOST_ROWS
    assert found.rows[0] == GroupRow("late", "t", "not mapped yet", False, 1, None, None, None, 0.0)
    assert (found.groups, found.ready, found.all_rows) == (1001, 1000, 1001)


def test_no_groups_are_no_trouble() -> None:
    found = asyncio.run(figures_of({}))
    assert (found.groups, found.ready, found.rows) == (0, 0, ())
