"""A group's lag as people and programs read it: the original's table, a table with the pace, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirrormaker.console.display import count
from mirrormaker.offsets.group_lag import GroupLag, LagHistory, Pace, PartitionLag
from mirrormaker.status.figures import duration
from mirrormaker.wire.transport.host_port import join_host_port

# Titles and widths are those of kafka-consumer-offset-checker: scripts parse them.
_TITLES = ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")
_LAYOUT = "%-15s %-30s %-3s %-15s %-15s %-15s %s"
_PACE_TITLES = (*_TITLES[:-1], "Records/s", "Caught up", "Owner")
_PACE_LAYOUT = "%-15s %-30s %-3s %-15s %-15s %-15s %-10s %-17s %s"


def lines(group_lag: GroupLag, broker_info: bool) -> Iterator[str]:
    """Yield exactly the lines that the original prints."""
    yield from group_lag.failures
    yield _LAYOUT % _TITLES
    for partition in group_lag.partitions:
        if partition.leader is None:
            yield _no_leader(partition)
        else:
            yield _LAYOUT % (*_cells(group_lag.group, partition), partition.owner or "none")
    if broker_info:
        yield from _broker_lines(group_lag)


def lines_with_pace(group_lag: GroupLag, history: LagHistory, broker_info: bool) -> Iterator[str]:
    """Yield the same table with each partition's pace, and the whole group's below it."""
    yield from group_lag.failures
    yield _PACE_LAYOUT % _PACE_TITLES
    for partition in group_lag.partitions:
        if partition.leader is None:
            yield _no_leader(partition)
        else:
            yield _PACE_LAYOUT % _pace_cells(group_lag.group, partition, history)
    yield f"total: {summary(group_lag, history)}"
    if broker_info:
        yield from _broker_lines(group_lag)


def live_table(group_lag: GroupLag, history: LagHistory, broker_info: bool, error: str) -> Group:
    """Return the table for a terminal. The total comes first, because a terminal cuts off the end of a long table."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for title in _PACE_TITLES[1:]:
        table.add_column(title, header_style="dim", no_wrap=title not in ("Topic", "Owner"))
    for partition in group_lag.partitions:
        if partition.leader is None:
            topic, number, offset = partition.topic, str(partition.partition), _number(partition.offset)
            cells: tuple[str, ...] = (topic, number, offset, "no leader", *["unknown"] * 3, partition.owner or "none")
        else:
            cells = _pace_cells(group_lag.group, partition, history)[1:]
        table.add_row(*map(Text, cells))
    below = [Text(text) for text in (*group_lag.failures, *(_broker_lines(group_lag) if broker_info else ()))]
    if error:
        below.append(Text(error, style="red"))
    return Group(Text(f"{group_lag.group}: {summary(group_lag, history)}", style="bold"), table, *below)


def summary(group_lag: GroupLag, history: LagHistory) -> str:
    """Return lag, pace and time to catch up of the whole group in one line."""
    pace = history.pace(*group_lag.keys)
    left = _time_left(pace, group_lag.lag) if group_lag.lag or not group_lag.unknown else "unknown"
    text = f"lag {group_lag.lag:,}, {_rate(pace)} records/s, caught up: {left}"
    if group_lag.unknown:
        text += f", {group_lag.unknown} of {len(group_lag.partitions)} partitions unknown"
    return text


def as_json(group_lag: GroupLag, history: LagHistory | None, broker_info: bool) -> dict[str, Any]:
    """Return the lag as a JSON object. Unknown numbers are null; a `history` adds the pace."""
    document: dict[str, Any] = {"group": group_lag.group, "lag": group_lag.lag, "unknown": group_lag.unknown}
    if history is not None:
        document |= _pace_json(history.pace(*group_lag.keys), group_lag.lag)
    document["partitions"] = [_partition_json(partition, history) for partition in group_lag.partitions]
    if broker_info:
        document["brokers"] = {str(node): join_host_port(*broker) for node, broker in group_lag.brokers.items()}
    if group_lag.failures:
        document["failures"] = list(group_lag.failures)
    return document


def _partition_json(partition: PartitionLag, history: LagHistory | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": partition.offset if partition.offset is not None and partition.offset >= 0 else None,
        "log_size": partition.log_size,
        "lag": partition.lag,
        "owner": partition.owner,
        "leader": partition.leader,
    }
    if history is not None:
        document |= _pace_json(history.pace(partition.key), partition.lag)
    return document


def _pace_json(pace: Pace | None, lag: int | None) -> dict[str, float | None]:
    left = pace.seconds_left(lag) if pace else None
    return {
        "records_per_second": round(pace.consumed, 1) if pace else None,
        "seconds_to_catch_up": round(left, 1) if left is not None else None,
    }


def _cells(group: str, partition: PartitionLag) -> tuple[str, ...]:
    numbers = (partition.offset, partition.log_size, partition.lag)
    return group, partition.topic, str(partition.partition), *map(_number, numbers)


def _pace_cells(group: str, partition: PartitionLag, history: LagHistory) -> tuple[str, ...]:
    pace = history.pace(partition.key)
    return *_cells(group, partition), _rate(pace), _time_left(pace, partition.lag), partition.owner or "none"


def _broker_lines(group_lag: GroupLag) -> Iterator[str]:
    yield "BROKER INFO"
    for node, broker in group_lag.brokers.items():
        yield f"{node} -> {join_host_port(*broker)}"


def _no_leader(partition: PartitionLag) -> str:
    return f"No broker for partition {partition.topic} - {partition.partition}"


def _number(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _rate(pace: Pace | None) -> str:
    return "-" if pace is None else count(pace.consumed)


def _time_left(pace: Pace | None, lag: int | None) -> str:
    if lag is None:
        return "unknown"
    if lag <= 0:
        return "yes"
    if pace is None:
        return "-"
    left = pace.seconds_left(lag)
    return "not at this pace" if left is None else f"in {duration(left)}"
