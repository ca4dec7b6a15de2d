"""Reading a range of a log: every record once, and a bounded number of requests whatever the answers say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrormaker.errors import ClusterError
from mirrormaker.verification import log_reader
from mirrormaker.verification.log_reader import LogReader
from mirrormaker.wire.client.cluster import Endpoint
from tests.support.batches import Damage, flip_last_bit, move_batch, numbered, times, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 0)
# Ten batches of ten records, of which an answer has three.
LOG = [write_batch(numbered(10, 100), base_offset=at) for at in range(0, 100, 10)]
FETCHES = 4


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedLogs]:
    scripted = ScriptedLogs({KEY: LOG})
    monkeypatch.setattr(log_reader, "Cluster", lambda _: scripted)
    monkeypatch.setattr(log_reader, "_FETCH_BYTES", 3 * len(LOG[0].data))
    monkeypatch.setattr(log_reader, "_PATIENCE", 0.1)
    monkeypatch.setattr(log_reader, "_PAUSE", 0.02)
    yield scripted
    assert scripted.fetches <= 50


def read(start: int = 0, stop: int = 100, *, read_committed: bool = False) -> list[int]:
    """Return the offsets that were read."""
    with LogReader(Endpoint((("there", 9092),)), read_committed) as log:
        return [offset for part in log.read(*KEY, start, stop) for offset in part.records.offsets.tolist()]


def fused(damage: Damage) -> Damage:
    """Return damage that ends a test whose reader would ask for ever."""
    left = iter(range(50))

    def some(records: bytearray) -> None:
        assert next(left, None) is not None, "no end of requests"
        damage(records)

    return some


def test_a_range_begins_and_ends_inside_of_batches(cluster: ScriptedLogs) -> None:
    assert read(13, 87) == list(range(13, 87))
    assert cluster.fetches == 3


@pytest.mark.parametrize("offset", [0, 5, -10, 500])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_base_offset_is_fetched_again(cluster: ScriptedLogs, number: int, offset: int) -> None:
    cluster.damage = fused(times(1, move_batch(number, offset)))
    assert read(30) == list(range(30, 100))
    # Three without the damage. Of a last batch beyond the high watermark, those before it count.
    assert cluster.fetches == (3 if (number, offset) == (2, 500) else 4)


@pytest.mark.parametrize("offset", [0, 10, -5])
def test_batches_from_before_the_offset_are_not_asked_for_without_end(cluster: ScriptedLogs, offset: int) -> None:
    """Each answer would end where the last one did, or before."""
    log = LOG[0].data

    def older(records: bytearray) -> None:
        records[:] = log
        move_batch(0, offset)(records)

    cluster.damage = fused(older)
    with pytest.raises(ClusterError, match="orders-0"):
        read(50)
    assert cluster.fetches == 3


def test_answers_that_go_back_bring_no_record_twice(cluster: ScriptedLogs) -> None:
    seen: list[int] = []
    cluster.damage = fused(move_batch(2, 0))
    with pytest.raises(ClusterError), LogReader(Endpoint((("there", 9092),)), False) as log:
        for part in log.read(*KEY, 0, 100):
            seen += part.records.offsets.tolist()
    assert seen == []
    assert cluster.fetches == 3


def test_records_that_do_not_match_their_crc_are_fetched_again(cluster: ScriptedLogs) -> None:
    cluster.damage = times(2, flip_last_bit)
    assert read() == list(range(100))
    assert cluster.fetches == FETCHES + 2
    cluster.damage = fused(flip_last_bit)
    with pytest.raises(ClusterError, match="CRC"):
        read()
    assert cluster.fetches == FETCHES + 2 + 3


def test_batches_beyond_the_high_watermark_are_fetched_again(cluster: ScriptedLogs) -> None:
    """A broker reads its high watermark a moment before the records."""
    cluster.fetched_high_watermarks = [25, 20]
    assert read() == list(range(100))
    # Up to 20, then nothing below 20, then up to 50, 80 and 100.
    assert cluster.fetches == 5


def test_a_broker_without_records_is_asked_with_pauses_and_not_for_ever(cluster: ScriptedLogs) -> None:
    cluster.damage = fused(lambda records: records.clear())
    with pytest.raises(ClusterError, match="no records"):
        read()
    assert 2 <= cluster.fetches <= 8


def test_an_outage_is_waited_for(cluster: ScriptedLogs) -> None:
    cluster.outages = 2
    assert read() == list(range(100))
    assert cluster.fetches == FETCHES
