"""A consumer or producer file, held against the table of keys line by line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys
from mirrormaker.settings.keys import Key
from mirrormaker.settings.properties import Properties, Property

OTHER = {"consumer": "producer", "producer": "consumer"}
# Of a batch.size that means bytes: nobody makes smaller batches, and 0.7's were 200 messages unless told otherwise.
_LEAST_BYTES = 1024


@dataclass(frozen=True)
class Line:
    """One line, and what became of it."""

    written: Property
    text: str = field(repr=False)  # the value as it stands there, without blanks around it
    key: Key | None = None
    value: Any = field(default=None, repr=False)
    note: str = ""
    error: str = ""


class File:
    """All lines of a file; the typed values are asked for by today's names."""

    def __init__(self, properties: Properties, side: str) -> None:
        self.properties, self.side = properties, side
        self.lines = [self._read(written) for written in properties.lines]
        self._disagreements()
        self._values = {key.name: line.value for key, line in self._in_force()}

    # -- reading

    def _read(self, written: Property) -> Line:
        where = f"{self.properties.path}, line {written.line}: {written.key}"
        line = Line(written, written.shown.strip())
        last = self.properties[written.key]
        if written is not last:
            return (
                replace(line, note=f"{where} is given again in line {last.line}, which counts")
                if written.value != last.value
                else line
            )
        key = keys.TABLE[self.side].get(written.key)
        if key is None:
            return replace(line, note=f"{where} {self._stranger(written.key)}")
        if key is keys.BATCH_SIZE and (why := self._means_messages(line.text)):
            note = f"{where}={line.text}: taken as messages, {why}; batches are packed by bytes"
            return self._understood(replace(line, note=note), keys.BATCH_MESSAGES)
        return self._understood(line, key)

    def _understood(self, line: Line, key: Key) -> Line:
        where, name = f"{self.properties.path}, line {line.written.line}", line.written.key
        try:
            value = key.kind.read(line.written.value.strip(), where, name)
        except SettingError as error:
            looked_up = f"{where}: {name}={line.text}: what this stands for must be {key.kind.wanted}"
            return replace(line, key=key, error=looked_up if line.written.written else str(error))
        line = replace(line, key=key, value=value)
        if reason := key.refuse(value):
            return replace(line, error=f"{where}: {name}={line.text}: {reason}")
        if note := key.note(value):
            return replace(line, note=f"{where}: {name}={line.text}: {note}")
        return line

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
        small = re.fullmatch("[0-9]+", text) and 0 < int(text) < _LEAST_BYTES
        return f"because it is less than {_LEAST_BYTES}" if small else ""

    def _in_force(self) -> Iterator[tuple[Key, Line]]:
        return ((line.key, line) for line in self.lines if line.key is not None and not line.error)

    def _disagreements(self) -> None:
        """One meaning under two names: the same value twice is fine, two values are not, if it has any effect."""
        first: dict[str, Line] = {}
        for key, line in list(self._in_force()):
            other = first.setdefault(key.name, line)
            if key.used and other.value != line.value:
                one, two = (f"{ln.written.key}={ln.text} (line {ln.written.line})" for ln in (other, line))
                said = f"{self.properties.path}: {one} and {two} are one setting with two values; remove one of them"
                self.lines[self.lines.index(line)] = replace(line, error=said)

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
        idle = ", ".join(line.written.key for key, line in self._in_force() if key.told and not line.note)
        path = self.properties.path
        return [*notes, f"{path}: without effect here: {idle} (why: mirrormaker settings {path})"] if idle else notes

    def has(self, name: str) -> bool:
        return name in self._values

    def where(self, name: str) -> str:
        """The place of a setting, whatever its name in the file."""
        written = self.written(name)
        return f"{self.properties.path}, line {written.line}" if written else self.properties.path

    def written(self, name: str) -> Property | None:
        return next((line.written for key, line in self._in_force() if key.name == name), None)

    def shown(self, name: str) -> str:
        """A value as it stands in the file, for errors."""
        written = self.written(name)
        return written.shown.strip() if written else ""

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
