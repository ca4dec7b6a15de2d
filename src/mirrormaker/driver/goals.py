"""`--exit.when.caught.up`: which offsets have to be reached, and whether they are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from mirrormaker.driver.acquire import Acquisition
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.topics import Troubles
from mirrormaker.errors import OUTAGE
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets

_SETTLED_AFTER = 5.0  # seconds without partitions until it is certain that others have them all


class Goals:
    """The source's ends when a partition came to this process; records that are written later are not waited for."""

    def __init__(
        self,
        source: Cluster,
        read_committed: bool,
        membership: Membership,
        scheduler: Scheduler,
        acquisition: Acquisition,
        troubles: Callable[[], Troubles],
    ) -> None:
        """`troubles` returns the chosen topics that are not mirrored at the moment."""
        self._source, self._read_committed = source, read_committed
        self._membership, self._scheduler, self._acquisition = membership, scheduler, acquisition
        self._troubles = troubles
        self.joined_at = 0.0  # when the group last gave this process partitions
        self.were_reached = False

    async def set(self) -> None:
        """Set the goal of every partition that has none yet."""
        without = [key for key, owned in self._scheduler.owned.items() if owned.goal is None]
        if not without:
            return
        with contextlib.suppress(*OUTAGE):
            ends = await list_offsets(self._source, without, LATEST, read_committed=self._read_committed)
            for key, end in ends.items():
                owned = self._scheduler.owned.get(key)
                # A source that ends before the position was truncated: the partition's stream finds that out first.
                if owned is not None and isinstance(end, int) and end >= owned.position.offset:
                    owned.goal = end
                    owned.source_ends_at(end)

    def are_reached(self) -> bool:
        """Return True if every goal is reached and the group is not about to give this process more partitions."""
        self.were_reached = self.were_reached or self._are_reached()
        return self.were_reached

    def _are_reached(self) -> bool:
        acquisition, assigned = self._acquisition, self._membership.generation.assigned
        if not self._membership.is_settled or acquisition.pending or acquisition.assigned.is_set():
            return False
        if any(trouble.is_passing for trouble in self._troubles().values()):
            return False
        if not self._scheduler.owned and self._membership.topics:
            # Other processes have all partitions, or are just letting go of some. They have got ours if no stream was at
            # work here: then this process is not done before it could help.
            return self._scheduler.streams_at_work > 0 and time.monotonic() - self.joined_at > _SETTLED_AFTER
        missing = assigned - self._scheduler.owned.keys()
        if any(topic in self._source.topics for topic, _ in missing):
            return False
        return all(owned.is_done for owned in self._scheduler)
