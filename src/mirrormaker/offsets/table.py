"""A standing as people and programs read it: the original's table, a table that moves, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirrormaker.console.display import count, duration
from mirrormaker.offsets.group_lag import GroupLag, Pace, Paces, Row
from mirrormaker.wire.transport.host_port import join_host_port

_TITLES = ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")
_LAYOUT = "%-15s %-30s %-3s %-15s %-15s %-15s %s"
_MOVING_TITLES = (*_TITLES[:-1], "Records/s", "Caught up", "Owner")
_MOVING_LAYOUT = "%-15s %-30s %-3s %-15s %-15s %-15s %-10s %-17s %s"


def lines(standing: GroupLag, broker_info: bool) -> Iterator[str]:
    """Exactly what the original prints."""
    yield from standing.failures
    yield _LAYOUT % _TITLES
    for row in standing.rows:
        yield _no_leader(row) if row.leader is None else _LAYOUT % (*_cells(standing, row), row.owner or "none")
    if broker_info:
        yield from _brokers(standing)


def moving_lines(standing: GroupLag, paces: Paces, broker_info: bool) -> Iterator[str]:
    """The same table with each partition's pace, and the whole group's below it."""
    yield from standing.failures
    yield _MOVING_LAYOUT % _MOVING_TITLES
    for row in standing.rows:
        yield _no_leader(row) if row.leader is None else _MOVING_LAYOUT % _moving_cells(standing, row, paces)
    yield f"total: {summary(standing, paces)}"
    if broker_info:
        yield from _brokers(standing)


def picture(standing: GroupLag, paces: Paces, broker_info: bool, trouble: str) -> Group:
    """The moving table on a terminal; the sum comes first, for a long table is cut off below."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for title in _MOVING_TITLES[1:]:
        table.add_column(title, header_style="dim", no_wrap=title not in ("Topic", "Owner"))
    for row in standing.rows:
        cells = (row.topic, str(row.partition), _known(row.offset), "no leader", *["unknown"] * 3, row.owner or "none")
        table.add_row(*map(Text, cells if row.leader is None else _moving_cells(standing, row, paces)[1:]))
    more = [Text(text) for text in (*standing.failures, *(_brokers(standing) if broker_info else ()))]
    if trouble:
        more.append(Text(trouble, style="red"))
    return Group(Text(f"{standing.group}: {summary(standing, paces)}", style="bold"), table, *more)


def summary(standing: GroupLag, paces: Paces) -> str:
    """The group as a whole."""
    pace = paces.of(*((row.topic, row.partition) for row in standing.rows))
    left = _left(pace, standing.lag) if standing.lag or not standing.unknown else "unknown"
    text = f"lag {standing.lag:,}, {_rate(pace)} records/s, caught up: {left}"
    if standing.unknown:
        text += f", {standing.unknown} of {len(standing.rows)} partitions unknown"
    return text


def as_json(standing: GroupLag, paces: Paces | None, broker_info: bool) -> dict[str, Any]:
    """Numbers that are not known are null. The pace is there when it was watched for."""
    found: dict[str, Any] = {"group": standing.group, "lag": standing.lag, "unknown": standing.unknown}
    if paces is not None:
        found |= _pace_json(paces.of(*((row.topic, row.partition) for row in standing.rows)), standing.lag)
    found["partitions"] = [_row_json(row, paces) for row in standing.rows]
    if broker_info:
        found["brokers"] = {str(node): join_host_port(*place) for node, place in standing.brokers.items()}
    if standing.failures:
        found["failures"] = list(standing.failures)
    return found


def _row_json(row: Row, paces: Paces | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset if row.offset is not None and row.offset >= 0 else None,
        "log_size": row.log_size,
        "lag": row.lag,
        "owner": row.owner,
        "leader": row.leader,
    }
    if paces is not None:
        found |= _pace_json(paces.of((row.topic, row.partition)), row.lag)
    return found


def _pace_json(pace: Pace | None, lag: int | None) -> dict[str, float | None]:
    left = pace.seconds_left(lag) if pace else None
    return {
        "records_per_second": round(pace.consumed, 1) if pace else None,
        "seconds_to_catch_up": round(left, 1) if left is not None else None,
    }


def _cells(standing: GroupLag, row: Row) -> tuple[str, ...]:
    lag = _known(row.lag)
    return standing.group, row.topic, str(row.partition), _known(row.offset), _known(row.log_size), lag


def _moving_cells(standing: GroupLag, row: Row, paces: Paces) -> tuple[str, ...]:
    pace = paces.of((row.topic, row.partition))
    return *_cells(standing, row), _rate(pace), _left(pace, row.lag), row.owner or "none"


def _brokers(standing: GroupLag) -> Iterator[str]:
    yield "BROKER INFO"
    for node, place in standing.brokers.items():
        yield f"{node} -> {join_host_port(*place)}"


def _no_leader(row: Row) -> str:
    return f"No broker for partition {row.topic} - {row.partition}"


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _rate(pace: Pace | None) -> str:
    return "-" if pace is None else count(pace.consumed)


def _left(pace: Pace | None, lag: int | None) -> str:
    if lag is None:
        return "unknown"
    if lag <= 0:
        return "yes"
    if pace is None:
        return "-"
    left = pace.seconds_left(lag)
    return "not at this pace" if left is None else f"in {duration(left)}"
