"""The verdict as people and programs read it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from mirrormaker.verification.verdict import TopicResult, Verdict


def test_exit_codes_say_what_was_found() -> None:
    same = TopicResult("a", 1, 1, {"same": 5})
    gone = TopicResult("b", 1, 1, {"deleted_on_source": 5})
    empty = TopicResult("c", 1, 1, {}, had_records=False)
    different = TopicResult("d", 1, 1, {"same": 5, "missing": 1})
    verdicts = [(same,), (same, gone), (gone,), (empty,), (different, gone), ()]
    assert [Verdict(topics).exit_code for topics in verdicts] == [0, 0, 2, 0, 1, 2]
    assert [Verdict(topics).is_same for topics in verdicts] == [True, True, False, True, False, False]
    assert Verdict((different,)).line == "different: 1 missing (1 topic, 5 equal records)"
    assert Verdict((gone,)).line == "could not tell: there is nothing that both sides have"


def test_the_table_has_the_columns_that_are_needed() -> None:
    lines = Verdict((TopicResult("orders", 8, 3, {"same": 12_000, "compacted": 7}),)).table()
    assert lines == ["topic   partitions    same  compacted away", "orders      8 -> 3  12,000               7"]


_DIFFERENT = Verdict(
    (
        TopicResult(
            "a", 2, 1, {"same": 5, "out_of_order": 2, "missing": 1}, ("a-0: missing: source offset 3",), ("why",)
        ),
        TopicResult("b", 1, 1, {"same": 4}),
    ),
    seconds=1.26,
    notes=("for all topics",),
)


def test_the_text_is_the_line_the_table_the_differences_and_the_notes() -> None:
    assert _DIFFERENT.text().splitlines() == [
        "different: 1 missing, 2 out of order (2 topics, 7 equal records)",
        "topic  partitions  same  missing  out of order",
        "a          2 -> 1     3        1             2",
        "b               1     4        0             0",
        "  a-0: missing: source offset 3",
        "note: for all topics",
        "note: a: why",
    ]
    assert Verdict(()).text() == "could not tell: no topic matches"


def test_json_has_every_count_and_lists() -> None:
    json = _DIFFERENT.to_json()
    assert (json["verdict"], json["line"], json["seconds"]) == ("different", _DIFFERENT.line, 1.3)
    assert json["notes"] == ["for all topics"]
    assert json["topics"][0] == {
        "topic": "a", "source_partitions": 2, "target_partitions": 1, "same": 3, "not_yet_mirrored": 0, "still_arriving": 0,
        "deleted_on_source": 0, "deleted_on_target": 0, "compacted": 0, "before_the_mirror": 0, "other_writers": 0, "missing": 1,
        "changed": 0, "doubled": 0, "extra": 0, "out_of_order": 2, "differences": ["a-0: missing: source offset 3"],
        "notes": ["why"],
    }  # fmt: skip


def test_a_verdict_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        _DIFFERENT.seconds = 0.0  # type: ignore[misc]
