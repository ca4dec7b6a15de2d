"""All groups of a process in a few numbers, and the rows that users must see first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from mirrormaker.groups.planning import Entry
from mirrormaker.model.group_sync import Cost, Decision, State, cost, severity
from mirrormaker.status.snapshot import GroupFigures, GroupRow
from mirrormaker.wire.transport.turns import give_way, in_turns

MOST_ROWS = 100  # on the status page
_IN_ONE_TURN = 1000  # partitions of groups that are looked at before others have their turn
_ROWS_IN_ONE_TURN = 5  # of the page: each may have hundreds of partitions

Key = tuple[str, str]  # group and target topic


async def figures_of(entries: Mapping[Key, Entry]) -> GroupFigures:
    """Add up what the last round has found and written."""
    states: dict[str, State] = {}
    again, missing = 0, 0
    ranked: list[tuple[int, int, Key]] = []
    work = 0
    for key, entry in entries.items():
        state, known = entry.state, states.get(key[0])
        if known is None or severity(state) < severity(known):
            states[key[0]] = state
        costs = [_cost(entry, partition, decision) for partition, decision in entry.decisions.items()]
        read_again = sum(found.again or 0 for found in costs)
        again += read_again
        missing += sum(found.missing or 0 for found in costs)
        ranked.append((severity(state), -read_again, key))
        work += 1 + len(costs)
        if work >= _IN_ONE_TURN:
            work = 0
            await give_way()
    rows: list[GroupRow] = []
    async for _, _, key in in_turns(heapq.nsmallest(MOST_ROWS, ranked), _ROWS_IN_ONE_TURN):
        rows.append(_row(*key, entries[key]))
    counted = Counter(state.value for state in states.values())
    return GroupFigures(
        states={state.value: counted[state.value] for state in State},
        ready=sum(state.is_ready for state in states.values()),
        again=again,
        missing=missing,
        rows=tuple(rows),
        all_rows=len(entries),
    )


def _cost(entry: Entry, partition: int, decision: Decision) -> Cost:
    if decision.commit is not None and decision.state.is_ready:
        # It was written a moment ago.
        return Cost(decision.state, decision.again, decision.missing)
    return cost(decision, entry.offsets[partition][1], None, None, 0.0)


def _row(group: str, topic: str, entry: Entry) -> GroupRow:
    costs = [_cost(entry, partition, decision) for partition, decision in entry.decisions.items()]
    written = [
        entry.offsets[partition][1] if decision.commit is None or not decision.state.is_ready else decision.commit
        for partition, decision in entry.decisions.items()
    ]
    return GroupRow(
        group,
        topic,
        entry.state.value,
        entry.state.is_ready,
        _sum([here for here, _ in entry.offsets.values() if here >= 0]),
        _sum([offset for offset in written if offset is not None]),
        _sum([found.again for found in costs if found.again is not None]),
        _sum([found.missing for found in costs if found.missing is not None]),
        entry.synced_at,
    )


def _sum(known: list[int]) -> int | None:
    return sum(known) if known else None
