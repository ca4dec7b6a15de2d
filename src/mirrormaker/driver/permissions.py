"""Checking, topic by topic, that both clusters permit what the mirror does, before anything is copied."""

from __future__ import annotations

from collections.abc import Collection

from mirrormaker.wire.client.acls import denied, missing
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.cluster_description import Topic

_ON_SOURCE = ("Read",)
_ON_TARGET = ("Write", "Read")  # the target is read to find out which records are there


class Permissions:
    """A permission that was found stays, until a broker refuses a request; a missing one is looked for again."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self.source, self.target = source, target
        self._allowed: set[str] = set()

    async def find_missing(self, topics: Collection[Topic], names: Collection[str]) -> dict[str, str]:
        """Return the topics that may not be mirrored, and why.

        `names` are topics that the user names: brokers pretend that a topic does not exist which this client may not describe.
        """
        hidden = [name for name in names if name not in self.source.topics]
        new = [topic.name for topic in topics if topic.name not in self._allowed]
        refused: dict[str, str] = {}
        for cluster, needed, asked in (
            (self.source, _ON_SOURCE, [*hidden, *new]),
            (self.target, _ON_TARGET, new),
        ):
            for name, operations in (await missing(cluster, asked, needed)).items():
                refused.setdefault(name, denied(cluster.endpoint, operations, "topic", name))
        self._allowed.update(name for name in new if name not in refused and name in self.target.topics)
        return refused
