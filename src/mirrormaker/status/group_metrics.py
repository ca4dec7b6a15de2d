"""The series of consumer groups that are kept in step: sums for each source, so their number does not grow with the groups."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from mirrormaker.status.families import gauges
from mirrormaker.status.snapshot import Snapshot


def group_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the series of all sources whose groups are kept in step."""
    known = [(source.name, source.groups) for source in snapshot.sources if source.groups is not None]
    yield gauges(
        "groups",
        "Consumer groups that this process keeps in step on the target, by state; one in several topics counts once",
        ("source", "state"),
        [(name, state, count) for name, groups in known for state, count in groups.states.items()],
    )
    yield gauges(
        "groups_ready",
        "Consumer groups that could go on at the target now",
        ("source",),
        [(name, groups.ready) for name, groups in known],
    )
    yield gauges(
        "group_records_again",
        "Records at most that all groups together would read again if they failed over now",
        ("source",),
        [(name, groups.again) for name, groups in known],
    )
    yield gauges(
        "group_records_missing",
        "Records at most that all groups together would not read if they failed over now",
        ("source",),
        [(name, groups.missing) for name, groups in known],
    )
    yield gauges(
        "group_last_round_timestamp_seconds",
        "When the groups were last looked at without an error, in seconds since 1970; 0 if never",
        ("source",),
        [(name, groups.last_round) for name, groups in known],
    )
    yield gauges(
        "group_round_seconds",
        "Duration of the last look at the groups of both clusters",
        ("source",),
        [(name, groups.round_seconds) for name, groups in known],
    )
