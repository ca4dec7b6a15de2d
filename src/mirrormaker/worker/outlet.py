"""One target partition as one cursor writes to it: the batches that are ready, those in flight, and their numbers."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from mirrormaker.errors import BrokerError, NumbersBroken, Undeliverable, describe
from mirrormaker.kafka_errors import (
    CODES,
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_PRODUCER_ID,
    UNKNOWN_SERVER_ERROR,
    Scope,
)
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity
from mirrormaker.model.progress import Unit
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.records.batch import SEQUENCES, Batch
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.interrupts import LookAgain, Renumber, RestartAt, SplitBatch
from mirrormaker.worker.run_notes import RunNotes, SkippedPlaces

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor
    from mirrormaker.worker.sender import Sender

# A broker before 2.5 that has forgotten the producer answers UNKNOWN_PRODUCER_ID. One of 0.11 answers
# OUT_OF_ORDER_SEQUENCE_NUMBER instead, even right after the log was read: so many of those in a row mean the same.
_REFUSALS_WHEN_FORGOTTEN = 3
# The batch was appended, but not on enough in-sync replicas in time.
_UNCONFIRMED = frozenset({REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND})
# Seconds for which a single record may arrive damaged. Brokers before 2.4 also answer CORRUPT_MESSAGE to a record without a key
# for a compacted topic, which they will never take.
_DAMAGED_FOR = 3.0
# Another sender may have been there before, or the broker does not say what is wrong.
_TOLD_BY_THE_LOG = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_SERVER_ERROR})


class Entry:
    """A batch to be sent, and the unit that it belongs to."""

    __slots__ = ("batch", "count", "first", "frame", "last", "offsets", "old", "size", "unit")

    def __init__(
        self, batch: Batch, first: int, last: int, unit: Unit, frame: Frame, old: bool, offsets: Ints | None = None
    ) -> None:
        """`first` and `last` are source offsets; `offsets` are all of them, kept unless they are consecutive.

        `old`: a broker may forget which producer wrote these records.
        """
        self.batch, self.unit, self.frame, self.old = batch, unit, frame, old
        self.first, self.last = first, last
        # A message handler may drop one record and double another: then the count alone says nothing.
        is_plain = offsets is None or (
            last - first + 1 == batch.count and bool((offsets[1:] - offsets[:-1] == 1).all())
        )
        self.offsets = None if is_plain else offsets
        self.count, self.size = batch.count, len(batch.data)
        frame.keep(self.count)

    def drop(self) -> None:
        """Give the batch's memory back to the buffer."""
        self.frame.drop(self.count)


@dataclass(frozen=True)
class RecordDigest:
    """Size and checksum of a record's key, value and headers: enough to tell if source and target hold the same record.

    The rest may differ: the target may have set another timestamp, and the batch may be compressed differently.
    """

    size: int
    checksum: int

    @classmethod
    def of(cls, records: Records, index: int) -> RecordDigest:
        """Return the digest of one of the records."""
        tail = records.tail(index)
        return cls(len(tail), crc32c(tail))


@dataclass
class UnconfirmedBatch:
    """The next batch, exactly as it was sent before: the broker has not said whether it was appended for good."""

    data: bytes
    topic_id: bytes
    max_timestamp: int
    # True from the moment when it is sent again until it is answered.
    is_under_way: bool = False


