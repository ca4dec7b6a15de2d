"""What a value may look like: each kind reads it, or refuses it with a line that says what is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings.addresses import addresses, connect_string
from mirrormaker.wire.transport.host_port import join_host_port

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
# As documents print them; Java itself never read them from a file.
_NAMED = {
    "int.maxvalue": _INT_MAX,
    "integer.max_value": _INT_MAX,
    "long.maxvalue": _LONG_MAX,
    "long.max_value": _LONG_MAX,
}


@dataclass(frozen=True)
class Kind:
    """`read` takes the text, the place and the key to name in a refusal; `unit` is for people."""

    wanted: str
    read: Callable[[str, str, str], Any]
    show: Callable[[Any], str] = str
    unit: str = ""


def _parsed(wanted: str, parse: Callable[[str], Any], show: Callable[[Any], str] = str, unit: str = "") -> Kind:
    def read(text: str, where: str, key: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise SettingError(f"{where}: {key}={text}: this must be {wanted}") from None

    return Kind(wanted, read, show, unit or wanted)


def number(low: int = 0, high: int = _INT_MAX, unit: str = "number") -> Kind:
    of = "" if unit == "number" else f" of {unit}"
    between = "" if (low, high) == (-_LONG_MAX, _LONG_MAX) else f" from {low} to {high}"

    def parse(text: str) -> int:
        value = _NAMED.get(text.lower())
        if value is None:
            if not re.fullmatch(r"[+-]?[0-9]+", text):
                raise ValueError(text)
            value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return _parsed(f"a whole number{of}{between}", parse, unit=unit)


def choice(values: Mapping[str, str]) -> Kind:
    """One of several words; what each means is the word that is used from then on."""

    def parse(text: str) -> str:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    words = [word for word in values if word]
    return _parsed(f"one of {', '.join(words)}", parse, unit=" or ".join(dict.fromkeys(filter(None, values.values()))))


def same(*words: str) -> dict[str, str]:
    """Words that mean themselves."""
    return {word: word for word in words}


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+(\.\d+){0,2}", text):
        raise ValueError(text)
    return tuple(map(int, text.split(".")))


def _show_brokers(pairs: tuple[tuple[str, int], ...]) -> str:
    return ",".join(join_host_port(host, port) for host, port in pairs)


TEXT = Kind("text", lambda text, _where, _key: text, unit="text")
LIST = Kind(
    "names with commas between them",
    lambda text, _where, _key: tuple(name.strip() for name in text.split(",") if name.strip()),
    ",".join,
    "name,…",
)
FLAG = _parsed("true or false", _flag, lambda value: str(value).lower())
VERSION = _parsed("a version like 0.8.2 or 0.9.0.1", _version, lambda value: ".".join(map(str, value)), "version")
BROKERS = Kind("host:port,host:port", addresses, _show_brokers, "host:port,…")
ZOOKEEPER = Kind("host:port,host:port/path", connect_string, unit="host:port,…/path")
ANY_NUMBER = number(-_LONG_MAX, _LONG_MAX)
MS, BYTES, MESSAGES = (number(-_LONG_MAX, _LONG_MAX, unit) for unit in ("ms", "bytes", "messages"))
