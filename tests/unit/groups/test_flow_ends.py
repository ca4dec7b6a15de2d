"""How far a flow is, from the ledger, the map and the logs."""

from __future__ import annotations

import asyncio
from typing import Any

from mirrormaker.groups.flow_ends import Found, PartitionEnd, SourceSide, Spot, ends_of, look_at_ends, maps_of, spots_of
from mirrormaker.model.group_sync import Log
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.batches import NOW, Record, move_batch, times, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 0)
US = Identity(7, 19789)


def at(offset: int, identity: Identity = US) -> Position:
    """Return a position of a partition whose target had 50 records before."""
    return Position(*KEY, offset, -1, "", identity, "there", "", 1, (Cut(0, offset, 50 + offset),))


def mapped(end: int) -> PartitionMap:
    """Return the map of a partition that is mirrored up to an offset, as it is stored."""
    known = PartitionMap()
    known.begin(at(0))
    known.stored(known.take())
    known.begin(at(end))
    known.stored(known.take())
    return PartitionMap(known.blocks)


class StoredTopic:
    """A map's topic with one partition."""

    def __init__(self, known: PartitionMap) -> None:
        self.known = known

    def read(self, _key: object) -> PartitionMap:
        return self.known


def maps(known: PartitionMap, ledger: dict[tuple[str, int], Position]) -> PartitionMap:
    topic: Any = StoredTopic(known)
    return maps_of(topic, [KEY], ledger)[KEY]


def test_the_ledger_or_the_map_counts_whichever_is_further() -> None:
    side = SourceSide({KEY: 100}, {}, {KEY: at(90)})
    assert side.missing(KEY, mapped(80)) == 10
    assert side.missing(KEY, mapped(95)) == 5
    assert side.missing(("orders", 1), mapped(95)) is None, "the source did not tell"


def test_a_partition_that_nobody_has_begun_is_missing_from_its_first_record_on() -> None:
    side = SourceSide({KEY: 100}, {KEY: 30}, {})
    assert side.missing(KEY, PartitionMap()) == 70


def test_a_stored_map_becomes_as_long_as_the_ledger_says() -> None:
    assert maps(mapped(80), {}).end == 80
    known = maps(mapped(80), {KEY: at(90)})
    assert known.end == 90
    assert known.translate(("", 0), 85).offset == 135


def test_a_ledger_that_is_older_than_the_map_changes_nothing() -> None:
    known = maps(mapped(80), {KEY: at(70)})
    assert (known.end, known.translate(("", 0), 80).offset) == (80, 130)


def test_the_spot_after_the_last_record_is_where_the_target_is_read() -> None:
    (spot,) = spots_of({KEY: mapped(80)})
    assert (spot.target, spot.offset, spot.identity) == (KEY, 130, US)


def test_both_sides_are_put_together() -> None:
    known = mapped(80)
    found = {KEY: [Found(5000, 3), Found(4000, 2, 1, "slow")]}
    side = SourceSide({KEY: 100}, {}, {}, {KEY: "deaf"})
    assert ends_of({KEY: known}, side, found) == [PartitionEnd(*KEY, 80, 20, 1, 5, 5000, "slow; deaf")]
    assert ends_of({KEY: known}, None, {}) == [PartitionEnd(*KEY, 80, None)]


def test_records_that_the_map_does_not_know_are_counted_in_spite_of_a_damaged_answer() -> None:
    cluster = full_target()
    assert look(cluster) == Found(NOW + 29, 10)
    fetches = cluster.fetches
    cluster.damage = times(1, move_batch(1, 500))
    assert look(cluster) == Found(NOW + 29, 10)
    assert cluster.fetches == 2 * fetches + 1


def test_a_log_that_stays_damaged_is_told_and_ends_nothing_else() -> None:
    cluster = full_target()
    cluster.damage = move_batch(0, 500)
    assert "orders-0 cannot be read on the target" in look(cluster).trouble
    assert cluster.fetches == 3


def full_target() -> ScriptedLogs:
    """Return a target with three batches of ours, the last of which the map does not know."""
    rows = [Record(NOW + number, None, b"value") for number in range(30)]
    return ScriptedLogs(
        {
            KEY: [
                write_batch(rows[at : at + 10], base_offset=at, producer_id=7, producer_epoch=19789)
                for at in (0, 10, 20)
            ]
        }
    )


def look(target: ScriptedLogs) -> Found:
    found = asyncio.run(look_at_ends(target, [Spot(KEY, KEY, 20, US)], {KEY: Log(0, 30)}))
    (row,) = found[KEY]
    return row
