"""The table of Kafka's error codes, with kafka-python's as the other opinion."""

from __future__ import annotations

import inspect
from typing import Any

import kafka.errors
import pytest

from mirrormaker import errors, kafka_errors
from mirrormaker.errors import BrokerError, MirrorError, raise_for
from mirrormaker.kafka_errors import CODES, Scope, error_code

# kafka-python calls these retriable or not; Kafka itself, which the table follows, says otherwise.
_OTHERWISE = {1, 2, 55, 60, 84, 113}

THEIRS: dict[int, Any] = {
    getattr(kind, "errno", 0): kind
    for kind in vars(kafka.errors).values()
    if isinstance(kind, type)
    and issubclass(kind, kafka.errors.BrokerResponseError)
    and getattr(kind, "errno", None)
    and kind.__module__ == "kafka.errors"
}


def test_the_table_knows_every_code_that_kafka_python_knows() -> None:
    assert {code for code in THEIRS if code <= max(CODES)} <= CODES.keys()


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_is_retriable_where_kafka_python_says_so(code: int) -> None:
    if code in THEIRS and code not in _OTHERWISE:
        assert CODES[code].retriable == bool(THEIRS[code].retriable), THEIRS[code]


def test_codes_are_unique_and_without_a_gap() -> None:
    assert sorted(CODES) == [-1, *range(1, max(CODES) + 1)]
    assert len({entry.name for entry in CODES.values()}) == len(CODES)


def test_named_codes_are_those_of_the_table() -> None:
    named = {name: value for name, value in vars(kafka_errors).items() if name.isupper() and type(value) is int}
    assert len(named) > 20
    assert {name: CODES[value].name for name, value in named.items()} == {name: name for name in named}


def test_an_unknown_code_is_one_partitions_and_keeps_its_number() -> None:
    error = BrokerError(30_000)
    assert (error.code, error.retriable, error.scope) == (30_000, False, Scope.PARTITION)
    assert str(error).startswith("UNKNOWN_ERROR_CODE (30000)")
    assert error_code(30_000).code == 30_000


def test_zero_is_no_error() -> None:
    raise_for(0)
    with pytest.raises(BrokerError) as caught:
        raise_for(29, "orders")
    assert (caught.value.detail, caught.value.scope) == ("orders", Scope.TOPIC)


def test_the_docstring_shows_the_tree_of_errors_as_it_is() -> None:
    kinds = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, MirrorError) and kind.__module__ == errors.__name__
    }
    shown: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.replace("│", " ").replace("├──", "   ").replace("└──", "   ")
        if name.strip() and name.split()[0] in kinds and name.startswith("    "):
            depth = (len(name) - len(name.lstrip())) // 4 - 1
            path[depth:] = [name.split()[0]]
            shown[path[-1]] = path[-2] if depth else ""
    assert shown.keys() == kinds.keys()
    assert {name: kind.__bases__[0].__name__ if shown[name] else "" for name, kind in kinds.items()} == shown
