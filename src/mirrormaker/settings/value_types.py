"""The types that a setting's value can have, and `Key`, the definition of one setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings.addresses import addresses, connect_string
from mirrormaker.wire.transport.host_port import join_host_port

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
# Documents print these names, so people copy them into files. Java itself does not read them.
_NAMED_NUMBERS = {
    "int.maxvalue": _INT_MAX,
    "integer.max_value": _INT_MAX,
    "long.maxvalue": _LONG_MAX,
    "long.max_value": _LONG_MAX,
}


@dataclass(frozen=True)
class ValueType:
    """How a value is read from a file and written back.

    `read` takes the text, and the place and key to name in an error. `expected` completes "this must be ...".
    """

    expected: str
    read: Callable[[str, str, str], Any]
    format: Callable[[Any], str] = str
    unit: str = ""


@dataclass(frozen=True)
class Key:
    """One setting, under all the names that Kafka ever gave it."""

    name: str  # the current name, or the last one that it had
    type: ValueType
    meaning: str  # what the setting does; why it has no effect, if it has none
    default: str = ""
    old_names: tuple[str, ...] = ()
    is_obsolete: bool = False  # no current Kafka client knows the setting under any name
    has_effect: bool = True  # False: accepted, so that old files keep working
    # The start says that the setting has no effect, because someone may rely on it.
    is_announced: bool = False
    # Returns what the start says about a value; "" if nothing.
    note: Callable[[Any], str] = lambda _value: ""
    # Returns the reason why a value is refused; "" if it is not.
    refusal: Callable[[Any], str] = lambda _value: ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the current name and the old ones."""
        return (self.name, *self.old_names)


def _parsed(
    expected: str, parse: Callable[[str], Any], format: Callable[[Any], str] = str, unit: str = ""
) -> ValueType:
    """Return a type from a function that raises ValueError for a text that is not of that type."""

    def read(text: str, where: str, key: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise SettingError(f"{where}: {key}={text}: this must be {expected}") from None

    return ValueType(expected, read, format, unit or expected)


def number(low: int = 0, high: int = _INT_MAX, unit: str = "number") -> ValueType:
    """Return the type of whole numbers from `low` to `high`."""
    of_unit = "" if unit == "number" else f" of {unit}"
    between = "" if (low, high) == (-_LONG_MAX, _LONG_MAX) else f" from {low} to {high}"

    def parse(text: str) -> int:
        value = _NAMED_NUMBERS.get(text.lower())
        if value is None:
            if not re.fullmatch(r"[+-]?[0-9]+", text):
                raise ValueError(text)
            value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return _parsed(f"a whole number{of_unit}{between}", parse, unit=unit)


def choice(values: Mapping[str, str]) -> ValueType:
    """Return the type of words that `values` lists, each with the word that the program uses for it."""

    def parse(text: str) -> str:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    words = [word for word in values if word]
    return _parsed(f"one of {', '.join(words)}", parse, unit=" or ".join(dict.fromkeys(filter(None, values.values()))))


def words(*names: str) -> dict[str, str]:
    """Return choices that the program calls by the same words as the user."""
    return {name: name for name in names}


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+(\.\d+){0,2}", text):
        raise ValueError(text)
    return tuple(map(int, text.split(".")))


def _format_brokers(pairs: tuple[tuple[str, int], ...]) -> str:
    return ",".join(join_host_port(host, port) for host, port in pairs)


TEXT = ValueType("text", lambda text, _where, _key: text, unit="text")
LIST = ValueType(
    "names with commas between them",
    lambda text, _where, _key: tuple(name.strip() for name in text.split(",") if name.strip()),
    ",".join,
    "name,…",
)
FLAG = _parsed("true or false", _flag, lambda value: str(value).lower())
VERSION = _parsed("a version like 0.8.2 or 0.9.0.1", _version, lambda value: ".".join(map(str, value)), "version")
BROKERS = ValueType("host:port,host:port", addresses, _format_brokers, "host:port,…")
ZOOKEEPER = ValueType("host:port,host:port/path", connect_string, unit="host:port,…/path")
ANY_NUMBER = number(-_LONG_MAX, _LONG_MAX)
MS, BYTES, MESSAGES = (number(-_LONG_MAX, _LONG_MAX, unit) for unit in ("ms", "bytes", "messages"))