class Outlet:
    """The hot path from a cursor to a sender. Answers come back in the order of the batches, over one connection."""

    __slots__ = (
        "channel", "contradicted_at", "contradiction", "cursor", "last_skipped", "last_timestamp", "partition", "place",
        "ready", "run_notes", "sender", "sent", "sequence_refusals", "skip", "skipped_places", "suspect", "topic",
        "unconfirmed",
    )  # fmt: skip

    def __init__(self, cursor: Cursor, identity: Identity, cut: Cut) -> None:
        """Start at `cut`, with nothing known of what the target holds after it."""
        self.cursor, self.place = cursor, cut.place
        self.topic, self.partition = cut.topic or cursor.topic, cut.partition
        self.channel = Channel(identity, cut)
        # Chosen each time that the cursor enters the hot path.
        self.sender: Sender | None = None
        # Lists, because an empty deque takes 760 bytes, and a stream may have thousands of outlets.
        self.ready: list[Entry] = []
        self.sent: list[Entry] = []
        # How many of the next records the target holds already, and the last one of them if it is known.
        self.skip = 0
        self.last_skipped: RecordDigest | None = None
        # For the offset map: the runs of acknowledged records, and the places of those that are to be skipped.
        keeps_notes = cursor.stream.work.keeps_offset_map and identity.is_numbered
        # A message handler leaves most records in the partition of the same number, unless it says otherwise.
        is_spread = cursor.position.by_key or self.partition != cursor.partition
        self.run_notes = RunNotes(is_spread=is_spread) if keeps_notes else None
        self.skipped_places: SkippedPlaces | None = None
        self.unconfirmed: UnconfirmedBatch | None = None
        # How often in a row the first number after reading the log was refused.
        self.sequence_refusals = 0
        # The first source offset of the last batch that was refused because of a record in it, and since when.
        self.suspect = -1, 0.0
        # A leader counts our age from here: the newest timestamp in the last batch that it has acknowledged.
        self.last_timestamp = 0.0
        # The target acknowledged a batch at an offset before its predecessors: that offset, and the error.
        self.contradicted_at = 0
        self.contradiction: NumbersBroken | None = None

    def __repr__(self) -> str:
        return f"{self.cursor} -> {self.topic}-{self.partition}"

    @property
    def max_bytes(self) -> int:
        """Return the size of the largest batch to send."""
        return self.cursor.stream.metadata.max_batch_bytes(self.topic)

    @property
    def is_compacted(self) -> bool:
        """Return True if the target topic is known to be compacted."""
        return self.cursor.stream.metadata.is_compacted(self.topic)

    @property
    def target_id(self) -> bytes:
        """Return the id of the target topic, which `check_topics` has compared; all zeros if it has none."""
        return self.cursor.target_ids.get(self.topic) or bytes(16)

    @property
    def is_same_topic(self) -> bool:
        """Return True if its id proves that the target topic is the one of the cut.

        An id that is not in the ledger proves it from the first acknowledgement on.
        """
        is_in_ledger = self.topic == self.cursor.topic and bool(self.cursor.position.target_topic_id)
        return any(self.target_id) and (is_in_ledger or self.last_timestamp != 0.0)

    def repeatable_batch(self) -> UnconfirmedBatch | None:
        """Return the unconfirmed batch if it may be sent again: the leader cannot have forgotten its producer."""
        if self.unconfirmed is not None and self.unconfirmed.max_timestamp < self.cursor.expiry_cutoff_ms():
            self.unconfirmed = None
        return self.unconfirmed

    def restart(self, identity: Identity, cut: Cut) -> None:
        """Begin again at the cut, with nothing known of what the target holds after it."""
        self.channel = Channel(identity, cut)
        self.skip, self.last_skipped = 0, None
        if self.run_notes is not None:
            self.run_notes.restart(cut.offset)
            self.skipped_places = SkippedPlaces(cut)

    @property
    def is_certain(self) -> bool:
        """Return True if it is certain which records of ours the target holds."""
        return not (self.channel.must_read_log or self.sent)

    def stands_at(self, cut: Cut) -> bool:
        """Return True if it is certain that the cut's number is the next one that the target needs."""
        return self.is_certain and self.channel.sequence == cut.sequence

    def closing_cut(self, cut: Cut) -> Cut:
        """Return a position's cut, together with all records after it that the target certainly holds."""
        if not self.is_certain:
            return cut
        ahead = cut.ahead + (self.channel.sequence - cut.sequence) % SEQUENCES
        return self.channel.cut._replace(ahead=ahead)

    def next_batch(self, limit: int, room: int) -> Entry | None:
        """Number and return the oldest batch that is ready; None if it may not be sent now.

        It counts as sent from now on.
        """
        entry, channel = self.ready[0], self.channel
        if entry.size > room or not channel.may_send(entry.old, limit):
            return None
        del self.ready[0]
        self.sent.append(entry)
        entry.unit.begun = True
        identity = channel.identity
        entry.batch.stamp(identity.producer_id, identity.epoch, channel.number(entry.count, entry.old))
        return entry

    def acknowledged(self, base_offset: int) -> None:
        """Count the oldest batch in flight as appended at `base_offset`."""
        entry, channel, cursor = self.sent.pop(0), self.channel, self.cursor
        entry.frame.drop(entry.count)
        try:
            channel.acknowledged(base_offset)
        except NumbersBroken as error:
            self.contradicted_at, self.contradiction = base_offset, error
            cursor.interrupt(LookAgain(str(error)))
        if not channel.must_read_log:
            self.last_timestamp = min(time.time() * 1000, entry.batch.max_timestamp)
            self.unconfirmed, self.sequence_refusals = None, 0
            self._note(entry, base_offset)
            cursor.delivered(entry, channel.cut)
        if not self.sent:
            cursor.drained.set()

    def _note(self, entry: Entry, base_offset: int) -> None:
        """Note for the offset map which records lie at an acknowledged offset."""
        notes = self.run_notes
        if notes is None or base_offset < 0:
            return
        sequence = (self.channel.sequence - entry.count) % SEQUENCES
        if entry.offsets is None:
            notes.note(entry.first, base_offset, entry.count, sequence)
        else:
            notes.note_offsets(entry.offsets, base_offset, sequence)

    def note_skipped(self, sources: Ints) -> None:
        """Note the places of records that the target holds already, as far as its log has told them, once all are skipped."""
        if self.run_notes is not None and self.skipped_places is not None:
            self.skipped_places.skip(sources)
            if not self.skip:
                for run in self.skipped_places.confirmed():
                    self.run_notes.note(*run)

    def refused(self, error: Exception) -> None:
        """Interrupt the cursor, because the broker answered the oldest batch in flight with an error."""
        entry, cursor = self.sent.pop(0), self.cursor
        code = error.code if isinstance(error, BrokerError) else None
        if code in _UNCONFIRMED and not self.channel.must_read_log and not entry.old:
            self.unconfirmed = UnconfirmedBatch(bytes(entry.batch.data), self.target_id, entry.batch.max_timestamp)
        entry.drop()
        leader_knew_us = self.channel.leader_knows_us
        self.channel.failed()
        first_refused = code == OUT_OF_ORDER_SEQUENCE_NUMBER and not (self.sent or leader_knew_us)
        self.sequence_refusals = self.sequence_refusals + 1 if first_refused else 0
        if code == UNKNOWN_PRODUCER_ID or self.sequence_refusals >= _REFUSALS_WHEN_FORGOTTEN:
            reason = "the target has deleted all records of this producer id, and no longer knows it"
            cursor.interrupt(Renumber(RestartAt.FORGOTTEN, reason))
        elif code == INVALID_PRODUCER_EPOCH and not leader_knew_us and self.channel.identity.epoch == MARKED_EPOCH:
            reason = f"the target takes no producer epoch that it did not give itself ({MARKED_EPOCH})"
            cursor.interrupt(Renumber(RestartAt.UNMARKED, reason))
        elif code == TOPIC_AUTHORIZATION_FAILED:
            reason = denied(cursor.stream.target.endpoint, "Write", "topic", self.topic)
            cursor.interrupt(cursor.stop_error(entry.first, reason))
        elif _refuses_topic(error):
            cursor.interrupt(cursor.stop_error(entry.first, f"the target refuses {self.topic}: {describe(error)}"))
        elif _refuses_record(error) and not self._arrived_damaged(error, entry):
            self._find_bad_record(error, entry)
        elif _may_pass(error):
            cursor.interrupt(error)
        else:
            cursor.interrupt(cursor.stop_error(entry.first, f"the target refuses a batch: {describe(error)}"))
        if not self.sent:
            cursor.drained.set()

    def _arrived_damaged(self, error: Exception, entry: Entry) -> bool:
        """Return True if a batch may have been damaged on its way: an error that may pass.

        A larger batch may be so once; then it is sent in halves. A single record is tried for some seconds before it is to blame.
        """
        if not _may_pass(error):
            return False
        offset, since = self.suspect
        now = time.monotonic()
        if offset != entry.first:
            self.suspect = entry.first, now
            return True
        return entry.unit.single and now - since < _DAMAGED_FOR

    def _find_bad_record(self, error: Exception, entry: Entry) -> None:
        """Send a refused batch again in halves, until the record that is to blame is alone."""
        cursor = self.cursor
        if entry.unit.single:
            cause = f"the target refuses it: {describe(error)}"
            cursor.interrupt(Undeliverable(str(cursor), entry.first, cause, entry.unit))
            return
        is_too_large = isinstance(error, BrokerError) and error.code == MESSAGE_TOO_LARGE
        if is_too_large and entry.count > 1:
            cursor.stream.metadata.learn_limit(self.topic, entry.size // 2)
        else:
            cursor.split_size, cursor.split_until = max(1, entry.count // 2), entry.unit.end
        cursor.interrupt(SplitBatch(describe(error), entry.unit.end))

    def abandoned(self, error: Exception) -> None:
        """Interrupt the cursor, because the connection was lost: no answer to the batches in flight will come."""
        if self.sent:
            for entry in self.sent:
                entry.drop()
            self.sent.clear()
            self.cursor.requests_lost()
        self.channel.abandon()
        self.cursor.interrupt(error)
        self.cursor.drained.set()

    def clear(self, keep: Collection[Unit] = ()) -> None:
        """Drop the batches that are ready, except those of the given units: they will be fetched again."""
        kept = [entry for entry in self.ready if entry.unit in keep]
        for entry in self.ready:
            if entry.unit not in keep:
                entry.drop()
        self.ready = kept
        if self.sender is not None and not kept:
            self.sender.forget(self)


def _refuses_topic(error: Exception) -> bool:
    """Return True if the broker will refuse every batch for the topic. `kafka_errors` says how far each code reaches."""
    return isinstance(error, BrokerError) and error.scope >= Scope.TOPIC and not error.retriable


def _may_pass(error: Exception) -> bool:
    """Return True if the broker may take the batch later, or if the log tells more: then it is read, and sent again."""
    if not isinstance(error, BrokerError) or error.retriable:
        return True
    return error.code in _TOLD_BY_THE_LOG or error.code not in CODES


def _refuses_record(error: Exception) -> bool:
    """Return True if the broker will always refuse this batch, because of a record in it."""
    return isinstance(error, BrokerError) and error.scope is Scope.RECORD
