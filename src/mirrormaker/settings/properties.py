"""Read Java's .properties files: comments, continued lines, escapes, any separator, Latin-1."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirrormaker.errors import SettingError

# Kafka's own pattern for values of a configuration provider, limited to the providers env and file.
_REFERENCE = re.compile(r"\$\{(?P<provider>env|file):(?P<rest>(?:(?P<path>[^}]*?):)?(?P<key>[^}]*?))\}")
PropertiesLike = str | os.PathLike[str] | Mapping[str, str]  # a property file, or its content
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Property:
    """One setting and its line."""

    key: str
    value: str = field(repr=False)  # can be a password
    line: int
    # The value with its references, such as ${env:NAME}, not replaced. Empty if it has none.
    unresolved: str = field(default="", repr=False)

    @property
    def as_written(self) -> str:
        """Return the value as the file has it. Messages show this one, because a replaced reference may be a secret."""
        return self.unresolved or self.value


class Properties(dict[str, Property]):
    """The settings of one file by key; if a key has several lines, the last one counts, as in Java."""

    def __init__(self, path: str, lines: Iterable[Property] = ()) -> None:
        self.path = path
        self.lines = tuple(lines)
        super().__init__((line.key, line) for line in self.lines)

    def where(self, key: str) -> str:
        """Return the file and line of a key, for messages; only the file if the key is not there."""
        return f"{self.path}, line {self[key].line}" if key in self else self.path


def file_content(path: str) -> bytes:
    """Return the content of a file; raise OSError, also for a text that cannot be the name of a file."""
    try:
        return Path(path).read_bytes()
    except ValueError as error:  # it holds a null character
        raise OSError(errno.EINVAL, "this cannot be the name of a file") from error


def load(settings: PropertiesLike, name: str) -> Properties:
    """Return settings that a Python program gives as a file or as a mapping; errors call a mapping `name`."""
    if not isinstance(settings, Mapping):
        return read(os.fspath(settings))
    lines = (Property(str(key), str(value), line) for line, (key, value) in enumerate(settings.items(), 1))
    return Properties(name, lines)


def read(path: str, option: str = "") -> Properties:
    """Read a file; `option` is the command line option that names it, if there is one."""

    def refusal(reason: str) -> SettingError:
        return SettingError(f"{option} {path}: {reason}".lstrip(), option=bool(option))

    try:
        data = file_content(path)
    except OSError as error:
        raise refusal((error.strerror or str(error)).lower()) from error
    if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", data):
        raise refusal("this is not a properties file (it contains binary data)")
    properties = Properties(path, (_resolve(line, path) for line in parse(data.decode("latin-1"), path)))
    if not properties:
        raise refusal("there is no setting in this file; it needs lines like bootstrap.servers=host:9092")
    return properties


def _resolve(line: Property, path: str) -> Property:
    """Replace ${env:NAME} and ${file:path:key} in the value, as Kafka's own configuration providers do."""
    # Errors name only the reference: the rest of the value can be a secret.
    where = f"{path}, line {line.line}: {line.key}"
    value = resolve(line.value, where)
    return line if value == line.value else replace(line, value=value, unresolved=line.value)


def resolve(text: str, where: str) -> str:
    """Return a text with each reference replaced by the value that it stands for; errors begin with `where`."""
    return _REFERENCE.sub(lambda match: _referenced_value(match, f"{where}: {match[0]}"), text)


def is_reference(text: str) -> bool:
    """Return True if a text is one reference and nothing else."""
    return _REFERENCE.fullmatch(text) is not None


def without_references(text: str) -> str:
    """Return a text with its references left out."""
    return _REFERENCE.sub("", text)


def _referenced_value(match: re.Match[str], where: str) -> str:
    provider, path, key = match["provider"], match["path"], match["key"]
    if provider == "env":
        if path is not None or key not in os.environ:
            raise SettingError(f"{where}: there is no {match['rest']} in the environment")
        return os.environ[key]
    if path is None:
        raise SettingError(
            f"{where}: this must be ${{file:path:key}}, where path is a properties file and key is one of its keys"
        )
    try:
        lines = {line.key: line.value for line in parse(file_content(path).decode("latin-1"), path)}
    except OSError as error:
        raise SettingError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from None
    if key not in lines:
        raise SettingError(f"{where}: there is no {key} in {path}")
    return lines[key]


def parse(text: str, path: str = "") -> Iterator[Property]:
    """Yield the properties of a text in their order; `path` names the file in errors."""
    for line, number in _logical_lines(text):
        key_end = _find_separator(line)
        rest = line[key_end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        where = f"{path}, line {number}"
        yield Property(_unescape(line[:key_end], where), _unescape(rest, where), number)


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield lines with their continuations joined and their line numbers, without comments and blank lines."""
    joined, start = "", 0
    lines = re.split(r"\r\n|\r|\n", text)
    # Java reads one character ahead, so after "\r\n" it sees one more, empty line.
    last = len(lines) - (lines[-1] == "" and not text.endswith("\r\n"))
    for number, line in enumerate(lines, 1):
        line = line.lstrip(_BLANK)
        # As in Java, a continued line that is empty so far starts anew: the next line can be a comment.
        if not joined:
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
