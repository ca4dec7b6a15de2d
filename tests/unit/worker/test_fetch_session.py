"""Fetch sessions: a request names what has changed, and a session that is lost begins anew."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.wire.protocol.fetch import PartitionToFetch
from mirrormaker.worker.fetch_session import SESSION_ERRORS, Asked, FetchSession

ID = b"i" * 16


class Reader:
    """As much of a cursor as a session needs."""

    def __init__(self, partition: int, high_watermark: int) -> None:
        self.topic, self.partition, self.high_watermark = "t", partition, high_watermark


def reader(partition: int, high_watermark: int = -1) -> Any:
    return Reader(partition, high_watermark)


def asked(cursor: Any, offset: int = 0, topic_id: bytes = ID) -> Asked:
    return Asked(cursor, 0, topic_id, PartitionToFetch(cursor.partition, offset))


def begun(*cursors: Any) -> FetchSession:
    """Return a session that the broker has opened for these cursors."""
    session = FetchSession()
    session.change([asked(cursor) for cursor in cursors], [])
    session.answered(77)
    return session


def test_a_session_begins_with_all_partitions_and_goes_on_with_changes() -> None:
    one, two, three = reader(1), reader(2), reader(3)
    session = FetchSession()
    assert session.is_new and session.header == (0, 0)
    changes = session.change([asked(one), asked(two)], [])
    assert changes == ([("t", ID, [PartitionToFetch(1, 0), PartitionToFetch(2, 0)])], [])
    session.answered(77)
    assert not session.is_new and session.header == (77, 1)
    assert session.change([], []) == ([], [])
    session.answered(77)
    assert session.header == (77, 2)
    changes = session.change([asked(one, 5), asked(two), asked(three)], [])
    assert changes == ([("t", ID, [PartitionToFetch(1, 5), PartitionToFetch(3, 0)])], [])
    assert set(session.asked) == {("t", 1), ("t", 2), ("t", 3)}


def test_a_partition_that_is_gone_is_forgotten_once() -> None:
    one, two = reader(1), reader(2)
    session = begun(one, two)
    assert session.change([], [one, reader(9)]) == ([], [("t", ID, [1])])
    session.answered(77)
    assert session.change([], [one]) == ([], [])
    assert set(session.asked) == {("t", 2)}


def test_a_partition_that_another_cursor_takes_over_stays_in_the_session() -> None:
    """A broker adds first and then forgets, and does not repeat a high watermark that it has told."""
    before, after = reader(1, high_watermark=42), reader(1)
    session = begun(before)
    assert session.change([asked(after, 7)], [before]) == ([("t", ID, [PartitionToFetch(1, 7)])], [])
    assert session.asked["t", 1].cursor is after
    assert after.high_watermark == 42
    session.answered(77)
    assert session.change([], [after]).forgotten == [("t", ID, [1])]


def test_topics_by_id_and_by_name_are_not_mixed() -> None:
    session = begun(reader(1))
    session.use_topic_ids(False)
    assert not session.is_new
    session.use_topic_ids(True)
    assert session.header == (77, 0), "the broker closes the old session"
    session.change([asked(reader(1))], [])
    assert set(session.asked) == {(ID, 1)}


@pytest.mark.parametrize("code", sorted(SESSION_ERRORS))
def test_a_session_that_is_lost_begins_anew_with_all_partitions(code: int) -> None:
    one = reader(1)
    session = begun(one)
    session.failed(code)
    assert session.header == (0 if code == 70 else 77, 0)
    assert session.change([asked(one)], [reader(2)]) == ([("t", ID, [PartitionToFetch(1, 0)])], [])


def test_without_room_for_a_session_each_request_names_all_partitions() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.header == (0, 0)
        assert session.change([asked(reader(1))], []).wanted
        session.answered(0)


def test_a_broker_that_ends_a_session_or_confuses_it_gets_all_partitions_again() -> None:
    for other in (0, 78):
        session = begun(reader(1))
        session.change([], [])
        session.answered(other)
        assert session.header == (other, 0)


def test_the_epoch_begins_again_at_one() -> None:
    session = begun(reader(1))
    session._epoch = (1 << 31) - 1
    session.answered(77)
    assert session.header == (77, 1)
