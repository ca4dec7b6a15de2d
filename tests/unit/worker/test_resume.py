"""Reading the target back, from logs that a test has written."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from mirrormaker.errors import BrokerError, CorruptBatch, LogReplaced, NumbersBroken, RecordsLost
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import Cut, Identity
from mirrormaker.worker.resume import read_back, read_last
from tests.support.scripted_target import ScriptedLog, ScriptedTarget

US, OTHERS = Identity(7, 0), Identity(8, 0)


def log_of(*batches: tuple[Identity, int, int]) -> ScriptedLog:
    """Return a log with batches of (identity, first number, count)."""
    log = ScriptedLog()
    for identity, sequence, count in batches:
        log.append(identity, sequence, count)
    return log


def read(target: ScriptedTarget, cut: Cut, **known: Any) -> tuple[int, Channel]:
    """Read partition 0 of `t` back from a cut; return how many records are there, and the channel."""
    channel = Channel(US, cut)
    present, _ = asyncio.run(asyncio.wait_for(read_back(target, "t", channel, **known), 20))
    return present, channel


def target_of(log: ScriptedLog) -> ScriptedTarget:
    return ScriptedTarget({("t", 0): log})


# -- what is there


def test_records_after_the_cut_are_counted_over_several_answers() -> None:
    log = log_of((US, 0, 5), (US, 5, 3), (OTHERS, 0, 2), (US, 8, 4))
    log.batches_per_answer = 1
    present, channel = read(target_of(log), Cut(0, 5, 5))
    assert (present, channel.cut) == (7, Cut(0, 12, 14))


def test_batches_that_compaction_has_removed_are_proved_by_the_last_one() -> None:
    log = log_of((US, 0, 5))
    log.append(US, 9, 3, gap=4)
    with pytest.raises(NumbersBroken, match="where 5 comes next"):
        read(target_of(log), Cut(0, 5, 5))
    assert read(target_of(log), Cut(0, 5, 5), is_compacted=True)[0] == 7


def test_a_batch_that_does_not_match_its_crc_does_not_count() -> None:
    log = log_of((US, 0, 5))
    damaged = bytearray(log.batches[0])
    struct.pack_into(">i", damaged, 53, 3)  # its base sequence
    log.batches[0] = bytes(damaged)
    with pytest.raises(CorruptBatch, match="CRC"):
        read(target_of(log), Cut(0, 3, 0))


def test_a_damaged_batch_of_others_does_not_matter() -> None:
    log = log_of((OTHERS, 0, 5), (US, 0, 2))
    log.batches[0] = log.batches[0][:-1] + b"?"
    assert read(target_of(log), Cut(0, 0, 0))[0] == 2


def test_an_answer_without_progress_is_an_error() -> None:
    """A broker that returns only batches from before the wanted offset would be asked for ever."""
    target = target_of(log_of((OTHERS, 0, 5), (OTHERS, 5, 5)))
    first = target.logs["t", 0].batches[0]
    target.rewrite = lambda records: first
    with pytest.raises(CorruptBatch):
        read(target, Cut(0, 0, 5))
    assert target.asked["Fetch"] == 3


def test_batches_out_of_order_are_an_error() -> None:
    """A base offset is not part of the CRC: a wrong one would move the scan past records of ours."""
    target = target_of(log_of((OTHERS, 0, 5), (US, 0, 2)))
    target.rewrite = lambda records: b"".join(reversed(target.logs["t", 0].batches))
    with pytest.raises(CorruptBatch, match="offset"):
        read(target, Cut(0, 0, 0))


def test_the_record_before_a_cut_counts_only_if_its_batch_matches_its_crc() -> None:
    log = log_of((US, 0, 5))
    target = target_of(log)
    assert asyncio.run(read_last(target, "t", Cut(0, 5, 5))) is not None
    log.batches[0] = log.batches[0][:-1] + bytes([log.batches[0][-1] ^ 1])
    with pytest.raises(CorruptBatch, match="CRC"):
        asyncio.run(read_last(target, "t", Cut(0, 5, 5)))


# -- a high watermark that does not move


def test_a_high_watermark_that_is_stuck_is_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of((US, 0, 5))
    log.high_watermark = 0
    target = target_of(log)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > 60:
            log.high_watermark = None

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert read(target, Cut(0, 0, 0))[0] == 5
    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert max(pauses) == 1.0
    assert target.asked["ListOffsetsRequest"] < 160, "a minute of waiting"


def test_a_log_that_is_cut_off_while_its_high_watermark_is_awaited_is_read_to_its_new_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unclean election, or a topic that is created again: the high watermark never reaches the old end."""
    log = log_of((US, 0, 5), (US, 5, 3))
    log.high_watermark = 0

    async def sleep(seconds: float) -> None:
        del log.batches[1:]
        log.high_watermark = None

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert read(target_of(log), Cut(0, 0, 0))[0] == 5


# -- a log that ends before the cut


def test_a_target_that_lost_its_tail_says_how_many_records_are_gone() -> None:
    log = log_of((US, 0, 5), (US, 5, 5))
    with pytest.raises(RecordsLost, match=r"LOST 7 records .* ends at offset 10, before 17"):
        read(target_of(log), Cut(0, 17, 17))


def test_the_records_that_are_gone_are_counted_by_our_numbers_not_by_offsets() -> None:
    log = log_of((US, 0, 5), (OTHERS, 0, 2))
    with pytest.raises(RecordsLost, match="LOST 3 records"):
        read(target_of(log), Cut(0, 8, 100))


def test_without_a_number_of_ours_offsets_say_how_many_are_gone_at_most() -> None:
    with pytest.raises(RecordsLost, match="LOST at most 95 records"):
        read(target_of(log_of((OTHERS, 0, 5))), Cut(0, 8, 100), is_same_topic=True)


def test_a_log_that_knows_nothing_of_us_is_a_new_one_if_topics_have_no_ids() -> None:
    """It may hold numbers of ours from the cut on: a batch that was sent by the topic's name."""
    for log in (log_of(), log_of((OTHERS, 0, 5)), log_of((OTHERS, 0, 5), (US, 8, 2))):
        with pytest.raises(LogReplaced):
            read(target_of(log), Cut(0, 8, 100))


def test_only_the_end_of_a_shorter_log_is_read() -> None:
    log = log_of(*((OTHERS, n, 10) for n in range(500)), (US, 0, 5))
    log.batches_per_answer = 10
    target = target_of(log)
    with pytest.raises(RecordsLost):
        read(target, Cut(0, 8, 9000))
    assert target.asked["Fetch"] <= 12


def test_a_leader_that_remembers_a_smaller_number_has_lost_records() -> None:
    """Retention has deleted our batches, and the leader's last number is not the one that it had acknowledged."""
    log = log_of((OTHERS, 0, 5))
    log.start = 20
    log.batches.clear()
    log.producers = {US: 14}
    with pytest.raises(RecordsLost, match="LOST 5 records"):
        read(target_of(log), Cut(0, 20, 10))


def test_a_leader_that_has_moved_does_not_say_which_producers_it_knows() -> None:
    """Retention has deleted all our batches, so only the producer's state tells how many there were."""
    log = log_of()
    log.start = 2000
    log.producers = {US: 29}
    target = target_of(log)
    answer = target._producers

    def refuse(request: Any) -> Any:
        refused = answer(request)
        refused.topics[0].partitions[0].error_code = NOT_LEADER_OR_FOLLOWER
        return refused

    target._producers = refuse  # type: ignore[method-assign]
    with pytest.raises(BrokerError):
        read(target, Cut(0, 20, 1000))
