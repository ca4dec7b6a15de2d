"""Which batches of a fetched log are data, with transactions of several producers in it."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.transactions import flag_data
from tests.support.batches import ABORT, COMMIT, Record, Written, emptied, marker, write_batch
from tests.support.memory import peak


def data(offset: int, producer: int, *, transactional: bool = True, count: int = 1) -> Written:
    return write_batch(
        [Record(0, b"key", b"value")] * count,
        base_offset=offset,
        transactional=transactional,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )


def mirrored(log: list[Written], aborted: list[tuple[int, int]]) -> list[int]:
    """The offsets of the batches that count as data."""
    batches = [Batch(memoryview(b.data)) for b in log]
    return [batch.base_offset for batch, is_data in flag_data(batches, aborted) if is_data]


def test_without_transactions_everything_is_data() -> None:
    assert mirrored([data(0, 1, transactional=False), data(1, -1, transactional=False)], []) == [0, 1]


def test_markers_are_never_data() -> None:
    assert mirrored([data(0, 1), marker(COMMIT, 1, 1), data(2, 1), marker(ABORT, 1, 3)], []) == [0, 2]


def test_a_batch_that_compaction_emptied_is_not_data() -> None:
    log = [data(0, 1, transactional=False), emptied(data(1, 1, transactional=False, count=3)), data(4, 1)]
    assert mirrored(log, []) == [0, 4]


def test_an_aborted_transaction_ends_at_its_marker() -> None:
    log = [data(0, 1), data(1, 1), marker(ABORT, 1, 2), data(3, 1), marker(COMMIT, 1, 4)]
    assert mirrored(log, [(1, 0)]) == [3]


def test_an_abort_concerns_its_own_producer_only() -> None:
    log = [data(0, 1), data(1, 2), marker(COMMIT, 2, 2), data(3, 2), marker(ABORT, 1, 4), marker(COMMIT, 2, 5)]
    assert mirrored(log, [(1, 0)]) == [1, 3]


def test_batches_outside_of_transactions_survive_an_abort_of_their_producer() -> None:
    assert mirrored([data(0, 1), data(1, 1, transactional=False), marker(ABORT, 1, 2)], [(1, 0)]) == [1]


def test_what_came_before_the_aborted_transaction_is_data() -> None:
    log = [data(0, 1), marker(COMMIT, 1, 1), data(2, 1), marker(ABORT, 1, 3), data(4, 1), marker(COMMIT, 1, 5)]
    assert mirrored(log, [(1, 2)]) == [0, 4]


def test_a_fetch_may_start_inside_an_aborted_transaction() -> None:
    assert mirrored([data(7, 1), marker(ABORT, 1, 8), data(9, 1)], [(1, 3)]) == [9]


def test_an_aborted_transaction_may_go_on_after_the_fetch() -> None:
    assert mirrored([data(0, 1), data(1, 2), data(2, 1)], [(1, 0)]) == [1]


def test_the_list_of_aborted_transactions_need_not_be_sorted() -> None:
    log = [data(0, 1), marker(ABORT, 1, 1), data(2, 2), marker(ABORT, 2, 3), data(4, 1), marker(ABORT, 1, 5)]
    assert mirrored(log, [(1, 4), (2, 2), (1, 0)]) == []


class Transaction(NamedTuple):
    producer: int
    first: int
    last: int  # the offset of its marker


@given(st.data())
def test_exactly_the_committed_records_are_data_wherever_the_fetch_starts_and_ends(draw: st.DataObject) -> None:
    """A random log of several producers, fetched in part, with the aborted transactions that a broker would list."""
    log: list[Written] = []
    begun: dict[int, list[int]] = {}  # producer -> offsets of its open transaction
    wanted: set[int] = set()
    aborted: list[Transaction] = []
    for what in draw.draw(st.lists(st.sampled_from(["plain", "send", "send", "send", "commit", "abort"]), max_size=25)):
        offset, producer = len(log), draw.draw(st.integers(1, 3))
        if what == "plain":
            log.append(data(offset, producer, transactional=False))
            wanted.add(offset)
        elif what == "send":
            log.append(data(offset, producer))
            begun.setdefault(producer, []).append(offset)
        elif producer in begun:
            offsets = begun.pop(producer)
            log.append(marker(COMMIT if what == "commit" else ABORT, producer, offset))
            if what == "commit":
                wanted.update(offsets)
            else:
                aborted.append(Transaction(producer, offsets[0], offset))
    stable = min((offsets[0] for offsets in begun.values()), default=len(log))
    start = draw.draw(st.integers(0, stable))
    end = draw.draw(st.integers(start, stable))
    listed = [(t.producer, t.first) for t in aborted if t.last >= start and t.first < end]
    listed = draw.draw(st.permutations(listed))
    assert mirrored(log[start:end], listed) == sorted(wanted & set(range(start, end)))


@pytest.mark.parametrize("kept", [61, 62, 64])
def test_a_marker_that_is_cut_short_is_refused(kept: int) -> None:
    cut = bytearray(marker(ABORT, 1, 1).data[:kept])
    struct.pack_into(">i", cut, 8, kept - 12)
    with pytest.raises(CorruptBatch, match="control batch at offset 1"):
        list(flag_data([Batch(memoryview(data(0, 1).data)), Batch(memoryview(cut))], [(1, 0)]))


def test_countless_aborted_transactions_of_other_producers_take_no_memory() -> None:
    log = [data(0, 1), data(1, 2), marker(ABORT, 1, 2), data(3, 1)]
    batches = [Batch(memoryview(b.data)) for b in log]
    others = np.stack([np.arange(3, 200_003), np.zeros(200_000, np.int64)], axis=1)
    aborted = np.concatenate([others, [(1, 0)], others])
    found: list[bool] = []

    def run() -> None:
        found[:] = [is_data for _, is_data in flag_data(batches, aborted)]

    assert peak(run) < aborted.nbytes
    assert found == [False, True, False, True]


@given(st.data())
def test_a_list_of_any_length_gives_the_same_as_one_transaction_after_the_other(draw: st.DataObject) -> None:
    """Compare with a plain reading of Kafka's rule."""
    producers = st.integers(1, 3)
    kinds = draw.draw(st.lists(st.tuples(st.sampled_from(["data", "abort", "commit"]), producers), max_size=12))
    log = [
        data(offset, producer) if kind == "data" else marker(ABORT if kind == "abort" else COMMIT, producer, offset)
        for offset, (kind, producer) in enumerate(kinds)
    ]
    aborted = draw.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 12)), max_size=20))
    wanted = []
    for offset, (kind, producer) in enumerate(kinds):
        begins = [first for other, first in aborted if other == producer and first <= offset]
        ends = [n for n in range(offset) if kinds[n] == ("abort", producer)]
        is_aborted = any(not any(first <= end for end in ends) for first in begins)
        if kind == "data" and not is_aborted:
            wanted.append(offset)
    assert mirrored(log, aborted) == wanted
