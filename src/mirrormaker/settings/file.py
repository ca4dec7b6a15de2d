"""A consumer or producer file, held against the table of keys line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys
from mirrormaker.settings.keys import Key
from mirrormaker.settings.properties import Properties, Property

OTHER = {"consumer": "producer", "producer": "consumer"}
_LEAST_BYTES = (
    1024  # of a batch.size that means bytes: nobody makes smaller batches, and many made batches of 200 messages
)


@dataclass(frozen=True)
class Line:
    """One line, and what became of it."""

    written: Property
    text: str  # the value without blanks around it
    key: Key | None = None
    value: Any = None
    note: str = ""
    error: str = ""

    @property
    def is_fine(self) -> bool:
        return self.key is not None and not self.error


class File:
    """All lines of a file; the typed values are asked for by today's names."""

    def __init__(self, properties: Properties, side: str) -> None:
        self.properties, self.side = properties, side
        self.lines = [self._read(line) for line in properties.lines]
        self._disagreements()
        self._values = {line.key.name: line.value for line in self._in_force() if line.key is not None}

    # -- reading

    def _read(self, written: Property) -> Line:
        where = f"{self.properties.path}, line {written.line}"
        line = Line(written, written.value.strip())
        if written is not self.properties[written.key]:
            last = self.properties[written.key]
            differs = (
                ""
                if written.value == last.value
                else f"{where}: {written.key} is given again in line {last.line}, which counts"
            )
            return replace(line, note=differs)
        if keys.SECURITY.fullmatch(written.key):
            return replace(line, error=f"{where}: {written.key}: {keys.NO_SECURITY}")
        key = keys.TABLE[self.side].get(written.key)
        if key is None:
            return replace(line, note=f"{where}: {written.key} {self._stranger(written.key)}")
        try:
            if key is keys.BATCH_SIZE and (why := self._means_messages(line.text)):
                key = keys.BATCH_MESSAGES
                line = replace(
                    line,
                    note=f"{where}: {written.key}={line.text}: taken as messages, {why}; batches are packed by bytes",
                )
            value = key.kind.read(line.text, where, written.key)
        except SettingError as error:
            return replace(line, key=key, error=str(error))
        line = replace(line, key=key, value=value)
        said = f"{where}: {written.key}={line.text}: "
        if reason := key.refuse(value):
            return replace(line, error=said + reason)
        note = key.note(value)
        return replace(line, note=said + note if note else line.note)

    def _stranger(self, name: str) -> str:
        """What to say of a key that this side does not have."""
        if name in keys.TABLE[OTHER[self.side]]:
            return f"is a {OTHER[self.side]}'s setting; here it does nothing"
        near = difflib.get_close_matches(name, keys.TABLE[self.side], 1, 0.75)
        return f"is not known; did you mean {near[0]}?" if near else "is not known"

    def _means_messages(self, text: str) -> str:
        """Why `batch.size` is 0.7's number of messages and not today's number of bytes; "" if it is not."""
        old = next((name for name in self.properties if keys.is_old(name, self.side)), "")
        if old:
            return f"as it was in the times of {old}"
        return f"because it is less than {_LEAST_BYTES}" if text.isdecimal() and 0 < int(text) < _LEAST_BYTES else ""

    def _in_force(self) -> Iterator[Line]:
        return (line for line in self.lines if line.is_fine)

    def _disagreements(self) -> None:
        """One meaning under two names: the same value twice is fine, two values are not."""
        first: dict[str, Line] = {}
        for at, line in enumerate(self.lines):
            if not line.is_fine or line.key is None or not line.key.used:
                continue
            other = first.setdefault(line.key.name, line)
            if other.value != line.value:
                one, two = (f"{ln.written.key}={ln.text} (line {ln.written.line})" for ln in (other, line))
                self.lines[at] = replace(
                    line,
                    error=f"{self.properties.path}: {one} and {two} are one setting with two values; remove one of them",
                )

    # -- what was found

    def check(self) -> None:
        """Raise the first mistake."""
        for line in self.lines:
            if line.error:
                raise SettingError(line.error)

    @property
    def notes(self) -> list[str]:
        """What the start should say about the file."""
        notes = [line.note for line in self.lines if line.note]
        idle = [
            line.written.key for line in self._in_force() if line.key is not None and line.key.told and not line.note
        ]
        if idle:
            notes.append(
                f"{self.properties.path}: without effect here: {', '.join(idle)} (mirrormaker settings {self.properties.path})"
            )
        return notes

    def has(self, name: str) -> bool:
        return name in self._values

    def where(self, name: str) -> str:
        """The place of a setting, whatever its name in the file."""
        written = self.written(name)
        return f"{self.properties.path}, line {written.line}" if written else self.properties.path

    def written(self, name: str) -> Property | None:
        return next((ln.written for ln in self._in_force() if ln.key is not None and ln.key.name == name), None)

    def value(self, name: str) -> Any:
        """The file's value or the default, typed; None if there is neither."""
        if name in self._values:
            return self._values[name]
        key = keys.TABLE[self.side][name]
        return key.kind.read(key.default, "default", name) if key.default else None

    def number(self, name: str) -> int:
        return int(self.value(name))

    def text(self, name: str, default: str = "") -> str:
        return self.value(name) or default

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise SettingError(f"{self.properties.path}: {name} is missing; add a line like {name}={example}")
        return value
