"""Ledger entries: what a position becomes as the metadata of a committed offset, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import LedgerError
from mirrormaker.model import ledger
from mirrormaker.model.ledger import _ALWAYS_FIT, MAX_METADATA, PREFIX, _from_text, _to_text, check_fits, pack, unpack
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.strategies import names, sequences

topic_ids = st.binary(min_size=16, max_size=16).filter(any).map(bytes.hex) | st.just("")
other_topics = st.sampled_from(["", "", "orders-eu", "äß漢😀"])
cuts = st.builds(
    Cut,
    st.integers(0, 1 << 30),
    sequences,
    st.integers(0, (1 << 63) - 1),
    other_topics,
    st.sampled_from([0, 0, 1, 1 << 27]),
)
positions = st.builds(
    Position,
    topic=names,
    partition=st.integers(0, 1 << 30),
    offset=st.integers(0, (1 << 63) - 1),
    leader_epoch=st.integers(-1, (1 << 31) - 1),
    topic_id=topic_ids,
    identity=st.builds(Identity, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 15) - 1)),
    target_cluster=names | st.just("") | st.just("MkU3OEVBNTcwNTJENDM2Qk"),
    target_topic_id=topic_ids,
    target_partitions=st.integers(1, (1 << 31) - 1),
    cuts=st.lists(cuts, max_size=5).map(lambda found: tuple(sorted(found, key=lambda cut: cut.topic))),
    fingerprint=st.integers(0, (1 << 32) - 1),
)
SAMPLE = Position(
    topic="orders",
    partition=3,
    offset=1234,
    leader_epoch=5,
    topic_id="0f" * 16,
    identity=Identity(4711, 0),
    target_cluster="MkU3OEVBNTcwNTJENDM2Qk",
    target_topic_id="f0" * 16,
    target_partitions=12,
    cuts=(Cut(3, 99, 5000),),
    fingerprint=1,
)


def read(position: Position, metadata: str) -> Position | None:
    return unpack(position.topic, position.partition, position.offset, metadata)


@given(positions)
def test_what_is_written_is_read(position: Position) -> None:
    assert read(position, pack(position)) == position


@given(positions)
def test_an_entry_survives_the_way_through_a_broker(position: Position) -> None:
    """Brokers keep it as UTF-8 and count UTF-16 units; consoles and logs should not choke on it."""
    metadata = pack(position)
    assert metadata.encode("utf-8").decode("utf-8") == metadata
    assert len(metadata.encode("utf-16-le")) == 2 * len(metadata) <= 2 * MAX_METADATA
    assert not any(0xD800 <= ord(c) <= 0xDFFF or ord(c) < 0x20 for c in metadata)


def test_an_entry_of_one_target_partition_is_short() -> None:
    assert len(pack(SAMPLE)) < 100


def spread_over(count: int) -> Position:
    return replace(SAMPLE, cuts=tuple(Cut(p, 2**31 - 1, 2**62) for p in range(count)))


def test_an_entry_never_gets_longer_than_a_broker_takes() -> None:
    low, high = 1, 4096
    while low < high:  # the most target partitions that fit
        middle = (low + high + 1) // 2
        try:
            assert len(pack(spread_over(middle))) <= MAX_METADATA
            low = middle
        except LedgerError:
            high = middle - 1
    assert low >= 400
    assert read(SAMPLE, pack(spread_over(low))) == spread_over(low)
    with pytest.raises(LedgerError, match=rf"orders-3 spreads over {low + 1} target partitions.*of 4096\)"):
        pack(spread_over(low + 1))


@pytest.mark.parametrize("count", [1, 100, 400])
def test_the_cost_of_an_entry_is_linear_in_its_size(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A division of one number of thousands of bytes takes as many steps as the number has digits."""
    sizes: list[int] = []

    class Counted(int):
        """A number that notes of how many bytes it is made."""

        @classmethod
        def from_bytes(cls, data: Any, *given: Any, **named: Any) -> int:  # type: ignore[override]
            sizes.append(len(data))
            return int.from_bytes(data, *given, **named)

    monkeypatch.setattr(ledger, "int", Counted, raising=False)
    position = spread_over(count)
    text = pack(position)
    assert sizes and max(sizes) <= ledger._PIECE
    assert len(sizes) <= len(text) * 15 // 8 // ledger._PIECE + 1
    assert read(position, text) == position


@pytest.mark.parametrize("metadata", ["", "foreign", "offset by hand", "Mirrormaker/1:", "{}", "䀀䀀䀀"])
def test_metadata_of_others_is_not_ours(metadata: str) -> None:
    """A Java MirrorMaker's entry, or one that was reset by hand: only its offset counts."""
    assert read(SAMPLE, metadata) is None


@pytest.mark.parametrize("mark", ["mirrormaker/2:", "mirrormaker/10:anything", "mirrormaker/1.5:"])
def test_an_entry_of_a_newer_version_is_refused_by_name(mark: str) -> None:
    with pytest.raises(LedgerError, match=r"orders-3 was written by a newer mirrormaker \(mirrormaker/[\d.]+\)"):
        read(SAMPLE, mark)


@pytest.mark.parametrize("rest", ["", "䀁", "by hand", pack(SAMPLE)[len(PREFIX) : -5]])
def test_an_entry_that_is_damaged_is_refused_by_name(rest: str) -> None:
    try:
        read(SAMPLE, PREFIX + rest)
    except LedgerError as error:
        assert "orders-3" in str(error)


