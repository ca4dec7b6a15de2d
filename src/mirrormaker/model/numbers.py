"""Numbers: what makes each record arrive once, whoever sends it and however often.

A target leader appends a batch only if its first sequence number is the next one of (identity, partition). All who ever mirror
a source partition share its identity, and give the n-th record after a ledger entry the same number. So a second sender's
batches are refused or recognised, and the target's own log says how far anyone got. Three things would break that, and
`Channel` refuses all three:

- A leader that does not know the identity accepts *any* first number. So nothing is sent behind a batch that is not yet
  acknowledged until the leader is known to know us, nor behind records so old that it may forget us.
- A failed batch with a later one already appended is a hole that no later answer shows. So after any error nothing more is
  sent; all answers are awaited, and the target's log is read again.
- One number for two different records. So acknowledged offsets must grow with the numbers, and what the log shows of us must
  be contiguous.

No input or output here: the same class runs against real brokers and against a simulated log in the tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from mirrormaker.errors import NumbersBroken
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.records.batch import SEQUENCES

MAX_IN_FLIGHT = 5  # what a broker remembers of each producer to recognise duplicates


class Seen(NamedTuple):
    """A batch on the target, as far as numbers are concerned."""

    base_offset: int
    last_offset: int
    identity: Identity
    base_sequence: int
    last_sequence: int
    records: int


class Channel:
    """The numbers of one identity on one target partition."""

    def __init__(self, identity: Identity, cut: Cut) -> None:
        self.identity = identity
        self.partition, self.topic = cut.partition, cut.topic
        self.sequence = cut.sequence  # of the next record that has not been acknowledged
        self.offset = cut.offset  # everything of ours that is not acknowledged lies at or behind it
        self.known = False  # an acknowledgement since the last trouble: the leader knows the identity
        self.in_trouble = True  # until the log has been read
        self._under_way: deque[tuple[int, int]] = deque()  # (first number, count)
        self._next = cut.sequence

    @property
    def in_flight(self) -> int:
        return len(self._under_way)

    @property
    def cut(self) -> Cut:
        return Cut(self.partition, self.sequence, self.offset, self.topic)

    def may_send(self, old: bool, limit: int = MAX_IN_FLIGHT) -> bool:
        """May another batch go out now? `old`: its records are of an age at which a broker forgets who wrote them."""
        if self.in_trouble:
            return False
        many = self.known and not old and self.identity.is_numbered
        return len(self._under_way) < (limit if many else 1)

    def number(self, count: int) -> int:
        """The first number of a batch of `count` records that goes out now."""
        sequence = self._next
        self._next = (sequence + count) % SEQUENCES
        self._under_way.append((sequence, count))
        return sequence

    def acknowledged(self, base_offset: int) -> None:
        """The oldest batch under way is on all replicas, at this offset."""
        sequence, count = self._under_way.popleft()
        if self.in_trouble:
            return  # a later batch than the failed one: the log will tell
        if base_offset >= 0:
            if base_offset < self.offset and self.identity.is_numbered:  # others may only have lost some
                self.in_trouble = True
                raise NumbersBroken(
                    f"number {sequence} was acknowledged at offset {base_offset}, before what precedes it ({self.offset}):"
                    f" another writer uses producer id {self.identity.producer_id}"
                )
            self.offset = base_offset + count
        self.sequence = (sequence + count) % SEQUENCES
        self.known = True

    def failed(self) -> None:
        """The oldest batch under way was refused, or its fate is unknown."""
        if self._under_way:
            self._under_way.popleft()
        self.trouble()

    def trouble(self) -> None:
        """Stop sending until the log has been read."""
        self.in_trouble = True
        self.known = False

    def abandon(self) -> None:
        """The connection is gone: nothing under way will be answered."""
        self._under_way.clear()
        self.trouble()

    def resume(self, log: Iterable[Seen], *, beheaded: bool = False) -> int:
        """Read the target's log from `offset` to its end; return how many records after the cut are there already.

        `beheaded`: retention has removed the log's beginning up to beyond `offset`, and with it perhaps records of ours; the
        first number that is left then proves those before it.
        """
        assert not self._under_way, "answers are still awaited"
        sequence = self.sequence
        offset = self.offset
        for batch in log:
            if batch.identity != self.identity:
                continue
            if batch.base_sequence != sequence and not beheaded:
                raise NumbersBroken(
                    f"the target holds number {batch.base_sequence} of producer id {self.identity.producer_id} at offset"
                    f" {batch.base_offset} where {sequence} comes next"
                )
            beheaded = False
            sequence = (batch.last_sequence + 1) % SEQUENCES
            offset = batch.last_offset + 1
        present = (sequence - self.sequence) % SEQUENCES
        if present >= SEQUENCES // 2:
            raise NumbersBroken(
                f"the target stands at number {sequence}, behind {self.sequence} which it had acknowledged"
            )
        self.offset = offset
        self.sequence = self._next = sequence
        self.in_trouble = False
        self.known = False
        return present
