"""Cases of the offset map in which a reader would go on too late, and miss records."""

from __future__ import annotations

import numpy as np

from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import BlockKey, pack_block, unpack_block
from mirrormaker.model.offset_runs import NotedRun, RunList, Translated
from mirrormaker.model.position import Cut, Identity, Place, Position
from mirrormaker.wire.records.batch import SEQUENCES
from mirrormaker.worker.run_notes import RunNotes, SkippedPlaces

HERE = ("", 0)


def position(offset: int, *cuts: Cut, producer_id: int = 1, target_topic_id: str = "") -> Position:
    return Position("orders", 0, offset, 0, "", Identity(producer_id, 0), "", target_topic_id, 1, cuts)


def mirrored(target_topic_id: str = "") -> PartitionMap:
    """The map of source offsets 0 to 99, which are target offsets 0 to 99."""
    found = PartitionMap()
    found.begin(position(0, Cut(0, 0, 0), target_topic_id=target_topic_id))
    found.note(position(100, Cut(0, 100, 100), target_topic_id=target_topic_id), [(HERE, [NotedRun(0, 0, 100, 0)])])
    return found


def test_places_in_a_target_log_that_was_replaced_are_forgotten() -> None:
    old, new = "aa" * 16, "bb" * 16
    found = mirrored(old)
    found.begin(position(100, Cut(0, 0, 30), producer_id=2, target_topic_id=new))
    assert found.first == 100, "nothing before is known: a reader starts at the beginning of the log"
    (block,) = found.blocks
    again = unpack_block(BlockKey("c", "orders", 0, block.start), pack_block(block, 0))
    assert again is not None and again.target_topic_id == new and pack_block(again, 0) == pack_block(block, 0)


def test_places_that_a_target_log_has_lost_are_forgotten() -> None:
    found = mirrored()
    found.begin(position(100, Cut(0, 0, 90), producer_id=2))
    assert found.translate(HERE, 50).offset == 50
    assert (found.translate(HERE, 95).offset, found.translate(HERE, 95).latest) == (90, 90)
    assert found.is_due
    found.note(position(110, Cut(0, 10, 100), producer_id=2), [(HERE, [NotedRun(100, 90, 10, 0)])])
    assert found.translate(HERE, 95).offset == 90
    assert found.translate(HERE, 105).offset == 95


def test_a_hole_before_a_new_target_partition_is_not_passed_over() -> None:
    other = ("", 1)
    found = mirrored()
    found.begin(position(300, Cut(0, 0, 250), Cut(1, 0, 150), producer_id=2))
    # Source offsets 100 to 299 were mirrored without a map, also to the other partition.
    told = found.translate(other, 120)
    assert (told.offset, told.latest) == (0, 150)


def test_several_records_made_of_one_count_once() -> None:
    runs = RunList(0, 0, 0, 0)
    assert runs.add(NotedRun(5, 10, 1, 0))
    assert not runs.add(NotedRun(5, 11, 1, 1)), "the same source offset again"
    runs.add(NotedRun(5, 12, 3, 2))
    assert [run.source for run in runs.runs] == [5, 6]
    notes = RunNotes(is_spread=False)
    notes.note(5, 10, 1, 0)
    notes.note(5, 11, 1, 1)
    notes.note(5, 12, 3, 2)
    assert [(run.source, run.target, run.length) for run in notes.collect()] == [(5, 10, 1), (6, 13, 2)]


def test_sequence_numbers_of_runs_begin_again_after_the_last_one() -> None:
    assert NotedRun(0, 0, 10, SEQUENCES - 3).without_first(5).sequence == 2
    notes = RunNotes(is_spread=False)
    notes.note_offsets(np.array([1, 2, 9, 10]), 0, SEQUENCES - 1)
    assert [run.sequence for run in notes.collect()] == [SEQUENCES - 1, 1]


def test_skipped_records_are_noted_only_if_all_of_them_were_the_ones_in_the_log() -> None:
    places = SkippedPlaces(Cut(0, 0, 0))
    places.found([LoggedBatch(100, 109, Identity(1, 0), 0, 9, 10)])
    places.skip(np.arange(50, 54))
    places.skip(np.arange(54, 60))
    assert places.confirmed() == [NotedRun(50, 100, 10, 0)]
    assert places.confirmed() == []


def late(first_target: int) -> PartitionMap:
    """A map that begins at source offset 5000, which is this target offset."""
    found = PartitionMap()
    found.begin(position(5000, Cut(0, 70, first_target)))
    after = position(5010, Cut(0, 80, first_target + 10))
    found.note(after, [(HERE, [NotedRun(5000, first_target, 10, 70)])])
    return found


