"""The parts of `mirrormaker verify` that need no broker: checksums, chunks, pairs, positions, the verdict, the command line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker import reading
from mirrormaker.cli import call
from mirrormaker.errors import ClusterError
from mirrormaker.model import fingerprint
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.verification.chunks import Chunk, Chunker, Line, stitched
from mirrormaker.verification.hashing import Hashes, contents, spans
from mirrormaker.verification.marks import Marks
from mirrormaker.verification.matching import Matched, matched
from mirrormaker.verification.plan import TARGET, Part, TopicPlan
from mirrormaker.verification.record_diff import edges
from mirrormaker.verification.verdict import TopicResult, Verdict
from tests.support.writing import Row, many, rows

_RNG = np.random.default_rng(5)
_HASHES = _RNG.integers(0, 1 << 63, 20_000, dtype=np.uint64)


# -- checksums


@given(st.lists(st.binary(max_size=1500), max_size=30), st.integers(0, 9))
def test_equal_bytes_have_equal_checksums_wherever_they_lie(parts: list[bytes], shift: int) -> None:
    data = np.frombuffer(b"x" * shift + b"".join(parts), np.uint8)
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(sizes) - sizes + shift
    found = spans(data, starts, sizes).tolist()
    alone = [int(spans(np.frombuffer(p, np.uint8), np.array([0]), np.array([len(p)]))[0]) for p in parts]
    assert found == alone
    assert len(set(found)) == len(set(parts))


_ROW = Row(b"key", b"value", 5, (("h", b"1"),))


@pytest.mark.parametrize(
    "other",
    [
        _ROW._replace(key=b"kez"), _ROW._replace(key=None), _ROW._replace(value=b"valuf"), _ROW._replace(value=None),
        _ROW._replace(timestamp=6), _ROW._replace(headers=()), _ROW._replace(headers=(("h", b"2"),)),
        _ROW._replace(key=b"keyv", value=b"alue"),
    ],
)  # fmt: skip
def test_every_field_counts(other: Row) -> None:
    one, two = contents(rows([_ROW, other]), True).tolist()
    assert one != two


def test_timestamps_count_only_where_both_sides_keep_them() -> None:
    records = rows([Row(b"key", b"value", 5), Row(b"key", b"value", 6)])
    assert len(set(contents(records, False).tolist())) == 1
    assert len(set(contents(records, True).tolist())) == 2


def test_headers_count_only_where_both_sides_keep_them() -> None:
    with_headers, without = rows([_ROW, _ROW._replace(value=None)]), rows([_ROW._replace(headers=()), _ROW])
    one, other = contents(with_headers, True, False).tolist()
    assert contents(without, True, False).tolist() == [one, one] != [one, other]


# -- chunks


def chunks(side: int, hashes: Hashes, cuts: list[int], first: int = 0, number: int = 0) -> list[Chunk]:
    """As if read in spans that end at `cuts`, each in pieces of 700 records."""
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(hashes)], strict=True):
        chunker = Chunker(side, "t", 0, 6)
        for at in range(start, stop, 700):
            part = slice(at, min(at + 700, stop))
            count = part.stop - part.start
            offsets = np.arange(part.start, part.stop) + first
            found += chunker.take(hashes[part], np.full(count, number), offsets, np.zeros(count, np.bool_))
        found += chunker.rest()
    return list(stitched(found))


@given(st.lists(st.integers(0, 20_000), max_size=5).map(sorted))
def test_the_same_records_become_the_same_chunks_however_they_are_read(cuts: list[int]) -> None:
    assert chunks(0, _HASHES, cuts) == chunks(0, _HASHES, [])


def test_chunks_know_their_records() -> None:
    found = chunks(0, _HASHES, [])
    assert sum(chunk.records for chunk in found) == 20_000
    assert all(chunk.last - chunk.first + 1 == chunk.records for chunk in found)
    assert 200 < len(found) < 450
    swapped = _HASHES.copy()
    swapped[[100, 101]] = swapped[[101, 100]]
    assert sum(a.checksum != b.checksum for a, b in zip(found, chunks(0, swapped, []), strict=True)) == 1


def test_lines_that_lie_among_each_other_are_told_apart() -> None:
    chunker = Chunker(TARGET, "t", 0, 6)
    numbers = _RNG.integers(0, 3, 20_000)
    found = chunker.take(_HASHES, numbers, np.arange(20_000), np.zeros(20_000, np.bool_)) + chunker.rest()
    for number in range(3):
        alone = chunks(TARGET, _HASHES[numbers == number], [], number=number)
        mine = [chunk for chunk in found if chunk.line.number == number]
        assert [(c.checksum, c.records) for c in mine] == [(c.checksum, c.records) for c in alone]


# -- pairs


def plan(source_start: int = 0, target_start: int = 0) -> TopicPlan:
    return TopicPlan(
        "t",
        by_key=frozenset(),
        sources=(Part(0, "t", 0, source_start, source_start, 1 << 40, 1 << 40),),
        targets=(Part(TARGET, "t", 0, target_start, target_start, 1 << 40, 1 << 40),),
    )


def test_equal_logs_need_no_closer_look() -> None:
    found = matched(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, _HASHES, [5000], first=99)])
    assert (found.left, found.right, found.records) == ([], [], 20_000)
    assert len(edges(found)) == 2


def test_one_difference_leaves_one_chunk_on_each_side() -> None:
    changed = _HASHES.copy()
    changed[12_345] ^= np.uint64(1 << 40)
    found = matched(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, changed, [])])
    assert len(found.left) == len(found.right) == 1
    assert found.left[0].first <= 12_345 <= found.left[0].last
    assert len(edges(found)) == 4


def test_a_chunk_that_is_there_twice_is_looked_at_with_its_counterpart() -> None:
    """A record that ends a chunk makes, doubled, a chunk of its own: without the other nobody would know whose double it is."""
    ends = [chunk.last + 1 for chunk in chunks(0, _HASHES, []) if chunk.first > 1000]
    doubled = np.concatenate([_HASHES[: ends[1]], _HASHES[ends[0] : ends[1]], _HASHES[ends[1] :]])
    found = matched(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, doubled, [])])
    assert [(chunk.first, chunk.last) for chunk in found.left] == [(ends[0], ends[1] - 1)]
    assert len(found.right) == 2
    assert found.records == len(_HASHES) - (ends[1] - ends[0])


def test_a_chunk_that_has_moved_is_looked_at() -> None:
    ours = chunks(0, _HASHES, [])
    bounds = [(c.first, c.last + 1) for c in ours]
    order = [*bounds[:40], *bounds[50:60], bounds[40], *bounds[41:50], *bounds[60:]]
    moved = np.concatenate([_HASHES[a:b] for a, b in order])
    found = matched(plan(), [*ours, *chunks(TARGET, moved, [])])
    assert len(found.left) == len(found.right) == 10


def test_what_retention_took_is_counted_without_a_closer_look() -> None:
    ours = chunks(0, _HASHES, [])
    found = matched(plan(target_start=7000), [*ours, *chunks(TARGET, _HASHES[7000:], [], first=7000)])
    assert found.gone_from_target > 6000
    assert sum(chunk.records for chunk in found.left) < 1000
    assert len(found.right) == 1
    found = matched(plan(source_start=7000), [*chunks(0, _HASHES[7000:], [], first=7000), *chunks(TARGET, _HASHES, [])])
    assert found.gone_from_source > 6000
    assert len(found.left) == 1


def test_a_log_has_not_lost_more_records_than_its_start_says() -> None:
    ours = chunks(0, _HASHES, [])
    found = matched(plan(target_start=3000), [*ours, *chunks(TARGET, _HASHES[7000:], [], first=3000)])
    assert found.gone_from_target + found.target_losses[0] == 3000
    assert sum(chunk.records for chunk in found.left) + found.gone_from_target >= 7000
    found = matched(plan(source_start=3000), [*chunks(0, _HASHES[7000:], [], first=3000), *chunks(TARGET, _HASHES, [])])
    assert found.gone_from_source + found.source_losses[0, 0] == 3000
    assert sum(chunk.records for chunk in found.right) + found.gone_from_source >= 7000


# -- how far the mirror is


def position(offset: int, cut: int, ahead: int = 0, producer: int = 7) -> tuple[int, Position]:
    where = Cut(0, 0, cut, ahead=ahead)
    return offset, Position("t", 0, offset, -1, "", Identity(producer, 0), "c", "", 1, (where,))


def marked(end: int, known: tuple[int, Position | None] | None, there: int) -> tuple[Part, Part]:
    marks = Marks()
    source = marks.note(Part(0, "t", 0, 0, 0, end, end), [0], known)
    return source, marks.ended(Part(TARGET, "t", 0, 0, 0, there, there))


def test_a_mirror_that_runs_is_compared_up_to_its_position() -> None:
    source, target = marked(100, position(60, 65), 80)
    assert (source.until, target.until, source.open_end, target.open_end) == (60, 65, False, False)


def test_of_a_mirror_that_has_caught_up_all_is_compared() -> None:
    source, target = marked(100, position(100, 105), 107)
    assert (source.until, target.until, source.open_end, target.open_end) == (100, 107, False, False)


def test_an_open_transaction_on_the_target_hides_the_last_records() -> None:
    _, target = marked(100, position(60, 65), 50)
    assert (target.until, target.open_end) == (50, True)
    _, target = marked(100, position(100, 105), 50)  # of a mirror that has caught up as well
    assert (target.until, target.open_end) == (50, True)


def test_a_target_that_knows_no_producers_has_an_open_end() -> None:
    source, target = marked(100, position(60, 65, producer=-1), 80)
    assert (source.until, target.until, source.open_end, target.open_end) == (60, 80, False, True)


def test_without_a_ledger_the_ends_are_open() -> None:
    source, target = marked(100, None, 80)
    assert (source.until, target.until, source.open_end, target.open_end) == (100, 80, True, True)
    source, target = marked(100, (60, None), 80)  # committed by another mirror
    assert (source.until, target.until, source.open_end, target.open_end) == (60, 80, False, True)


@pytest.mark.parametrize(
    ("by_key", "handler", "expected"),
    [(False, None, False), (True, None, False), (False, ("h.py", None), True), (True, ("h.py", "x"), True)],
)
def test_a_position_tells_whether_a_message_handler_was_at_work(
    by_key: bool, handler: tuple[str, str | None] | None, expected: bool
) -> None:
    _, known = position(60, 65)
    partitions = 1 if by_key else 0
    number = 1 if not by_key and handler is None else fingerprint.fingerprint_of(True, partitions, None, handler)
    assert fingerprint.used_handler(replace(known, fingerprint=number, by_key=by_key)) is expected


# -- the verdict


def test_exit_codes_say_what_was_found() -> None:
    same = TopicResult("a", 1, 1, {"same": 5})
    gone = TopicResult("b", 1, 1, {"deleted_on_source": 5})
    empty = TopicResult("c", 1, 1, {}, had_records=False)
    different = TopicResult("d", 1, 1, {"same": 5, "missing": 1})
    assert [Verdict(t).exit_code for t in ([same], [same, gone], [gone], [empty], [different, gone], [])] == [
        0,
        0,
        2,
        0,
        1,
        2,
    ]
    assert Verdict([different]).line == "different: 1 missing (1 topic, 5 equal records)"
    assert Verdict([gone]).line == "could not tell: there is nothing that both sides have"


def test_the_table_has_the_columns_that_are_needed() -> None:
    rows_ = Verdict([TopicResult("orders", 8, 3, {"same": 12_000, "compacted": 7})]).table()
    assert rows_ == ["topic   partitions    same  compacted away", "orders      8 -> 3  12,000               7"]


def test_matched_counts_records() -> None:
    chunk = Chunk(Line(0, "t", 0, 0), 1, 5, 0, 4, True, 0)
    assert Matched(pairs=[(chunk, chunk)]).records == 5


# -- the command line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--consumer.config FILE is missing"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--from", "yesterday"], "--from yesterday: this must be a time"),
        (["--from", "2000", "--to", "1000"], "--from must be before --to"),
        (["--blacklist", "a"], "contradict each other"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t"), "--whitelist", ".*"]
    assert call(["verify", *(files if options else []), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_cluster_that_cannot_be_reached_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    command = [sys.executable, "-m", "mirrormaker.cli", "verify", "--whitelist", ".*"]
    done = subprocess.run(
        [*command, "--consumer.config", "s", "--producer.config", "t"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("mirrormaker: the source cluster cannot be reached:")
    assert "s)" in line


@pytest.mark.parametrize(
    ("line", "words"), [("", "--whitelist REGEX is missing"), ("mirror.topics.whitelist=orders\n", "cannot be reached")]
)
def test_the_source_file_may_say_which_topics(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").write_text(f"bootstrap.servers=127.0.0.1:1\ngroup.id=g\n{line}")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t")]
    assert call(["verify", *files]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--jaas.config=nowhere", "-Djava.security.auth.login.config=nowhere"])
def test_logins_are_found_as_by_the_mirror(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    (tmp_path / "s").write_text(f"bootstrap.servers=127.0.0.1:1\ngroup.id=g\n{login}")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t"), "--whitelist", ".*"]
    assert call(["verify", *files, option]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_what_nobody_has_foreseen_is_one_line_without_content_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the value of a record")

    monkeypatch.setattr("mirrormaker.cli.verify.source_settings", fail)
    (tmp_path / "s").write_text("group.id=g\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "s"), "--whitelist", ".*"]
    assert call(["verify", *files]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unexpected ValueError in test_verification.py" in line and "record" not in line


# -- records as a DataFrame


@pytest.mark.parametrize(
    ("further", "committed"),
    [
        ({}, False), ({"group.id": "g"}, False), ({"isolation.level": "read_committed"}, True),
        ({"isolation.level": "read_uncommitted"}, False), ({"group.id": "g", "isolation.level": "read_committed"}, True),
    ],
)  # fmt: skip
def test_settings_are_a_mapping_or_a_file(further: dict[str, str], committed: bool, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", **further}
    (tmp_path / "s").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    for given_as in (settings, tmp_path / "s"):
        endpoint, only_committed = reading._endpoint(given_as)
        assert (endpoint.bootstrap, only_committed) == ((("127.0.0.1", 1),), committed)


def test_records_can_be_asked_for_where_an_event_loop_runs() -> None:
    async def notebook() -> None:
        reading.read(None, {"bootstrap.servers": "127.0.0.1:1"}, "t")

    with pytest.raises(ClusterError, match="cannot be read"):
        asyncio.run(notebook())


def test_the_package_is_light_until_records_are_asked_for() -> None:
    code = (
        "import sys, mirrormaker; assert 'pyspark' not in sys.modules and 'numpy' not in sys.modules; mirrormaker.read"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_many_makes_different_records() -> None:
    assert len(set(contents(many(1000), True).tolist())) == 1000
