"""Each rule of a channel by an example; `test_numbers_model.py` lets them all work together."""

from __future__ import annotations

import pytest

from mirrormaker.errors import NumbersBroken
from mirrormaker.model.numbers import MAX_IN_FLIGHT, Channel, LoggedBatch
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.records.batch import SEQUENCES

US, OTHERS = Identity(7, 0), Identity(8, 0)


def channel(sequence: int = 0, offset: int = 0) -> Channel:
    """One that has read the log and found nothing."""
    new = Channel(US, Cut(3, sequence, offset))
    new.resume([])
    return new


def known(sequence: int = 0, offset: int = 0) -> Channel:
    """One whose leader has acknowledged ten records."""
    new = channel(sequence, offset)
    new.number(10)
    new.acknowledged(offset)
    return new


def shown(base_offset: int, sequence: int, count: int, identity: Identity = US) -> LoggedBatch:
    last = (sequence + count - 1) % SEQUENCES
    return LoggedBatch(base_offset, base_offset + count - 1, identity, sequence, last, count)


# -- when to send


def test_nothing_is_sent_before_the_log_has_been_read() -> None:
    new = Channel(US, Cut(0, 0, 0))
    assert not new.may_send(old=False)
    new.resume([])
    assert new.may_send(old=False)


def test_the_first_batch_goes_alone() -> None:
    """A leader that does not know us accepts any number: a second batch could be taken where the first was not."""
    new = channel()
    new.number(10)
    assert not new.may_send(old=False)
    new.acknowledged(0)
    assert new.may_send(old=False)


def test_a_known_identity_may_have_five_batches_under_way() -> None:
    sender = known()
    for _ in range(MAX_IN_FLIGHT):
        assert sender.may_send(old=False)
        sender.number(1)
    assert not sender.may_send(old=False)
    sender.acknowledged(10)
    assert sender.may_send(old=False)


def test_fewer_may_be_asked_for() -> None:
    sender = known()
    sender.number(1)
    assert not sender.may_send(old=False, limit=1)
    assert sender.may_send(old=False, limit=2)


def test_old_records_go_alone_even_when_the_identity_is_known() -> None:
    """The broker may forget us between two of them: it goes by the records' timestamps."""
    sender = known()
    assert sender.may_send(old=True)
    sender.number(1, old=True)
    assert not sender.may_send(old=True)


def test_behind_old_records_even_young_ones_go_alone_until_one_of_them_is_acknowledged() -> None:
    """The broker forgets us by the timestamps of the last batch that it has: a hole could follow an old one."""
    sender = known()
    sender.number(1, old=True)
    assert not sender.may_send(old=False), "the old one may be refused, and this one taken from an unknown producer"
    sender.acknowledged(10)
    assert sender.may_send(old=False)
    sender.number(1)
    assert not sender.may_send(old=False), "the broker may have forgotten us behind the old one"
    sender.acknowledged(11)
    sender.number(1)
    assert sender.may_send(old=False)


def test_after_reading_the_log_again_the_first_batch_goes_alone_again() -> None:
    sender = known()
    sender.stop_until_log_read()
    sender.resume([])
    sender.number(1)
    assert not sender.may_send(old=False)


# -- trouble


def test_trouble_stops_sending() -> None:
    sender = known()
    sender.number(5)
    sender.number(5)
    sender.failed()
    assert sender.must_read_log
    assert sender.in_flight == 1
    assert not sender.may_send(old=False)


def test_a_later_answer_after_an_error_proves_nothing() -> None:
    sender = known()
    before = sender.cut
    sender.number(5)
    sender.number(5)
    sender.failed()
    sender.acknowledged(1000)
    assert sender.cut == before
    assert not sender.may_send(old=False)


def test_a_lost_connection_leaves_nothing_under_way() -> None:
    sender = known()
    sender.number(5)
    sender.number(5)
    sender.abandon()
    assert sender.in_flight == 0
    assert not sender.may_send(old=False)
    assert sender.cut == Cut(3, 10, 10)


def test_the_log_is_not_read_while_answers_are_awaited() -> None:
    sender = known()
    sender.number(5)
    sender.number(5)
    sender.failed()
    with pytest.raises(AssertionError, match="still awaited"):
        sender.resume([])


def test_what_was_not_appended_gets_the_same_numbers_again() -> None:
    sender = known()
    assert sender.number(5) == 10
    assert sender.number(5) == 15
    sender.failed()
    sender.failed()
    assert sender.resume([]) == 0
    assert sender.number(3) == 10


# -- counting


def test_the_cut_moves_with_the_answers() -> None:
    sender = channel(sequence=100, offset=1000)
    sender.number(3)
    assert sender.cut == Cut(3, 100, 1000)
    sender.acknowledged(1007)  # others wrote seven records in between
    assert sender.cut == Cut(3, 103, 1010)


