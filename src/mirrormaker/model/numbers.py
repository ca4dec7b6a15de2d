"""Sequence numbers: how each record arrives once, whoever sends it and however often.

The leader of a target partition appends a batch only if its first sequence number is the next one of (producer
identity, partition). Every process that ever mirrors a source partition uses the same identity for it, and gives the
n-th record after a ledger entry the same number. So the broker refuses or recognises the batches of a second sender,
and the target's own log says how far any sender got. Three things would break this, and `Channel` prevents all three:

- A leader that does not know the identity accepts *any* first number. Therefore only one batch is in flight until the
  leader has acknowledged one. A leader forgets an identity by the timestamps of the last batch that it has of it, so the
  same holds behind each batch of old records.
- If a batch fails and a later one was appended, the log has a hole that no later answer shows. Therefore nothing more
  is sent after an error: all answers are awaited, and the target's log is read again.
- Two different records could get the same number. Therefore acknowledged offsets must grow with the numbers, and the
  batches under our identity in the log must be contiguous.

This module does no input or output: the same class runs against real brokers, and against a simulated log in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mirrormaker.errors import NumbersBroken, RecordsLost
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.records.batch import SEQUENCES

# A broker remembers the last five batches of each producer, to recognise duplicates.
MAX_IN_FLIGHT = 5


class LoggedBatch(NamedTuple):
    """The numbers of one batch in the target's log."""

    base_offset: int
    last_offset: int
    identity: Identity
    base_sequence: int
    last_sequence: int
    records: int


class Channel:
    """The sequence numbers of one identity on one target partition."""

    def __init__(self, identity: Identity, cut: Cut) -> None:
        """Start at `cut`, with nothing known of the target: `resume` must come before the first batch."""
        self.identity = identity
        self.partition, self.topic = cut.partition, cut.topic
        # The number of the next record that is not acknowledged yet.
        self.sequence = cut.sequence
        # Every record of ours that is not acknowledged yet lies at this target offset or after it.
        self.offset = cut.offset
        # True once the leader has acknowledged a batch since the log was read, if the last one was not old.
        self.leader_knows_us = False
        # True until the target's log has been read: before that, nothing may be sent.
        self.must_read_log = True
        self._in_flight: list[tuple[int, int, bool]] = []  # (first number, count, whether its records are old)
        self._next = cut.sequence

    @property
    def in_flight(self) -> int:
        """Return how many batches are sent and not answered."""
        return len(self._in_flight)

    @property
    def next(self) -> int:
        """Return the number that the next batch gets."""
        return self._next

    def has_passed(self, number: int) -> bool:
        """Return True if a number was acknowledged."""
        return 0 < (self.sequence - number) % SEQUENCES < SEQUENCES // 2

    @property
    def cut(self) -> Cut:
        """Return the cut right after the last acknowledged record."""
        return Cut(self.partition, self.sequence, self.offset, self.topic)

    def may_send(self, old: bool, limit: int = MAX_IN_FLIGHT) -> bool:
        """Return True if another batch may be sent now.

        `old`: its records are so old that a broker may forget which producer wrote them.
        """
        if self.must_read_log:
            return False
        many = self.leader_knows_us and not old and self.identity.is_numbered
        return len(self._in_flight) < (limit if many else 1)

    def number(self, count: int, old: bool = False) -> int:
        """Return the first number of a batch of `count` records, which counts as sent from now on."""
        sequence = self._next
        self._next = (sequence + count) % SEQUENCES
        self._in_flight.append((sequence, count, old))
        if old:
            self.leader_knows_us = False
        return sequence

    def acknowledged(self, base_offset: int) -> None:
        """Count the oldest batch in flight as appended at `base_offset`, on all in-sync replicas."""
        sequence, count, old = self._in_flight.pop(0)
        if self.must_read_log:
            return  # an earlier batch failed: only the log can tell where this one is
        if base_offset >= 0:
            # A smaller offset is no contradiction without producer ids: such a target may only have lost records.
            if base_offset < self.offset and self.identity.is_numbered:
                self.must_read_log = True
                raise NumbersBroken(
                    f"sequence number {sequence} was acknowledged at offset {base_offset}, before the records that precede it"
                    f" (they end at {self.offset}): another writer uses producer id {self.identity.producer_id}"
                )
            self.offset = base_offset + count
        self.sequence = (sequence + count) % SEQUENCES
        self.leader_knows_us = not old

    def missing_after(self, last: int) -> int | None:
        """Return how many acknowledged records come after a number of ours; None if it was not acknowledged yet."""
        missing = (self.sequence - 1 - last) % SEQUENCES
        return missing if missing < SEQUENCES // 2 else None

    def check_not_behind(self, last: int) -> None:
        """Raise RecordsLost if the target's last number of ours comes before records that it had acknowledged."""
        if missing := self.missing_after(last):
            raise RecordsLost(
                f"LOST {missing} records that the target had acknowledged: its last sequence number of producer id"
                f" {self.identity.producer_id} is {last}, and {self.sequence} comes next"
            )

    def failed(self) -> None:
        """Count the oldest batch in flight as refused, or as of unknown outcome."""
        if self._in_flight:
            self._in_flight.pop(0)
        self.stop_until_log_read()

    def stop_until_log_read(self) -> None:
        """Send nothing more until `resume` was called with the target's log."""
        self.must_read_log = True
        self.leader_knows_us = False

    def abandon(self) -> None:
        """Forget all batches in flight: their connection is lost, so no answer will come."""
        self._in_flight.clear()
        self.stop_until_log_read()

    def resume(self, log: Iterable[LoggedBatch], *, log_start_passed: bool = False, is_compacted: bool = False) -> int:
        """Take in the target's log from `offset` to its end; return how many records after the cut it holds already.

        A number that is left proves that all before it were there, because the broker takes numbers only in order.
        So numbers may be missing where records were deleted. `log_start_passed`: the log start offset lies after
        `offset`, so retention may have deleted the first ones. `is_compacted`: any batch but the last may be missing,
        and it left its offsets unused.
        """
        assert not self._in_flight, "answers are still awaited"
        sequence = self.sequence
        offset = self.offset
        for batch in log:
            if batch.identity != self.identity:
                continue
            missing = (batch.base_sequence - sequence) % SEQUENCES
            explained = log_start_passed or (is_compacted and missing <= batch.base_offset - offset)
            if missing and not explained:
                raise NumbersBroken(
                    f"the target holds sequence number {batch.base_sequence} of producer id {self.identity.producer_id}"
                    f" at offset {batch.base_offset} where {sequence} comes next"
                )
            log_start_passed = False
            sequence = (batch.last_sequence + 1) % SEQUENCES
            offset = batch.last_offset + 1
        self.check_not_behind((sequence - 1) % SEQUENCES)
        present = (sequence - self.sequence) % SEQUENCES
        self.offset = offset
        self.sequence = self._next = sequence
        self.must_read_log = False
        self.leader_knows_us = False
        return present
