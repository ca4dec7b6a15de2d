"""New numbers for a partition: when records follow that the old ones were not meant for."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.errors import AbortError, MirrorError, PartitionError
from mirrormaker.model.ledger import check_fits, rows
from mirrormaker.model.position import Position
from mirrormaker.worker.interrupts import RestartAt

if TYPE_CHECKING:
    from mirrormaker.driver.flow import Flow


class Renumbering:
    """What a flow does about records that cannot be delivered, topics that change, and handlers that send elsewhere."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._seen: dict[str, tuple[int, int]] = {}  # partitions of each topic on both sides, at the last look

    def refused(self, holding: OwnedPartition, offset: int, cause: str, reason: str) -> None:
        """A record that can never be delivered: the end, or a line in a file."""
        flow, file = self.flow, self.flow.undelivered
        if flow.options.abort_on_send_failure:
            holding.busy = False
            holding.stop(reason, final=True)
            flow.fail(AbortError(reason))
            return
        try:
            file.write(*holding.position.key, offset, cause)
        except OSError as error:
            flow.fail(MirrorError(f"{file.path} cannot be written: {error.strerror}; {reason}"))
            return
        flow.say(f"{reason} (written to {file.path})")
        why = f"the record at offset {offset} was given up"
        flow.start(self._renumber(holding, RestartAt.SAME_PLACE, why, [], offset + 1))

    def needed(self, holding: OwnedPartition, where: int, reason: str, topics: list[str]) -> None:
        self.flow.start(self._renumber(holding, where, reason, topics))

    def see_to_partitions(self) -> None:
        """Where the numbers of partitions have become equal, or are no longer, records go elsewhere from now on.

        Not at the first sight: a broker may show for a moment what was true before.
        """
        flow = self.flow
        before_that, self._seen = self._seen, {}
        for holding in flow.scheduler:
            topic = holding.position.topic
            known = topic in flow.source.topics and topic in flow.target.topics
            if not known or holding.stopped or holding.busy:
                continue
            with contextlib.suppress(PartitionError):  # no room for its neighbours; this one stays where it is
                by_key, before = flow.opening.by_key(topic), holding.position
                here, there = self._seen[topic] = flow.counts(topic)
                if before_that.get(topic) != (here, there):
                    continue
                if by_key != before.by_key or (by_key and there != before.target_partitions):
                    holding.renumber = f"{topic} has {here} partitions on the source and {there} on the target now"
                    if holding.given:
                        flow.scheduler.recall(holding)
                    elif holding.is_even:
                        holding.busy = True
                        self.needed(holding, RestartAt.SAME_PLACE, holding.renumber, [])

    def was_equal(self, position: Position) -> bool:
        """Did source and target have the same number of partitions, before one side grew?"""
        flow = self.flow
        topic = flow.target.topics.get(position.topic)
        count = len(topic.partitions) if topic else -1
        alike = topic is not None and position.fingerprint == flow.opening.fingerprint(position.topic, False)
        return alike and count == position.target_partitions and position.partition < count

    async def _renumber(
        self, holding: OwnedPartition, where: int, reason: str, topics: list[str], at: int | None = None
    ) -> None:
        """Commit a new identity, then go on; `at` another offset, if one is given."""
        flow = self.flow
        holding.renumber = ""
        before = holding.position if at is None else replace(holding.position, offset=at, leader_epoch=-1)
        try:
            keep = bool(topics) or at is not None
            position, lost = await flow.patiently(lambda: flow.opening.go_on(before, where, reason, topics, keep))
            check_fits(position)
        except PartitionError as error:
            holding.busy = False
            if holding.stop(str(error)):
                flow.say(holding.stopped)
            return
        if lost:
            flow.lost.append(lost)
            flow.say(f"LOST {lost}")
        await flow.patiently(lambda: self._commit(holding, position))
        holding.busy = False
        flow.scheduler.give()

    async def _commit(self, holding: OwnedPartition, position: Position) -> None:
        """Unless it belongs to another process by now: then so does its place in the ledger."""
        if self.flow.owns(holding):
            await self.flow.membership.commit(rows([position]))
            if position.offset < holding.position.offset:  # another log under the same name: other ends
                holding.goal, holding.end = None, -1
            holding.position = holding.committed = position
            holding.clean = True