def test_numbers_go_on_at_zero_after_the_largest() -> None:
    sender = channel(sequence=SEQUENCES - 5)
    assert sender.number(10) == SEQUENCES - 5
    sender.acknowledged(0)
    assert sender.cut.sequence == 5
    assert sender.number(1) == 5


def test_a_batch_may_end_at_the_largest_number() -> None:
    sender = channel(sequence=SEQUENCES - 5)
    sender.number(5)
    sender.acknowledged(0)
    assert sender.number(1) == 0


def test_an_answer_at_an_earlier_offset_means_that_someone_else_uses_our_numbers() -> None:
    sender = known(offset=50)
    sender.number(5)
    with pytest.raises(NumbersBroken, match="producer id 7"):
        sender.acknowledged(59)
    assert not sender.may_send(old=False)


def test_an_answer_right_behind_the_last_one_is_as_it_should_be() -> None:
    sender = known(offset=50)
    sender.number(5)
    sender.acknowledged(60)
    assert sender.cut == Cut(3, 15, 65)


# -- reading the log


def test_an_empty_log_holds_nothing_of_ours() -> None:
    assert Channel(US, Cut(0, 20, 5)).resume([]) == 0


def test_the_records_behind_the_cut_are_counted() -> None:
    new = Channel(US, Cut(0, 20, 5))
    assert new.resume([shown(5, 20, 3), shown(8, 23, 4)]) == 7
    assert new.cut == Cut(0, 27, 12)
    assert new.number(1) == 27


def test_other_writers_do_not_count() -> None:
    new = Channel(US, Cut(0, 20, 5))
    log = [shown(5, 0, 9, OTHERS), shown(14, 20, 1), shown(15, 9, 5, OTHERS), shown(20, 21, 1)]
    assert new.resume(log) == 2
    assert new.cut == Cut(0, 22, 21)


def test_the_same_producer_in_another_epoch_is_another_writer() -> None:
    assert Channel(US, Cut(0, 20, 5)).resume([shown(5, 0, 9, Identity(7, 1))]) == 0


def test_a_compacted_target_is_counted_by_its_numbers() -> None:
    """The cleaner keeps a batch's first and last number, whatever becomes of the records in between."""
    new = Channel(US, Cut(0, 20, 5))
    assert new.resume([shown(5, 20, 10)._replace(records=1)]) == 10


def test_on_a_compacted_target_batches_may_be_missing() -> None:
    """The broker took the numbers in order: a later one proves those before it."""
    new = Channel(US, Cut(0, 20, 5))
    assert new.resume([shown(8, 23, 2), shown(90, 25, 1), shown(95, 28, 2)], is_compacted=True) == 10
    assert new.cut == Cut(0, 30, 97)


def test_on_a_compacted_target_numbers_may_jump_across_the_largest_one() -> None:
    new = Channel(US, Cut(0, SEQUENCES - 3, 5))
    assert new.resume([shown(9, 1, 2)], is_compacted=True) == 6


@pytest.mark.parametrize(
    "log",
    [
        [shown(7, 23, 3)],  # three numbers are missing, and there is only room for two records
        [shown(5, 20, 3), shown(100, 20, 3)],  # one is there twice
        [shown(100, 19, 3)],  # from before the cut
    ],
)
def test_on_a_compacted_target_numbers_still_have_to_grow_and_have_room(log: list[LoggedBatch]) -> None:
    new = Channel(US, Cut(0, 20, 5))
    with pytest.raises(NumbersBroken, match=r"producer id 7 at offset \d+ where \d+ comes next"):
        new.resume(log, is_compacted=True)


def test_counting_goes_on_across_the_largest_number() -> None:
    new = Channel(US, Cut(0, SEQUENCES - 3, 5))
    assert new.resume([shown(5, SEQUENCES - 3, 2), shown(7, SEQUENCES - 1, 5)]) == 7
    assert new.cut == Cut(0, 4, 12)


@pytest.mark.parametrize(
    "log",
    [
        [shown(5, 21, 3)],  # the first one is missing
        [shown(5, 20, 3), shown(8, 25, 3)],  # one in the middle is missing
        [shown(5, 20, 3), shown(8, 20, 3)],  # one is there twice
        [shown(5, 15, 5)],  # from before the cut
    ],
)
def test_a_log_that_contradicts_the_numbers_stops_the_partition(log: list[LoggedBatch]) -> None:
    new = Channel(US, Cut(0, 20, 5))
    with pytest.raises(NumbersBroken, match=r"producer id 7 at offset \d+ where \d+ comes next"):
        new.resume(log)
    assert not new.may_send(old=False)


def test_reading_twice_counts_once() -> None:
    new = Channel(US, Cut(0, 20, 5))
    assert new.resume([shown(5, 20, 3)]) == 3
    new.stop_until_log_read()
    assert new.resume([]) == 0
    assert new.cut == Cut(0, 23, 8)
