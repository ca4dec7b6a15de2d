"""Positions: how they advance, what differs between two of them, and how they are written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import BadMessage
from mirrormaker.model.position import Cut, Identity, Position

numbers = st.integers(0, 2**60)
texts = st.text(max_size=5)
cuts = st.builds(Cut, st.integers(0, 3), numbers, numbers, st.sampled_from(["", "other"]), st.integers(0, 9))
cut_lists = st.lists(cuts, max_size=6, unique_by=lambda cut: cut.place).map(tuple)
positions = st.builds(
    Position, texts, numbers, numbers, st.integers(-1, 9), texts, st.builds(Identity, st.integers(-1, 9), st.integers(-1, 9)),
    texts, texts, numbers, cut_lists, numbers, st.booleans(),
)  # fmt: skip


@given(positions, numbers, st.integers(-1, 9), cut_lists)
def test_what_differs_brings_an_earlier_position_up_to_date(
    before: Position, offset: int, epoch: int, moved: tuple[Cut, ...]
) -> None:
    now = before.advanced(offset, epoch, moved)
    assert replace(now, offset=before.offset, leader_epoch=before.leader_epoch, cuts=before.cuts) == before
    assert all(cut in now.cuts for cut in moved)
    changes = now.cuts_since(before)
    assert set(changes) == set(moved) - set(before.cuts)
    assert before.advanced(offset, epoch, changes) == now


@given(positions)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


def test_a_cut_of_the_usual_kind_is_three_numbers() -> None:
    assert Cut(3, 70, 90).to_json() == [3, 70, 90]
    assert Cut(3, 70, 90, "other").to_json() == [3, 70, 90, "other", 0]


@given(positions, st.data())
def test_anything_else_is_no_position(position: Position, data: st.DataObject) -> None:
    row = position.to_json()
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.sampled_from([None, 1.5, {}, [[1, 2]], [["a", 1, 2]]]))
    others: list[Any] = [row, row[:-1], None, {}, "position"]
    for bad in others:
        with pytest.raises(BadMessage):
            Position.from_json(bad)
