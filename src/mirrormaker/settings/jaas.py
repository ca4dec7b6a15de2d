"""Parse JAAS login configurations: login modules with their options, in a file or in `sasl.jaas.config`.

Syntax errors never quote the text, because a password without its quotes looks like any other word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mirrormaker.errors import SettingError
from mirrormaker.settings.properties import file_content

SECTION = "KafkaClient"
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<mark>[{};=])
      | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<word>(?:\$\{(?:env|file):[^}]*\}|[^\s{};="'])+)""",
    re.S | re.X,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_EXAMPLE = 'like KafkaClient { MODULE required name="value"; };'


@dataclass(frozen=True)
class Entry:
    """One login module with its options."""

    module: str  # the class name without its package, which differs between Java vendors
    options: dict[str, str] = field(repr=False)
    where: str  # the place of the login module, for messages


@dataclass(frozen=True)
class _Token:
    kind: str  # "mark", "text" or "end"
    text: str = field(repr=False)
    line: int


def read(path: str, named_by: str, *, option: bool = False) -> list[Entry]:
    """Return the login modules in a file's KafkaClient section.

    `named_by` says who names the file; `option` is True if that is a command line option.
    """
    try:
        text = file_content(path).decode()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingError(f"{named_by}: {path}: {reason}", option=option) from None
    except UnicodeDecodeError:
        reason = "this is not a login configuration (it contains binary data)"
        raise SettingError(f"{named_by}: {path}: {reason}", option=option) from None
    sections = _Parser(text, path).sections()
    if SECTION not in sections:
        others = f"; it has {', '.join(sections)}" if sections else ""
        raise SettingError(f"{named_by}: {path} has no section {SECTION}{others}: add one {_EXAMPLE}", option=option)
    return sections[SECTION]


def entries(text: str, where: str) -> list[Entry]:
    """Return the login modules in `sasl.jaas.config`, which has no sections.

    A reference such as ${env:NAME} is part of an option's value, quoted or not, and stays in it.
    """
    return _Parser(text, where, is_file=False).entries()


class _Parser:
    def __init__(self, text: str, path: str, *, is_file: bool = True) -> None:
        self._path, self._is_file = path, is_file
        self._tokens = self._tokenize(text)
        self._next = next(self._tokens)

    def sections(self) -> dict[str, list[Entry]]:
        sections: dict[str, list[Entry]] = {}
        while self._next.kind != "end":
            line = self._next.line
            name = self._take_text("the name of a section")
            if name in sections:
                raise self._error(line, f"there are two sections {name}; keep one of them")
            self._take_mark("{", "{ after the name of the section")
            sections[name] = list(self._entries_until("}"))
            self._take_mark(";", "; after the } of the section")
        return sections

    def entries(self) -> list[Entry]:
        return list(self._entries_until(""))

    def _entries_until(self, end: str) -> Iterator[Entry]:
        """Yield the login modules up to a mark, or to the end of the text if `end` is empty."""
        while not (self._next.kind == "end" if not end else self._is_mark(end)):
            yield self._entry()
        if end:
            self._take()

    def _entry(self) -> Entry:
        line = self._next.line
        module = self._take_text("a login module like org.apache.kafka.common.security.plain.PlainLoginModule")
        flag_line = self._next.line
        if self._take_text(f"one of {', '.join(_FLAGS)} after the login module").lower() not in _FLAGS:
            raise self._error(flag_line, f"one of {', '.join(_FLAGS)} is expected after the login module")
        options: dict[str, str] = {}
        while not self._is_mark(";"):
            name = self._take_text('name="value", or ; at the end of the login module')
            self._take_mark("=", "= after the name of an option (a value with blanks or marks needs quotes)")
            options[name] = self._take_text("a value after =, in quotes unless it has only letters and digits,")
        self._take()
        return Entry(module.rpartition(".")[2], options, self._where(line))

    def _take_text(self, expected: str) -> str:
        if self._next.kind != "text":
            raise self._unexpected(expected)
        return self._take().text

    def _take_mark(self, mark: str, expected: str) -> None:
        if not self._is_mark(mark):
            raise self._unexpected(expected)
        self._take()

    def _is_mark(self, mark: str) -> bool:
        return self._next.kind == "mark" and self._next.text == mark

    def _take(self) -> _Token:
        token, self._next = self._next, next(self._tokens)
        return token

    def _tokenize(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(line, "a quote is opened here and not closed")
            if match["quoted"]:
                yield _Token("text", _unquoted(match["quoted"]), line)
            elif match["word"]:
                yield _Token("text", match["word"], line)
            elif match["mark"]:
                yield _Token("mark", match["mark"], line)
            line += match[0].count("\n")
            at = match.end()
        while True:
            yield _Token("end", "", line)

    def _where(self, line: int) -> str:
        return f"{self._path}, line {line}" if self._is_file else self._path

    def _unexpected(self, expected: str) -> SettingError:
        instead = {"mark": f", not {self._next.text}", "end": ", but the text ends"}.get(self._next.kind, "")
        return self._error(self._next.line, f"{expected} is expected here{instead}")

    def _error(self, line: int, reason: str) -> SettingError:
        return SettingError(f"{self._where(line)}: {reason}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.S)
