"""`mirrormaker translate`: where its offsets come from, and mistakes on its command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.cli import call, translate
from mirrormaker.model.offset_translation import Translation
from tests.support.mistakes import error_of

COMMAND = ("translate", "--topic", "orders")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The offsets that the command asks for; each is answered with its double."""
    found: list[Any] = []

    async def answer(_: object, __: object, topic: str, offsets: Any, **more: Any) -> list[Translation]:
        found.append((offsets, more["back"], more["source_id"]))
        pairs: Iterable[tuple[int, int]] = [(0, 7)] if isinstance(offsets, str) else offsets
        return [Translation(topic, p, offset, topic, p, 2 * offset, 2 * offset + p) for p, offset in pairs]

    monkeypatch.setattr(translate, "translate_offsets", answer)
    return found


@pytest.mark.parametrize(
    "content",
    [
        "0,1234\n1, 99\n",
        "partition,offset\n0,1234\n\n1,99\n",
        '{"0": 1234, "1": 99}',
        '[{"partition": 0, "offset": 1234}, {"partition": 1, "offset": 99}]',
        "[[0, 1234], [1, 99]]",
    ],
)
def test_a_file_of_offsets_is_csv_or_json(line: list[str], asked: list[Any], tmp_path: Path, content: str) -> None:
    file = tmp_path / "offsets"
    file.write_text(content)
    # Partition 1 is not exact.
    assert call([*line, "--offsets.file", str(file)]) == 3
    assert asked == [([(0, 1234), (1, 99)], False, "")]


def test_a_list_and_a_group_are_taken_as_they_are(
    line: list[str], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*line, "--offsets", "0:5, 0:6", "--source.id", "c1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC   PARTITION  OFFSET  TO TOPIC  TO PARTITION  TO OFFSET  READ AGAIN AT MOST",
        "orders  0          5       orders    0             10         0",
        "orders  0          6       orders    0             12         0",
    ]
    assert call([*line, "--group", "billing", "--back", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["to_offset"] == 14
    assert asked == [([(0, 5), (0, 6)], False, "c1"), ("billing", True, "")]


def test_a_place_that_is_no_longer_in_the_log_has_a_note(
    line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(*_: object, **__: object) -> list[Translation]:
        found = Translation("orders", 0, 7, "orders", 0, 90, 90)
        return [found.held(0, 200), found.held(100, 200), found.held(0, 60)]

    monkeypatch.setattr(translate, "translate_offsets", answer)
    assert call([*line, "--offsets", "0:7"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC   PARTITION  OFFSET  TO TOPIC  TO PARTITION  TO OFFSET  READ AGAIN AT MOST  NOTE",
        "orders  0          7       orders    0             90         0                   -",
        "orders  0          7       orders    0             100        0                   trimmed by 10",
        "orders  0          7       orders    0             60         0                   ahead by 30",
    ]
    assert call([*line, "--offsets", "0:7", "--json"]) == 3
    assert [(row["trimmed"], row["ahead"]) for row in json.loads(capsys.readouterr().out)] == [(0, 0), (10, 0), (0, 30)]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "the offsets are missing: give one of --offsets, --offsets.file, --group"),
        (("--offsets", "0:1", "--group", "g"), "--offsets and --group contradict each other"),
        (("--offsets", ","), "--offsets: name at least one PARTITION:OFFSET"),
        (("--offsets", "0:1,x:2"), "--offsets x:2: this must be PARTITION:OFFSET"),
        (("--offsets", "0:-1"), "--offsets 0:-1: this must be PARTITION:OFFSET"),
        (("--group", ""), "--group: name a consumer group"),
        (("--offsets", "0:1:2"), "--offsets 0:1:2: this must be PARTITION:OFFSET"),
        (("--offsets", "0:99999999999999999999999"), "an offset is at most 9223372036854775807"),
        (("--offsets", "2147483648:1"), "a partition is at most 2147483647"),
        (("--offsets.file", "/no/such/file"), "--offsets.file /no/such/file: no such file or directory (see"),
        # The source is away too, which is no mistake.
        (
            ("--offsets", "0:1"),
            "the target cluster cannot be reached: 127.0.0.1:1: connection refused (bootstrap.servers=127.0.0.1:1)",
        ),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str], more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in error_of([*line, *more], capsys)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no offsets"),
        ("[]", "has no offsets"),
        ("0,1\n1;2\n", ", line 2: 1;2: this must be partition,offset"),
        ("0,1,2\n", ", line 1: 0,1,2: this must be partition,offset"),
        ("0,9223372036854775808\n", ", line 1: 0,9223372036854775808: an offset is at most 9223372036854775807"),
        ("\udcff", ": this is not a text file; a line must be like 0,1234"),
        ('{"0": ', "this is no JSON"),
        ('{"0": "a"}', '["0", "a"]: this must be like'),
        ('[{"partition": 0}]', '{"partition": 0}: this must be like'),
        ("[7]", "7: this must be like"),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    line: list[str], tmp_path: Path, content: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets"
    file.write_text(content, encoding="utf-8", errors="surrogateescape")
    error = error_of([*line, "--offsets.file", str(file)], capsys)
    assert words in error
    assert str(file) in error
