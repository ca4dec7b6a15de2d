"""Cases that have clusters of their own: a bad network, a long way, logins that run out, a source that has moved on."""

from __future__ import annotations

import time
from pathlib import Path

from faults import cases_login, cases_moved_on, cases_network
from faults.case import Apart, Row
from faults.judge import Count
from mirrormaker.embedded import Cluster

_WANTED = 50.0
"""MB/s over a round trip of 100 ms."""
_BACKLOG = 1500
"""MB."""


def bad_weather(directory: Path, row: Row) -> None:
    """Under a steady load, and while a backlog crosses: then whatever is cut has megabytes under way."""
    found, faults = Count(), 0
    for weather in (
        cases_network.bad_weather(_new(directory, "steady")),
        cases_network.heavy_weather(_new(directory, "backlog")),
    ):
        found, faults = found + weather.found, faults + sum(weather.faults.values())
    row.rounds = faults
    row.records, row.lost, row.doubled, row.out_of_order = found.records, found.lost, found.doubled, found.out_of_order
    if not found.exact:
        row.troubles.append("records are not as they must be")


def distance(directory: Path, row: Row) -> None:
    row.rounds = 2
    for size in (256, 16):
        with cases_network.wires(heap="1g", quick=False) as there:
            cases_network.fill(there, _BACKLOG, size << 10)
            row.records += _BACKLOG * 1_000_000 // 1024
            found = cases_network.distance(_new(directory, f"{size}"), there, "--num.streams", "2")
        row.notes.append(f"batches of {size} KB: {found.per_second:.0f} MB/s, where {_WANTED:g} are wanted")
        if found.per_second < _WANTED:
            row.troubles.append(f"only {found.per_second:.0f} MB/s with batches of {size} KB")


def overtaken(directory: Path, row: Row) -> None:
    with Cluster(name="moved-source", settings=cases_moved_on.SOURCE) as source, Cluster(name="moved-target") as target:
        for kind in ("plain", "compacted", "transactional"):
            _judge(row, cases_moved_on.overtaken(source, target, _new(directory, kind), kind))


def cut_back(directory: Path, row: Row) -> None:
    """Fewer records follow than were lost, and more; seen by a running mirror, and by one that starts later."""
    with (
        Cluster(brokers=3, name="moved-source", settings=cases_moved_on.SOURCE, heap="256m") as source,
        Cluster(name="moved-target") as target,
    ):
        for after in (200, 800):
            for stopped in (False, True):
                where = _new(directory, f"{after}-{stopped}")
                _judge(row, cases_moved_on.cut_back(source, target, where, after, stopped))


def _judge(row: Row, found: cases_moved_on.MovedOn) -> None:
    row.rounds += 1
    row.records += found.records
    row.troubles += found.troubles


def _new(directory: Path, name: str) -> Path:
    (directory / name).mkdir(parents=True)
    return directory / name


def play(case: Apart, directory: Path) -> Row:
    """Whatever goes wrong is in the row."""
    row, began = Row(case.name, 0), time.monotonic()
    try:
        case.run(_new(directory, case.name), row)
    except Exception as error:
        row.troubles.append(str(error))
    row.seconds, row.holds = time.monotonic() - began, not row.troubles
    return row


CASES = (
    Apart("bad-weather", "connections are cut, delayed, throttled, frozen and refused by a proxy", bad_weather),
    Apart("distance", "both clusters are 100 ms away", distance),
    Apart(
        "overtaken",
        "retention deletes what a stopped mirror has not mirrored: the loss is named and counted",
        overtaken,
    ),
    Apart(
        "reauthentication",
        "tickets of 20 s, and brokers that want a new login every 10 s, for two minutes",
        cases_login.reauthentication,
    ),
    Apart("cut-back", "an unclean election cuts the source's log back: it is named, and the mirror goes on", cut_back),
)
