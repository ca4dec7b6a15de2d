"""Consumer groups for the error table: the mirror keeps their offsets in step on the target."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from mirrormaker.embedded import Cluster
from mirrormaker.errors import OUTAGE
from tests.support.group_clients import commit, committed, set_share_offsets, share_offsets


class TableGroups:
    """The groups of one act. Each try has two of one topic: the target has the first before the error, and lacks the second."""

    def __init__(self, source: Cluster, target: Cluster, act: str, end: Callable[[str], int]) -> None:
        """`end` returns how many records the source's topic has."""
        self._source, self._target, self._end = source, target, end
        self._names = (f"{act}-g{number}" for number in itertools.count())
        self._of_shares = False
        self._wanted: dict[str, tuple[str, int]] = {}  # group -> its topic and its offset

    def begin(self, topic: str, *, of_shares: bool) -> None:
        """Let a new group commit an offset in a topic. `of_shares`: it is a share group, and so is that of `move`."""
        self._of_shares = of_shares
        self._wanted = {}
        self._commit(next(self._names), topic)

    def forget(self) -> None:
        """Leave all groups where they are, and let the next one be a group of consumers."""
        self._of_shares, self._wanted = False, {}

    def move(self, topics: Sequence[str]) -> None:
        """Let the group go on to the end of its topic, and another group begin there."""
        (topic,) = topics
        for group in (*self._wanted, next(self._names)):
            self._commit(group, topic)

    def _commit(self, group: str, topic: str) -> None:
        offset = self._end(topic)
        (set_share_offsets if self._of_shares else commit)(self._source, group, topic, {0: offset})
        self._wanted[group] = topic, offset

    def behind(self) -> list[str]:
        """Return the groups whose offset on the target is not the one on the source: both logs have the same offsets."""
        return [group for group, (topic, offset) in self._wanted.items() if not self._is_there(group, topic, offset)]

    def _is_there(self, group: str, topic: str, offset: int) -> bool:
        look = share_offsets if self._of_shares else committed
        try:
            return look(self._target, group, topic) == {0: offset}
        except OUTAGE:
            return False  # the coordinator of a new cluster loads its groups
