"""Java's login configuration: sections of login modules with their options, in a file or in `sasl.jaas.config`.

What stands in an option is never shown: a password without its quotes looks like any other word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mirrormaker.errors import SettingError

SECTION = "KafkaClient"
_TOKEN = re.compile(
    r"""(?P<nothing>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<mark>[{};=])
      | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<word>[^\s{};="']+)""",
    re.S | re.X,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_EXAMPLE = 'like KafkaClient { MODULE required name="value"; };'


@dataclass(frozen=True)
class Entry:
    """One login module of a section."""

    module: str  # without its package, which differs from one Java to the other
    options: dict[str, str] = field(repr=False)
    where: str


@dataclass(frozen=True)
class _Token:
    kind: str  # "mark", "text" or "end"
    text: str = field(repr=False)
    line: int


def read(path: str, named_by: str) -> list[Entry]:
    """The entries for Kafka's clients of a login configuration file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{named_by}: {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{named_by}: {path}: this is not a login configuration (it holds binary data)") from None
    sections = _Parser(text, path).sections()
    if SECTION not in sections:
        there = f"; it has {', '.join(sections)}" if sections else ""
        raise SettingError(f"{named_by}: {path} has no section {SECTION}{there}: add one {_EXAMPLE}")
    return sections[SECTION]


def entries(text: str, where: str) -> list[Entry]:
    """The entries of `sasl.jaas.config`, which has no sections."""
    return _Parser(text, where, is_file=False).entries_to_the_end()


class _Parser:
    def __init__(self, text: str, path: str, *, is_file: bool = True) -> None:
        self._path, self._is_file = path, is_file
        self._tokens = self._cut(text)
        self._next = next(self._tokens)

    def sections(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        while self._next.kind != "end":
            line = self._next.line
            name = self._text("the name of a section")
            if name in found:
                raise self._mistake(line, f"there are two sections {name}; keep one of them")
            self._mark("{", "{ behind the name of the section")
            found[name] = list(self._until("}"))
            self._mark(";", "; behind the } of the section")
        return found

    def entries_to_the_end(self) -> list[Entry]:
        return list(self._until(""))

    def _until(self, end: str) -> Iterator[Entry]:
        """Entries up to a mark, or to the end of the text."""
        while not (self._next.kind == "end" if not end else self._is_mark(end)):
            yield self._entry()
        if end:
            self._take()

    def _entry(self) -> Entry:
        line = self._next.line
        module = self._text("a login module, as org.apache.kafka.common.security.plain.PlainLoginModule")
        flag_line = self._next.line
        if self._text(f"one of {', '.join(_FLAGS)} behind the login module").lower() not in _FLAGS:
            raise self._mistake(flag_line, f"one of {', '.join(_FLAGS)} is expected behind the login module")
        options: dict[str, str] = {}
        while not self._is_mark(";"):
            name = self._text('name="value", or ; at the end of the login module')
            self._mark("=", "= behind the name of an option (a value with blanks or marks needs quotes)")
            options[name] = self._text("a value behind =, in quotes if it holds anything but letters and digits")
        self._take()
        return Entry(module.rpartition(".")[2], options, self._where(line))

    def _text(self, wanted: str) -> str:
        if self._next.kind != "text":
            raise self._mistake(self._next.line, self._expected(wanted))
        return self._take().text

    def _mark(self, mark: str, wanted: str) -> None:
        if not self._is_mark(mark):
            raise self._mistake(self._next.line, self._expected(wanted))
        self._take()

    def _is_mark(self, mark: str) -> bool:
        return self._next.kind == "mark" and self._next.text == mark

    def _take(self) -> _Token:
        taken, self._next = self._next, next(self._tokens)
        return taken

    def _expected(self, wanted: str) -> str:
        found = {"mark": f", not {self._next.text}", "end": ", and the text ends"}.get(self._next.kind, "")
        return f"{wanted} is expected here{found}"

    def _cut(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._mistake(line, "a quote is opened here and not closed")
            if found["quoted"]:
                yield _Token("text", _unquoted(found["quoted"]), line)
            elif found["word"]:
                yield _Token("text", found["word"], line)
            elif found["mark"]:
                yield _Token("mark", found["mark"], line)
            line += found[0].count("\n")
            at = found.end()
        while True:
            yield _Token("end", "", line)

    def _where(self, line: int) -> str:
        return f"{self._path}, line {line}" if self._is_file else self._path

    def _mistake(self, line: int, said: str) -> SettingError:
        return SettingError(f"{self._where(line)}: {said}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.S)