def test_records_from_before_the_map_may_be_anywhere_before_what_it_knows() -> None:
    found = late(5007)
    assert found.translate(HERE, 100) == Translated(0, 5007)
    assert found.translate(HERE, 5000) == Translated(5007, 5007)
    assert found.translate_back(HERE, 50) == Translated(0, 5000)
    assert found.translate_back(HERE, 5007) == Translated(5000, 5000)


def test_nothing_was_mirrored_before_a_map_that_begins_with_the_log_of_either_side() -> None:
    # The source's retention went on before the first start of the mirror.
    assert late(0).translate(HERE, 100) == Translated(0, 0)
    # Another writer's records come first on the target.
    found = PartitionMap()
    found.begin(position(0, Cut(0, 0, 50)))
    found.note(position(10, Cut(0, 10, 60)), [(HERE, [NotedRun(0, 50, 10, 0)])])
    assert found.translate_back(HERE, 20) == Translated(0, 0)


def test_records_ahead_of_a_map_that_begins_with_them_are_not_taken_for_later_ones() -> None:
    found = PartitionMap()
    found.begin(position(5000, Cut(0, 0, 5017, ahead=3), producer_id=2))
    found.note(position(5010, Cut(0, 7, 5024), producer_id=2), [(HERE, [NotedRun(5003, 5017, 7, 0)])])
    assert found.translate_back(HERE, 50) == Translated(0, 5003)


def test_a_hole_before_a_new_target_partition_counts_on_the_way_back() -> None:
    other = ("", 1)
    found = mirrored()
    found.begin(position(300, Cut(0, 0, 250), Cut(1, 0, 150), producer_id=2))
    found.note(position(310, Cut(0, 0, 250), Cut(1, 10, 160), producer_id=2), [(other, [NotedRun(300, 150, 10, 0)])])
    assert found.translate_back(other, 120) == Translated(100, 300)
    assert found.translate_back(other, 155) == Translated(305, 305)


def in_blocks(*places: Place) -> PartitionMap:
    """A map of 100 source offsets for each block; block n has target offsets 100n to 100n + 99 of the n-th of these places."""
    found, ends = PartitionMap(), dict.fromkeys(places, 0)
    for number, place in enumerate(places):
        cuts = [Cut(partition, 0, offset, topic) for (topic, partition), offset in ends.items()]
        found.begin(position(100 * number, *cuts, producer_id=number + 1))
        run = NotedRun(100 * number, 100 * number, 100, 0)
        ends[place] = 100 * number + 100
        cuts = [Cut(at[1], 100 * (at == place), offset, at[0]) for at, offset in ends.items()]
        found.note(position(100 * number + 100, *cuts, producer_id=number + 1), [(place, [run])])
    found.stored(found.take())
    assert not found.is_due
    return found


def test_blocks_whose_records_retention_has_deleted_are_deleted_too() -> None:
    found = in_blocks(HERE, HERE, HERE, HERE)
    found.forget_before({HERE: 99})
    assert found.first == 0 and not found.is_due, "the last record of the first block is still there"
    found.forget_before({HERE: 100})
    assert found.first == 100 and found.take().gone == {0}
    found.forget_before({HERE: 399})
    assert found.first == 300 and found.take().gone == {0, 100, 200}
    assert found.translate(HERE, 50) == Translated(0, 300), "an offset from before the map"
    assert found.translate(HERE, 350) == Translated(350, 350)
    assert found.translate_back(HERE, 350) == Translated(350, 350)
    found.stored(found.take())
    assert not found.is_due, "nothing is deleted twice"


def test_the_last_block_stays_though_retention_has_deleted_all_records() -> None:
    found = in_blocks(HERE, HERE)
    found.forget_before({HERE: 1000})
    assert (found.first, found.end, len(found.blocks)) == (100, 200, 1)
    assert found.take().gone == {0}


def test_a_block_stays_as_long_as_one_target_partition_has_its_records() -> None:
    other = ("", 1)
    found = in_blocks(HERE, other, HERE)
    # The second block has records of the other partition alone, but it says how far the first one was at its end.
    found.forget_before({HERE: 1000, other: 150})
    assert found.first == 100
    found.forget_before({HERE: 1000, other: 200})
    assert found.first == 200


def test_a_block_stays_if_the_start_of_a_log_is_not_known() -> None:
    found = in_blocks(HERE, HERE)
    found.forget_before({})
    assert found.first == 0 and not found.is_due