@given(positions, st.binary(min_size=1, max_size=20))
def test_fields_that_a_later_version_adds_behind_ours_are_left_alone(position: Position, added: bytes) -> None:
    """Within format 1 fields may be added at the end: an older process in the same group must read on."""
    number = 0
    for char in reversed(pack(position)[len(PREFIX) :]):
        number = number << 15 | ord(char) - 0x4000
    longer = number << 8 * len(added) | int.from_bytes(added, "big")
    chars = []
    while longer:
        longer, digit = divmod(longer, 1 << 15)
        chars.append(chr(0x4000 + digit))
    assert read(position, PREFIX + "".join(chars)) == position


def test_an_entry_of_the_first_release_is_still_read() -> None:
    """Frozen: an update must not mirror a topic from its start again."""
    metadata = FIRST_RELEASE
    assert read(SAMPLE, metadata) == SAMPLE


FIRST_RELEASE = (
    "mirrormaker/1:最蜐䐍䭘錥袉兓樥띎棆䤹檲瓴ꪦ博䘋䀀ꀀ菃䞇伏帞簼롸냰ꇡ簿롸냰ꇡ菃䞇伏帞吼䀀䀀ꀀ䒙䀀䀀䀀䀄䀀䀐"
)


SPREAD = replace(
    SAMPLE,
    leader_epoch=-1,
    target_topic_id="",
    cuts=(
        Cut(0, 7, 1 << 33),
        Cut(3, 2**31 - 1, 5000, "", 12),
        Cut(1, 0, 0, "orders-eu"),
        Cut(2, 40, 41, "orders-eu", 3),
    ),
)
WITHOUT_IDS = replace(SAMPLE, identity=Identity(-1, 0), topic_id="", target_topic_id="", target_cluster="")


@pytest.mark.parametrize(
    ("position", "metadata"),
    [
        (
            SAMPLE,
            "mirrormaker/1:䀀踀丠䠛嚰晊儓抧鑊꺜醍割镤ꧨ镌暵䰖䀀耀䞇伏帞簼롸냰ꇡ菃롿냰ꇡ菃䞇伏帞簼桸䀀䀀耀䤳䀀䀀䀀䀈䀀䀠",
        ),
        (
            SPREAD,
            "mirrormaker/1:䌃䈘䀈腈䀢䀀䁀突浥ꓦ冕뮓傖ꀀꈉ뾃뿿䟿䂀䀸瀠設卌朢詅岨䷝늣ꐤꢪ賓疪噍䀘䀀䀀䀀䀀䀀䀀䀀䀀䀀렀냰ꇡ菃䞇伏帞簼롸뿰뿿䀿玀䀒䀀䀀䠀䀀怀",
        ),
        (WITHOUT_IDS, "mirrormaker/1:䀀踀丠䠛耀䀁䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀀䀅䀀䀀뿸뿿뿿뿿䃿䀀䈀"),
    ],
    ids=["one target partition", "several topics and records ahead", "an old target"],
)
def test_an_entry_is_written_as_it_always_was(position: Position, metadata: str) -> None:
    """Frozen: an older process in the same group reads what this one writes."""
    assert pack(position) == metadata
    assert read(position, metadata) == position


@given(st.binary(max_size=300))
def test_bytes_become_characters_of_15_bits_and_back(data: bytes) -> None:
    assert _from_text(_to_text(b"\1" + data)) == b"\1" + data


def test_an_entry_of_the_first_release_is_read_as_before() -> None:
    """The text was written by the first release, which divided one large number."""
    data, number = b"\1" + bytes(range(200)), 0
    number = int.from_bytes(data, "big")
    chars = []
    while number:
        number, digit = divmod(number, 1 << 15)
        chars.append(chr(0x4000 + digit))
    assert _to_text(data) == "".join(chars)
    assert _from_text("".join(chars)) == data


def test_an_entry_fits_even_when_records_are_ahead_on_every_target_partition() -> None:
    wide = replace(SAMPLE, cuts=tuple(Cut(n, 0, 0) for n in range(380)))
    check_fits(wide)
    grown = tuple(Cut(n, 2**31 - 1, 2**40, ahead=10**6) for n in range(380))
    assert len(pack(replace(wide, cuts=grown))) <= MAX_METADATA


# -- positions


@given(positions)
def test_a_position_survives_the_way_to_a_stream_and_back(position: Position) -> None:
    assert Position.from_json(position.to_json()) == position


def test_a_position_advances_one_target_partition_at_a_time() -> None:
    both = replace(SAMPLE, cuts=(Cut(0, 1, 2), Cut(1, 3, 4)))
    further = both.advanced(2000, 6, [Cut(1, 30, 40)])
    assert (further.offset, further.leader_epoch) == (2000, 6)
    assert (further.cut(0), further.cut(1)) == (Cut(0, 1, 2), Cut(1, 30, 40))
    assert len(further.cuts) == 2


def test_a_target_partition_that_nothing_was_sent_to_starts_at_number_zero() -> None:
    assert SAMPLE.cut(9) == Cut(9, 0, 0)


def test_positions_of_which_it_is_not_checked_whether_they_fit_always_do() -> None:
    cuts = tuple(Cut(2**31 - 1 - n, 2**31 - 1, 2**63 - 1, ahead=2**21 - 1) for n in range(_ALWAYS_FIT))
    ids = "ff" * 16
    widest = Position(
        "t" * 249, 2**31 - 1, 2**63 - 1, 2**31 - 1, ids, Identity(2**63 - 1, 2**15 - 1), "c" * 255, ids, 2**31 - 1, cuts
    )
    check_fits(widest)
    assert len(pack(widest)) <= MAX_METADATA
