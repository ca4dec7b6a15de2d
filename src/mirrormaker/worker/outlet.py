"""One target partition as one source partition writes to it: what is ready, what is under way, and its numbers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

from mirrormaker.errors import BrokerError, NumbersBroken, describe
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import Cut, Identity
from mirrormaker.model.progress import Unit
from mirrormaker.wire.client.acls import TOPIC_DENIED, denied
from mirrormaker.wire.records.batch import SEQUENCES, Batch
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.interrupts import FORGOTTEN, Renumber, Split
from mirrormaker.worker.resume import Again, Found

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor
    from mirrormaker.worker.sender import Sender

_TOO_LARGE = 10
_FORGOTTEN = 59  # brokers before 2.5, which refuse what comes next; later ones take it
# 0.11 says it otherwise: number after number is refused though the log has just been read.
_OUT_OF_ORDER, _SURELY = 45, 3
_NOT_CONFIRMED = frozenset({7, 20})  # appended, but not on enough replicas in time
# Refused for good by their nature, because of a record or of everything; anything else may be different in a moment.
_BAD_RECORD = frozenset({2, _TOO_LARGE, 18, 32, 42, 87})
_WHOLE_TOPIC = frozenset({17, 21, 31, 43, 76})


class Entry:
    """A batch to be sent, and the unit of which it is a part."""

    __slots__ = ("batch", "count", "first", "frame", "last", "old", "size", "unit")

    def __init__(self, batch: Batch, first: int, last: int, unit: Unit, frame: Frame, old: bool) -> None:
        self.batch, self.unit, self.frame, self.old = batch, unit, frame, old
        self.first, self.last = first, last  # offsets at the source
        self.count, self.size = batch.count, len(batch.data)
        frame.keep(self.count)

    def drop(self) -> None:
        self.frame.drop(self.count)


class Outlet:
    """The hot path from a cursor to a sender; answers come back in the order of one connection."""

    __slots__ = (
        "again", "channel", "cursor", "last_ack", "max_bytes", "partition", "place", "ready", "sender", "sent", "skip", "skip_to",
        "strange", "target_id", "topic",
    )  # fmt: skip

    def __init__(self, cursor: Cursor, identity: Identity, cut: Cut) -> None:
        self.cursor, self.place = cursor, cut.place
        self.topic, self.partition = cut.topic or cursor.topic, cut.partition
        self.target_id = bytes(16)
        self.channel = Channel(identity, cut)
        self.sender: Sender | None = None  # chosen once per lap
        self.ready: deque[Entry] = deque()
        self.sent: deque[Entry] = deque()
        self.skip = 0  # records from the source that the target already holds
        self.skip_to: Found | None = None  # the last of them
        self.again: Again | None = None  # the batch that comes next, if the target may have it and has not confirmed it
        self.strange = 0  # numbers in a row that were refused right after the log was read
        self.last_ack = time.monotonic()
        self.max_bytes = 1 << 62  # of a batch

    def __repr__(self) -> str:
        return f"{self.cursor} -> {self.topic}-{self.partition}"

    def unconfirmed(self) -> Again | None:
        """The batch that may be sent again as it was, while the leader cannot have forgotten who wrote it."""
        if self.again is not None and self.again.max_timestamp < self.cursor.old_before():
            self.again = None
        return self.again

    def restart(self, identity: Identity, cut: Cut) -> None:
        """Begin again at the cut, with nothing known of the target."""
        self.channel = Channel(identity, cut)
        self.skip, self.skip_to = 0, None

    @property
    def is_known(self) -> bool:
        """Is it certain what the target holds of ours?"""
        return not (self.channel.in_trouble or self.sent)

    def stands_at(self, cut: Cut) -> bool:
        return self.is_known and self.channel.sequence == cut.sequence

    def closing_cut(self, cut: Cut) -> Cut:
        """The cut of a position, with all that is certainly there by now."""
        if not self.is_known:
            return cut
        ahead = cut.ahead + (self.channel.sequence - cut.sequence) % SEQUENCES
        return self.channel.cut._replace(ahead=ahead)

    def next_batch(self, limit: int, room: int) -> Entry | None:
        """Number and stamp the oldest batch that is ready, if it may go now; it counts as under way from then on."""
        entry, channel = self.ready[0], self.channel
        if entry.size > room or not channel.may_send(entry.old, limit):
            return None
        del self.ready[0]
        self.sent.append(entry)
        entry.unit.begun = True
        identity = channel.identity
        entry.batch.stamp(identity.producer_id, identity.epoch, channel.number(entry.count))
        return entry

    def acknowledged(self, base_offset: int) -> None:
        entry, channel, cursor = self.sent.popleft(), self.channel, self.cursor
        entry.frame.drop(entry.count)
        try:
            channel.acknowledged(base_offset)
        except NumbersBroken as error:
            cursor.trouble(cursor.stops(entry.first, str(error), final=True))
        if not channel.in_trouble:
            self.last_ack, self.again = time.monotonic(), None
            cursor.delivered(entry, channel.cut)
        if not self.sent:
            cursor.drained.set()

    def refused(self, error: Exception) -> None:
        """The oldest batch under way was not appended, as far as the broker says."""
        entry, cursor = self.sent.popleft(), self.cursor
        number = error.code if isinstance(error, BrokerError) else None
        if number in _NOT_CONFIRMED and not self.channel.in_trouble and not entry.old:
            self.again = Again(bytes(entry.batch.data), self.target_id, entry.batch.max_timestamp)
        entry.drop()
        known = self.channel.known
        self.channel.failed()
        self.strange = self.strange + 1 if number == _OUT_OF_ORDER and not (self.sent or known) else 0
        if number == _FORGOTTEN or self.strange >= _SURELY:
            cursor.trouble(Renumber(FORGOTTEN, "the target has deleted all it had from us, and with it who we are"))
        elif number == TOPIC_DENIED:
            why = denied(cursor.stream.target.endpoint, "Write", "topic", self.topic)
            cursor.trouble(cursor.stops(entry.first, why))
        elif number in _WHOLE_TOPIC:
            cursor.trouble(cursor.stops(entry.first, f"the target refuses {self.topic}: {describe(error)}"))
        elif number not in _BAD_RECORD:
            cursor.trouble(error)
        elif entry.unit.single:
            refusal = cursor.undeliverable(entry.first, f"the target refuses it: {describe(error)}", entry.unit)
            refusal.place = self.place
            cursor.trouble(refusal)
        else:
            if number == _TOO_LARGE and entry.count > 1:
                cursor.stream.learn_limit(self.topic, entry.size // 2)
            else:
                cursor.few, cursor.few_until = max(1, entry.count // 2), entry.unit.end
            cursor.trouble(Split(describe(error)))
        if not self.sent:
            cursor.drained.set()

    def abandoned(self, error: Exception) -> None:
        """The connection is gone with answers outstanding."""
        if self.sent:
            for entry in self.sent:
                entry.drop()
            self.sent.clear()
            self.cursor.hold()
        self.channel.abandon()
        self.cursor.trouble(error)
        self.cursor.drained.set()

    def clear(self, but: Collection[Unit] = ()) -> None:
        """What was only fetched will be fetched again; some units may be kept."""
        kept = deque(entry for entry in self.ready if entry.unit in but)
        for entry in self.ready:
            if entry.unit not in but:
                entry.drop()
        self.ready = kept
        if self.sender is not None and not kept:
            self.sender.forget(self)
