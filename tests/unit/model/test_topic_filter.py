"""The topic filter, which means what it means to every MirrorMaker."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import SettingError
from mirrormaker.model.topic_filter import Filter, is_plain, normalised, python_matcher
from mirrormaker.wire.client.cluster_description import Partition, Topic


def topics(*names: str) -> list[Topic]:
    return [Topic(name, bytes(16), False, {0: Partition(1, 0, 1)}) for name in names]


def chosen(filter: Filter, *names: str) -> list[str]:
    return [t.name for t in filter.chosen(topics(*names), python_matcher(filter.pattern))]


# -- normalisation (TopicFilter, the same from 0.7.2 to 3.9)


@pytest.mark.parametrize(
    ("raw", "pattern"),
    [
        ("orders", "orders"),
        ("orders,payments", "orders|payments"),
        ("orders, payments ,  refunds", "orders|payments|refunds"),
        ("  orders  ", "orders"),
        ('"orders,payments"', "orders|payments"),
        ("'orders'", "orders"),
        ("\"'orders'\"", "orders"),
        ("or\"ders", "or\"ders"),
        (".*", ".*"),
        ("a{1,3}", "a{1|3}"),  # a comma is 'or' even there: it always was
        ("my topic", "mytopic"),
        ("a\tb", "a\tb"),  # only blanks are taken out
        ("a|b", "a|b"),
        (" 'a, b' ", "a|b"),
        ("' a'", "a"),
        ("", ""),
        ("''", ""),
        (",", "|"),
    ],
)  # fmt: skip
def test_a_list_becomes_the_pattern_that_it_always_became(raw: str, pattern: str) -> None:
    assert normalised(raw) == pattern


@given(st.text("ab.*|-_, '\"\t", max_size=30))
def test_no_comma_blank_or_quote_around_it_is_left_of_a_list(raw: str) -> None:
    once = normalised(raw)
    assert "," not in once
    assert " " not in once
    assert not once.startswith(("'", '"'))
    assert not once.endswith(("'", '"'))


# -- choosing


def test_a_name_must_match_as_a_whole() -> None:
    assert chosen(Filter.of("orders", None), "orders", "orders2", "my-orders") == ["orders"]


def test_a_list_chooses_each_of_its_names() -> None:
    assert chosen(Filter.of("orders, pay.*", None), "orders", "payments", "paid", "x") == ["orders", "payments"]


def test_everything_is_everything_but_internal_topics() -> None:
    internal = [Topic("hidden", bytes(16), True, {}), *topics("__consumer_offsets", "__transaction_state")]
    everything = Filter.of(".*", None)
    found = everything.chosen([*topics("a", "__mine"), *internal], python_matcher(everything.pattern))
    assert [t.name for t in found] == ["a", "__mine"]


def test_internal_topics_are_not_mirrored_even_when_named() -> None:
    """Their records mean something to one cluster only."""
    assert chosen(Filter.of("__consumer_offsets|__transaction_state|a", None), "__consumer_offsets", "a") == ["a"]


def test_an_exclusion_takes_all_others() -> None:
    assert chosen(Filter.of(None, "orders,tmp-.*"), "orders", "tmp-1", "payments", "__consumer_offsets") == ["payments"]


@pytest.mark.parametrize("raw", ["''", '" "', "' '", '"'])
def test_a_filter_of_nothing_is_refused_by_name(raw: str) -> None:
    with pytest.raises(SettingError, match=r"--whitelist .* matches no topic"):
        Filter.of(raw, None)
    with pytest.raises(SettingError, match=r"--blacklist .* matches no topic"):
        Filter.of(None, raw)


# -- Java or Python


@pytest.mark.parametrize("pattern", ["orders", "a|b|c-1", "my.topic_2", ".*", "a.c"])
def test_lists_of_names_need_no_jvm(pattern: str) -> None:
    assert is_plain(pattern)


@pytest.mark.parametrize("pattern", ["a*", "[a-z]+", "a(b)", "a\\d", "(?i)a", "ä", "a+", "^a$", "a{2}", "", ".*|b"])
def test_anything_else_is_for_java_to_judge(pattern: str) -> None:
    assert not is_plain(pattern)


@given(st.text("ab.|-_", min_size=1, max_size=8), st.text("ab.-_", min_size=1, max_size=5))
def test_a_plain_pattern_means_what_it_says(pattern: str, name: str) -> None:
    """By hand: one of the alternatives, with a dot for any character."""
    fits = any(
        len(part) == len(name) and all(p in (".", n) for p, n in zip(part, name, strict=True))
        for part in pattern.split("|")
    )
    assert python_matcher(pattern)(name) is fits


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [("orders, pay.*", None, ["orders", "payments"]), (None, "orders", ["payments", "clicks"])],
)
def test_names_can_be_chosen_without_a_jvm(include: str | None, exclude: str | None, expected: list[str]) -> None:
    is_chosen = Filter.of(include, exclude).by_name()
    assert [name for name in ("orders", "payments", "clicks") if is_chosen(name)] == expected


def test_a_pattern_that_python_cannot_read_is_refused() -> None:
    with pytest.raises(SettingError, match="as Python does"):
        Filter.of("a(b", None).by_name()


def test_a_pattern_that_java_reads_in_another_way_is_refused_without_a_warning() -> None:
    """The intersection would choose fewer topics than the mirror has."""
    with warnings.catch_warnings(record=True) as seen, pytest.raises(SettingError, match="as Python does"):
        Filter.of("[a-z&&[^x]]+", None).by_name()
    assert not seen
