"""Checking, topic by topic, that both clusters permit what the mirror does, before anything is copied."""

from __future__ import annotations

from collections.abc import Collection

from mirrormaker.errors import ClusterError
from mirrormaker.events import event
from mirrormaker.events.process_events import TopicLeftOut
from mirrormaker.wire.client.acls import denied, missing
from mirrormaker.wire.client.cluster import Cluster, Topic

_ON_SOURCE = ("Read",)
_ON_TARGET = ("Write", "Read")  # the target is read to find out which records are there


class Permissions:
    """A permission that was found stays, until a broker refuses a request; a missing one is looked for again."""

    def __init__(self, source: Cluster, target: Cluster, report: event.Report) -> None:
        self.source, self.target, self._report = source, target, report
        self._allowed: set[str] = set()
        self._reported: dict[str, str] = {}

    async def require_named(self, names: Collection[str]) -> None:
        """Raise if a topic that the user names may not be described: brokers pretend that such a topic does not exist."""
        hidden = await missing(self.source, [name for name in names if name not in self.source.topics], _ON_SOURCE)
        for name, operations in hidden.items():
            raise ClusterError(denied(self.source.endpoint, operations, "topic", name))

    async def filter(self, topics: list[Topic], *, require_all: bool) -> list[Topic]:
        """Return the topics that may be mirrored, and report the others; with `require_all`, raise for the first of those."""
        new = [topic.name for topic in topics if topic.name not in self._allowed]
        refused: dict[str, str] = {}
        for cluster, needed in ((self.source, _ON_SOURCE), (self.target, _ON_TARGET)):
            for name, operations in (await missing(cluster, new, needed)).items():
                refused.setdefault(name, denied(cluster.endpoint, operations, "topic", name))
        if refused and require_all:
            raise ClusterError(next(iter(refused.values())))
        for name, reason in refused.items():
            if self._reported.get(name) != reason:
                self._report(TopicLeftOut(name, reason))
        self._reported = refused
        self._allowed.update(name for name in new if name not in refused and name in self.target.topics)
        return [topic for topic in topics if topic.name not in refused]
