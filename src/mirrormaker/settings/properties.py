"""Java's .properties files: comments, continuations, escapes, any separator, Latin-1."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirrormaker.errors import SettingError

# Kafka's own pattern, for two of its providers.
_ELSEWHERE = re.compile(r"\$\{(?P<provider>env|file):(?P<rest>(?:(?P<path>[^}]*?):)?(?P<key>[^}]*?))\}")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Property:
    """One setting and where it stands."""

    key: str
    value: str = field(repr=False)  # it may be a password
    line: int
    written: str = field(default="", repr=False)  # what stands there, if the value was looked up elsewhere

    @property
    def shown(self) -> str:
        """What may be said of the value: not what was looked up."""
        return self.written or self.value


class Properties(dict[str, Property]):
    """The settings of one file; the last line of a key counts, as in Java."""

    def __init__(self, path: str, lines: Iterable[Property] = ()) -> None:
        self.path = path
        self.lines = tuple(lines)
        super().__init__((line.key, line) for line in self.lines)

    def where(self, key: str) -> str:
        """The place to name in an error."""
        return f"{self.path}, line {self[key].line}" if key in self else self.path


def read(path: str, option: str) -> Properties:
    """Read a file that was named by an option."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{option} {path}: {(error.strerror or str(error)).lower()}") from error
    if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", data):
        raise SettingError(f"{option} {path}: this is not a properties file (it holds binary data)")
    found = Properties(path, (_looked_up(line, path) for line in parse(data.decode("latin-1"), path)))
    if not found:
        raise SettingError(
            f"{option} {path}: there is no setting in this file; it needs lines like bootstrap.servers=host:9092"
        )
    return found


def _looked_up(line: Property, path: str) -> Property:
    """With ${env:NAME} and ${file:path:key} in its value replaced, as Kafka's own providers would."""
    where = f"{path}, line {line.line}: {line.key}"  # the rest of the value may be a secret
    value = _ELSEWHERE.sub(lambda found: _look_up(found, f"{where}: {found[0]}"), line.value)
    return line if value == line.value else replace(line, value=value, written=line.value)


def _look_up(found: re.Match[str], where: str) -> str:
    provider, path, key = found["provider"], found["path"], found["key"]
    if provider == "env":
        if path is not None or key not in os.environ:
            raise SettingError(f"{where}: there is no {found['rest']} in the environment")
        return os.environ[key]
    if path is None:
        raise SettingError(f"{where}: this must be ${{file:path:key}}, with the key of a line in a properties file")
    try:
        lines = {line.key: line.value for line in parse(Path(path).read_bytes().decode("latin-1"), path)}
    except OSError as error:
        raise SettingError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from None
    if key not in lines:
        raise SettingError(f"{where}: there is no {key} in {path}")
    return lines[key]


PropertiesLike = str | os.PathLike[str] | Mapping[str, str]  # a property file, or its content


def load(settings: PropertiesLike, name: str) -> Properties:
    """Return settings that a Python program gives as a file or as a mapping; `name` is how errors name a mapping."""
    if isinstance(settings, Mapping):
        lines = (Property(key, value, line) for line, (key, value) in enumerate(settings.items(), 1))
        return Properties(name, lines)
    return read(os.fspath(settings), name)


def parse(text: str, path: str = "") -> Iterator[Property]:
    """The properties in a text, in order."""
    for line, number in _logical_lines(text):
        key_end = _find_separator(line)
        rest = line[key_end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        where = f"{path}, line {number}"
        yield Property(_unescape(line[:key_end], where), _unescape(rest, where), number)


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Lines with their continuations joined, without comments and blank lines."""
    joined, start = "", 0
    lines = re.split(r"\r\n|\r|\n", text)
    last = len(lines) - (lines[-1] == "" and not text.endswith("\r\n"))  # to Java, which looks one character ahead
    for number, line in enumerate(lines, 1):
        line = line.lstrip(_BLANK)
        if (
            not joined
        ):  # nothing but a backslash, and a line begins anew: Java looks at what it has, not at how it came to it
            start = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2 == 0:
            yield joined + line, start
            joined = ""
        elif number >= last:
            yield joined + line[:-1], start
            return
        else:
            joined += line[:-1]


def _find_separator(line: str) -> int:
    escaped = False
    for at, char in enumerate(line):
        if not escaped and char in "=:" + _BLANK:
            return at
        escaped = char == "\\" and not escaped
    return len(line)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    chars = iter(enumerate(text))
    for at, char in chars:
        if char != "\\":
            out.append(char)
            continue
        _, char = next(chars, (0, ""))
        if char == "u":
            digits = text[at + 2 : at + 6]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise SettingError(f"{where}: \\u must be followed by four hexadecimal digits")
            for _ in range(4):
                next(chars)
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(char, char))
    joined = "".join(out)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
