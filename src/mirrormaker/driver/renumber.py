"""New producer identities for partitions whose sequence numbers no longer fit the records that follow."""

from __future__ import annotations

import contextlib
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from mirrormaker.control.control_messages import CannotDeliver, NeedsIdentity
from mirrormaker.driver.committer import Committer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.patience import ask_until_answered
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.driver.undelivered import Undelivered
from mirrormaker.errors import AbortError, MirrorError, PartitionError
from mirrormaker.events import event
from mirrormaker.events.partition_events import LostRange, RangeLost, RecordGivenUp
from mirrormaker.model import partition_life as life
from mirrormaker.model.ledger import check_fits
from mirrormaker.worker.interrupts import RestartAt

# New identities that a partition gets in a row without moving on. After that it stops, and each new attempt gets one.
RENEWALS = 5
_SAME_OFFSET = (RestartAt.SAME_PLACE, RestartAt.FORGOTTEN)
_RECALL_AFTER = 60.0  # seconds until a partition is recalled again that was not released cleanly

Spawn = Callable[[Coroutine[Any, Any, None]], None]
Fail = Callable[[BaseException], None]


class Renumbering:
    """Reacts to records that cannot be delivered, to topics that change, and to handlers that write to new topics."""

    def __init__(
        self,
        scheduler: Scheduler,
        committer: Committer,
        start_positions: StartPositions,
        undelivered: Undelivered,
        report: event.Report,
        *,
        abort_on_send_failure: bool,
        spawn: Spawn,
        fail: Fail,
    ) -> None:
        """`spawn` starts a supervised task of the flow; `fail` ends the flow."""
        self._scheduler, self._committer, self._start_positions = scheduler, committer, start_positions
        self._undelivered, self._report, self._spawn, self._fail = undelivered, report, spawn, fail
        self._abort_on_send_failure = abort_on_send_failure
        self.lost: list[LostRange] = []  # every range that was lost
        self._counts: dict[str, tuple[int, int]] = {}  # by topic, partitions on both sides at the last check
        # When partitions were last recalled because of their topic's number of partitions.
        self._recalled: weakref.WeakKeyDictionary[OwnedPartition, float] = weakref.WeakKeyDictionary()
        # The source offset at which partitions got their last new identities, and how many in a row.
        self._renewed: weakref.WeakKeyDictionary[OwnedPartition, tuple[int, int]] = weakref.WeakKeyDictionary()

    @property
    def _routing(self) -> Routing:
        return self._start_positions.routing

    def allocate(self, owned: OwnedPartition, need: NeedsIdentity | CannotDeliver) -> None:
        """Allocate a new identity for a partition that no stream has, or give up a record first."""
        if isinstance(need, CannotDeliver):
            self._give_up(owned, need)
        elif self._may_renew(owned, need):
            self._spawn(self._renumber(owned, need))
        else:
            self._refuse(
                owned,
                f"{owned.name} stops at source offset {owned.position.offset}: it needed {RENEWALS} new producer ids in a row"
                f" without getting any further: {need.reason}; see that the target takes its records, and that a message"
                " handler returns the same records each time, or says that it does not (deterministic = False)",
            )

    def _may_renew(self, owned: OwnedPartition, need: NeedsIdentity) -> bool:
        """Return False if new identities have not helped: records may be sent again with each of them.

        Each attempt after a stop gets one more, because the reason may have passed.
        """
        if need.topics or need.restart_at not in _SAME_OFFSET:
            return True
        at, count = self._renewed.get(owned, (-1, 0))
        count = count + 1 if at == owned.position.offset else 1
        may_renew = count <= RENEWALS
        self._renewed[owned] = owned.position.offset, count if may_renew else RENEWALS - 1
        return may_renew

    def _give_up(self, owned: OwnedPartition, outcome: CannotDeliver) -> None:
        """Give a record up: end the mirror, or write the record's place to a file and go on after it."""
        if self._abort_on_send_failure:
            self._refuse(owned, outcome.reason, final=True)
            self._fail(AbortError(outcome.reason))
            return
        path = self._undelivered.path
        try:
            self._undelivered.write(*owned.position.key, outcome.offset, outcome.cause)
        except OSError as error:
            self._refuse(owned, f"{path} cannot be written: {error.strerror}; {outcome.reason}")
            return
        self._report(RecordGivenUp(outcome.reason, str(path)))
        reason = f"the record at offset {outcome.offset} was given up"
        self._spawn(self._renumber(owned, NeedsIdentity(RestartAt.SAME_PLACE, reason), outcome.offset + 1))

    def check_partition_counts(self) -> None:
        """Renumber partitions whose records go elsewhere from now on, because the numbers of partitions have changed.

        A change counts at its second sight: a broker may show for a moment what was true before.
        """
        before, by_key = self._counts, self._look_at_topics()
        for owned in self._scheduler:
            position = owned.position
            topic = position.topic
            if topic not in by_key or before.get(topic) != self._counts[topic]:
                continue
            on_source, on_target = self._counts[topic]
            moves = by_key[topic] != position.by_key or (by_key[topic] and on_target != position.target_partitions)
            if moves and not (owned.stop_reason or owned.is_renumbering) and self._may_recall(owned):
                reason = f"{topic} has {on_source} partitions on the source and {on_target} on the target now"
                need = NeedsIdentity(RestartAt.SAME_PLACE, reason)
                self._scheduler.apply(owned, life.RenumberWanted(need, owned.is_even))
        self._scheduler.flush()

    def _may_recall(self, owned: OwnedPartition) -> bool:
        """Return False if the partition was recalled a while ago: its stream could not let go of it cleanly then.

        A stream needs some seconds without being recalled until it is certain of what the target holds.
        """
        if not isinstance(owned.life.state, life.Running):
            return True
        now, last = time.monotonic(), self._recalled.get(owned)
        if last is not None and now - last < _RECALL_AFTER:
            return False
        self._recalled[owned] = now
        return True

    def _look_at_topics(self) -> dict[str, bool]:
        """Remember the numbers of partitions; return whether the records of each topic go by key."""
        routing, by_key = self._routing, {}
        self._counts = {}
        for topic in {topic for topic, _ in self._scheduler.owned}:
            # PartitionError: there is no place for some of its partitions; the others stay where they are.
            with contextlib.suppress(PartitionError):
                if routing.is_known(topic):
                    by_key[topic] = routing.by_key(topic)
                    self._counts[topic] = routing.counts(topic)
        return by_key

    def _refuse(self, owned: OwnedPartition, reason: str, *, final: bool = False) -> None:
        """Stop the partition; it is tried again later."""
        self._scheduler.apply(owned, life.Refused(reason, time.monotonic(), final))

    async def _renumber(self, owned: OwnedPartition, need: NeedsIdentity, offset: int | None = None) -> None:
        """Commit a new identity, then let the partition go on; at `offset` if one is given."""
        before = owned.position if offset is None else replace(owned.position, offset=offset, leader_epoch=-1)
        same_records = bool(need.topics) or offset is not None
        try:
            position, lost = await ask_until_answered(
                lambda: self._start_positions.restart(before, need.restart_at, need.reason, need.topics, same_records),
                self._report,
            )
            check_fits(position)
            if lost:
                self.lost.append(lost)
                self._report(RangeLost(lost))
            await ask_until_answered(lambda: self._committer.commit_renumbered(owned, position), self._report)
        except Exception as error:  # whatever it is, it is the trouble of this partition alone
            if not isinstance(error, MirrorError):
                traceback.print_exc()
            known = isinstance(error, MirrorError)
            self._refuse(
                owned, str(error) if known else f"{owned.name} stops: unexpected {type(error).__name__}: {error}"
            )
            return
        self._scheduler.apply(owned, life.Renumbered())
        self._scheduler.hand_out()
