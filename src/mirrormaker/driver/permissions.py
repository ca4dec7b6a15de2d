"""Whether both clusters let this mirror do its work: found out before anything is copied, topic by topic."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mirrormaker.errors import ClusterError
from mirrormaker.wire.client.acls import denied, missing
from mirrormaker.wire.client.cluster import Cluster, Topic

_SOURCE, _TARGET = ("Read",), ("Write", "Read")  # the target is read to find out how far anyone got


class Permissions:
    """What was found to be allowed stays so, until a broker says otherwise; what was not is looked at again."""

    def __init__(self, source: Cluster, target: Cluster, say: Callable[[str], None]) -> None:
        self.source, self.target, self.say = source, target, say
        self._allowed: set[str] = set()
        self._said: dict[str, str] = {}

    async def find(self, names: Collection[str]) -> None:
        """Topics that are chosen by name must be seen: one that may not be described is not there, as far as brokers say."""
        hidden = await missing(self.source, [name for name in names if name not in self.source.topics], _SOURCE)
        for name, rights in hidden.items():
            raise ClusterError(denied(self.source.endpoint, rights, "topic", name))

    async def sift(self, topics: list[Topic], must: bool) -> list[Topic]:
        """Those that may be mirrored. `must`: all, or the first that may not is an error; otherwise it is left out and named."""
        new = [topic.name for topic in topics if topic.name not in self._allowed]
        refused: dict[str, str] = {}
        for cluster, needed in ((self.source, _SOURCE), (self.target, _TARGET)):
            for name, rights in (await missing(cluster, new, needed)).items():
                refused.setdefault(name, denied(cluster.endpoint, rights, "topic", name))
        if refused and must:
            raise ClusterError(next(iter(refused.values())))
        for name, text in refused.items():
            if self._said.get(name) != text:
                self.say(f"{name} is left out: {text}")
        self._said = refused
        self._allowed.update(name for name in new if name not in refused and name in self.target.topics)
        return [topic for topic in topics if topic.name not in refused]
