"""What a stream notes for the offset map while records go through a message handler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirrormaker.model.offset_runs import RunList, Translated
from mirrormaker.model.position import Cut
from mirrormaker.worker.handler import Handler, Record
from mirrormaker.worker.run_notes import RunNotes
from tests.support.worker_stage import Play, Stage, batches, until


def test_every_run_that_a_filtering_handler_leaves_is_noted(play: Play) -> None:
    """A handler leaves records in the partition of the same number, so they do not spread as they do by key."""

    def every_second(record: Record) -> list[Record]:
        return [record] if record.offset % 2 else []

    async def scene(stage: Stage) -> None:
        stage.stream.handler = Handler(every_second)
        stage.stream.work = replace(stage.stream.work, keeps_offset_map=True)
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        stage.fetched(cursor, batches(40))
        (outlet,) = cursor.outlets
        await until(lambda: bool(outlet.sent))
        stage.wires[1].answer(base_offset=1000)
        await until(lambda: not outlet.sent)
        assert outlet.run_notes is not None
        found = [(run.source, run.target, run.length) for run in outlet.run_notes.collect()]
        assert found == [(101 + 2 * number, 1000 + number, 1) for number in range(20)]

    play(scene)


@pytest.mark.parametrize("is_spread", [True, False])
def test_a_range_without_places_is_never_longer_than_the_time_between_two_reports(is_spread: bool) -> None:
    notes, at, kept = RunNotes(is_spread=is_spread), 0, set[int]()
    for _ in range(50):
        first = at
        for _ in range(40):  # batches of 100 records, every second one of which was removed by compaction
            notes.note_offsets(np.arange(2 * at, 2 * at + 200, 2), at, at)
            at += 100
        places = {run.target for run in notes.collect()}
        assert first in places, "the first record after a report has a place"
        kept |= places
    assert len(kept) <= 16_384 + 16 * 50, "what is kept has a bound"


def test_a_range_of_a_shared_target_partition_goes_from_one_burst_to_the_next_and_no_further() -> None:
    """Each burst has every third record of 30. Other source partitions bring 990 records before the next one."""
    notes, runs = RunNotes(is_spread=True), RunList.at(Cut(0, 0, 0))
    for burst in range(60):  # more than may be noted at once
        notes.note_offsets(np.arange(100 * burst, 100 * burst + 30, 3), 1000 * burst, 10 * burst)
        for run in notes.collect():
            runs.add(run)
    for burst in range(59):
        first, following = 1000 * burst, 1000 * burst + 1000
        told = [runs.find(100 * burst + offset, 6000) for offset in range(100)]
        assert told == [Translated(first, first)] + [Translated(first + 1, following)] * 99
