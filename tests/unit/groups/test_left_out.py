"""Topics of a group that are not mirrored."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.groups.left_out import also_reads, left_out, not_mirrored
from mirrormaker.groups.readiness import ReadinessQuestion
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets


def _offsets(**topics: int) -> GroupOffsets:
    return GroupOffsets({name: TopicOffsets.of({0: CommittedRow(offset, "")}) for name, offset in topics.items()})


def test_only_topics_with_an_offset_that_nobody_mirrors_are_named() -> None:
    found = left_out(
        {
            "billing": _offsets(orders=5, sales=0, audit=7, never=-1),
            "shipping": _offsets(orders=5),
            "secret": GroupOffsets({}, 30),
            "away": OSError("no answer"),
        },
        {"orders"}.__contains__,
    )
    assert found == {"billing": ("audit", "sales")}


def test_the_line_names_five_topics_at_most() -> None:
    assert also_reads("billing", ("audit",), "not mirrored") == "billing also reads audit, which is not mirrored"
    assert also_reads("billing", list("gfedcba"), "not mirrored") == (
        "billing also reads a, b, c, d, e and 2 more, which are not mirrored"
    )


@pytest.mark.parametrize(
    ("is_mirrored", "expected"),
    [
        pytest.param({"orders"}.__contains__, ("audit",), id="the whitelist leaves it out, and nobody has mirrored it"),
        pytest.param(None, ("audit",), id="no whitelist: the map tells what is mirrored"),
        pytest.param({"orders", "audit"}.__contains__, (), id="it was chosen: it has a row of its own"),
        pytest.param({"audit"}.__contains__, (), id="others are mirrored, but nobody asked for them"),
    ],
)
def test_topics_that_no_mirror_brings_are_named(is_mirrored: Any, expected: tuple[str, ...]) -> None:
    question = ReadinessQuestion(lambda _: True, is_mirrored)
    committed = {"billing": _offsets(orders=5, audit=5)}
    assert not_mirrored(committed, [("orders", 0)], question).get("billing", ()) == expected
