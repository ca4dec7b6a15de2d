"""A consumer or producer file, with each line interpreted by the table of keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys
from mirrormaker.settings.properties import Properties, Property
from mirrormaker.settings.value_types import Key

OTHER_SIDE = {"consumer": "producer", "producer": "consumer"}
# A smaller batch.size is a number of messages: nobody makes batches of so few bytes, and Kafka 0.7's default was 200
# messages.
_SMALLEST_BATCH_BYTES = 1024


@dataclass(frozen=True)
class Line:
    """One line of a file and its interpretation."""

    written: Property
    text: str = field(repr=False)  # the value as the file has it, without blanks around it
    key: Key | None = None
    value: Any = field(default=None, repr=False)
    note: str = ""
    error: str = ""
    detail: str = ""  # the note or the error without the place and the setting


class PropertyFile:
    """All lines of a file. Typed values are requested by the current names of settings."""

    def __init__(self, properties: Properties, side: str) -> None:
        """`side` is "consumer" or "producer"."""
        self.properties, self.side = properties, side
        self.lines = [self._interpret(written) for written in properties.lines]
        self._refuse_contradictions()
        self._values = {key.name: line.value for key, line in self._valid_lines()}

    # -- interpreting lines

    def _place(self, written: Property) -> str:
        return f"{self.properties.path}, line {written.line}"

    def _interpret(self, written: Property) -> Line:
        line = Line(written, written.as_written.strip())
        last = self.properties[written.key]
        if written is not last:
            is_same = written.value == last.value
            return line if is_same else self._with_key_note(line, f"is given again in line {last.line}, which counts")
        key = keys.TABLE[self.side].get(written.key)
        if key is None:
            return self._with_key_note(line, self._unknown(written.key))
        if key is keys.BATCH_SIZE and (reason := self._why_messages(line.text)):
            line = self._read_value(line, keys.BATCH_MESSAGES)
            detail = f"taken as a number of messages, {reason}; batches are limited by bytes"
            return line if line.error else replace(line, note=self._message(line, detail), detail=detail)
        return self._read_value(line, key)

    def _read_value(self, line: Line, key: Key) -> Line:
        place, name = self._place(line.written), line.written.key
        try:
            value = key.type.read(line.written.value.strip(), place, name)
        except SettingError as error:
            message = str(error)
            if line.written.unresolved:  # the error shows the value, which can be a secret
                message = self._message(line, f"this must refer to {key.type.expected}")
            detail = message.removeprefix(f"{place}: ").removeprefix(f"{name}={line.text}: ")
            return replace(line, key=key, error=message, detail=detail)
        line = replace(line, key=key, value=value)
        if reason := key.refusal(value):
            return replace(line, error=self._message(line, reason), detail=reason)
        if note := key.note(value):
            return replace(line, note=self._message(line, note), detail=note)
        return line

    def _message(self, line: Line, detail: str) -> str:
        return f"{self._place(line.written)}: {line.written.key}={line.text}: {detail}"

    def _with_key_note(self, line: Line, detail: str) -> Line:
        return replace(line, note=f"{self._place(line.written)}: {line.written.key} {detail}", detail=detail)

    def _unknown(self, name: str) -> str:
        """Return the note on a key that this side does not have."""
        if name in keys.TABLE[OTHER_SIDE[self.side]]:
            return f"is a {OTHER_SIDE[self.side]} setting; it has no effect in a {self.side} file"
        similar = difflib.get_close_matches(name, keys.TABLE[self.side], 1, 0.75)
        return f"is not known; did you mean {similar[0]}?" if similar else "is not known"

    def _why_messages(self, text: str) -> str:
        """Return the reason why `batch.size` is a number of messages, as in Kafka 0.7; "" if it is bytes."""
        old_name = next((name for name in self.properties if keys.is_old_name(name, self.side)), "")
        if old_name:
            return f"as in the Kafka versions that had {old_name}"
        is_small = re.fullmatch("[0-9]+", text) and 0 < int(text) < _SMALLEST_BATCH_BYTES
        return f"because it is less than {_SMALLEST_BATCH_BYTES}" if is_small else ""

    def _valid_lines(self) -> Iterator[tuple[Key, Line]]:
        return ((line.key, line) for line in self.lines if line.key is not None and not line.error)

    def _refuse_contradictions(self) -> None:
        """Refuse a setting that has two values under two names, unless it has no effect anyway."""
        first_lines: dict[str, Line] = {}
        for key, line in list(self._valid_lines()):
            first = first_lines.setdefault(key.name, line)
            if key.has_effect and first.value != line.value:
                one, two = (f"{ln.written.key}={ln.text} (line {ln.written.line})" for ln in (first, line))
                detail = f"{one} and {two} are one setting with two values; remove one of them"
                refused = replace(line, error=f"{self.properties.path}: {detail}", detail=detail)
                self.lines[self.lines.index(line)] = refused

    # -- results

    def check(self) -> None:
        """Raise the first error of the file."""
        for line in self.lines:
            if line.error:
                raise SettingError(line.error)

    @property
    def notes(self) -> list[str]:
        """Return what the start says about the file."""
        notes = [line.note for line in self.lines if line.note]
        idle = ", ".join(line.written.key for key, line in self._valid_lines() if key.is_announced and not line.note)
        if idle:
            path = self.properties.path
            notes.append(f"{path}: these settings have no effect: {idle} (mirrormaker settings {path} says why)")
        return notes

    def has(self, name: str) -> bool:
        """Return True if the file sets a value, under any name."""
        return name in self._values

    def find(self, name: str) -> Property | None:
        """Return the line of a setting, whatever its name in the file; None if there is no such line."""
        return next((line.written for key, line in self._valid_lines() if key.name == name), None)

    def where(self, name: str) -> str:
        """Return the file and line of a setting, for messages; only the file if the setting is not there."""
        written = self.find(name)
        return self._place(written) if written else self.properties.path

    def as_written(self, name: str) -> str:
        """Return a value as the file has it, for messages."""
        written = self.find(name)
        return written.as_written.strip() if written else ""

    def value(self, name: str) -> Any:
        """Return the typed value from the file, or the default; None if there is neither."""
        if name in self._values:
            return self._values[name]
        key = keys.TABLE[self.side][name]
        return key.type.read(key.default, "default", name) if key.default else None

    def number(self, name: str) -> int:
        """Return the value of a numeric setting that has a default."""
        return int(self.value(name))

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a text setting; `default` if it is empty or not there."""
        return self.value(name) or default

    def required(self, name: str, example: str) -> str:
        """Return the value of a text setting, or raise an error that shows `example` if it is empty or not there."""
        value = self.text(name)
        if not value:
            raise SettingError(f"{self.properties.path}: {name} is missing; add a line like {name}={example}")
        return value
