"""A fetch session with one source broker (KIP-227): the broker remembers the partitions, and requests name changes only.

An answer of a session names the partitions that have news. Without a session (brokers before 1.1, or with too many sessions)
every request and every answer names all partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mirrormaker.kafka_errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from mirrormaker.wire.protocol import fetch

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor

# The broker has lost the session, or is out of step with it: the next request begins a new one.
SESSION_ERRORS = frozenset({FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR})

_LAST_EPOCH = (1 << 31) - 1

Topic = tuple[str, bytes]  # name and id


class Asked(NamedTuple):
    """One partition as the broker was asked for it."""

    cursor: Cursor
    fetch_round: int  # the cursor's fetch round at that time
    topic_id: bytes
    wanted: fetch.PartitionToFetch


class Changes(NamedTuple):
    """What a request has to say: partitions by topic that are new or have changed, and those that the broker forgets."""

    wanted: list[tuple[str, bytes, list[fetch.PartitionToFetch]]]
    forgotten: list[tuple[str, bytes, list[int]]]


class FetchSession:
    """The partitions of the request that was sent last, and the session in which the broker remembers them."""

    def __init__(self) -> None:
        # By topic name or id, whichever the request has, and partition: as an answer names them.
        self.asked: dict[tuple[str | bytes, int], Asked] = {}
        self._keys: dict[Cursor, tuple[str | bytes, int]] = {}
        self._by_id = False
        self._id = self._epoch = 0

    @property
    def header(self) -> tuple[int, int]:
        """Return the session's id and epoch for the next request."""
        return self._id, self._epoch

    @property
    def is_new(self) -> bool:
        """Return True if the next request has to name every partition."""
        return self._epoch == 0

    def restart(self) -> None:
        """Begin a new session with the next request, which also ends the old one."""
        self._epoch = 0

    def use_topic_ids(self, by_id: bool) -> None:
        """Set whether the next requests have topic ids in place of names. A session cannot mix them."""
        if by_id != self._by_id:
            self._by_id = by_id
            self.restart()

    def change(self, asked: Iterable[Asked], gone: Iterable[Cursor]) -> Changes:
        """Add or change partitions, and remove the partitions of cursors that have gone. A new session needs all partitions."""
        if self.is_new:
            self.asked.clear()
            self._keys.clear()
        wanted: dict[Topic, list[fetch.PartitionToFetch]] = defaultdict(list)
        forgotten: dict[Topic, list[int]] = defaultdict(list)
        for new in asked:
            cursor = new.cursor
            key = new.topic_id if self._by_id else cursor.topic, cursor.partition
            old = self.asked.get(key)
            self.asked[key], self._keys[cursor] = new, key
            if old is None or old.wanted != new.wanted:
                wanted[cursor.topic, new.topic_id].append(new.wanted)
            if old is not None and old.cursor is not cursor:
                # The broker remembers that it has told the high watermark, and tells it again only if it changes.
                cursor.high_watermark = max(cursor.high_watermark, old.cursor.high_watermark)
        for cursor in gone:
            at = self._keys.pop(cursor, None)
            # A broker first adds and then forgets: a partition that another cursor has by now must not be named.
            if at is not None and self.asked[at].cursor is cursor:
                left = self.asked.pop(at)
                forgotten[cursor.topic, left.topic_id].append(cursor.partition)
        return Changes(
            [(*topic, partitions) for topic, partitions in wanted.items()],
            [(*topic, numbers) for topic, numbers in forgotten.items()],
        )

    def answered(self, session_id: int) -> None:
        """Go on in the session that the broker named in its answer; 0: it has no room for one."""
        if session_id == 0 or (self._epoch and session_id != self._id):
            self._epoch = 0
        else:
            self._epoch = self._epoch % _LAST_EPOCH + 1
        self._id = session_id

    def failed(self, code: int) -> None:
        """Begin a new session after one of `SESSION_ERRORS`."""
        if code == FETCH_SESSION_ID_NOT_FOUND:
            self._id = 0
        self.restart()
