"""Groups, topics and partitions that a failover cannot move: a row for each, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mirrormaker.groups.failover_report import GroupStart
from mirrormaker.groups.group_survey import Answers, Survey, errors_in
from mirrormaker.groups.planning import Entry
from mirrormaker.groups.readiness_rights import why_unreadable
from mirrormaker.groups.routes import Maps
from mirrormaker.model.group_sync import Decision, State
from mirrormaker.wire.client.cluster import Cluster


def unread(cluster: Cluster, answers: Answers) -> Iterator[GroupStart]:
    """Yield a row for each group whose offsets a cluster does not tell."""
    for group, answer in errors_in(answers):
        state, reason = why_unreadable(cluster, group, answer)
        yield GroupStart(group, "", {}, state, None, None, reason)


def add_unmapped(entries: dict[tuple[str, str], Entry], survey: Survey, maps: Maps, topics: Collection[str]) -> None:
    """Add the partitions of topics in which a group has an offset, and of which the map knows no place on the target."""
    for group, offsets in survey.source_offsets.items():
        if isinstance(offsets, Exception) or offsets.error:
            continue
        there = survey.target_offsets.get(group)
        on_target = {} if there is None or isinstance(there, Exception) else there.topics
        for topic in offsets.topics.keys() & topics:
            rows = on_target[topic].rows() if topic in on_target else {}
            for partition, row in offsets.topics[topic].rows().items():
                known = maps.get((topic, partition))
                if (row.offset < 0 and not row.error) or (known is not None and known.places):
                    continue
                entry = entries.setdefault((group, topic), Entry())
                current = rows[partition].offset if partition in rows else -1
                entry.decisions.setdefault(partition, Decision(State.UNMAPPED))
                entry.offsets.setdefault(partition, (row.offset, current if current >= 0 else None))
