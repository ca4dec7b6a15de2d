"""Write the tables of docs/compatibility.md.

Run `python -m mirrormaker.settings.reference_tables docs/compatibility.md` after a change to options or keys.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from mirrormaker.settings import keys
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.options import OPTIONS
from mirrormaker.settings.value_types import Key


def update_tables(page: str) -> str:
    """Return the page with its tables replaced; the text outside of their markers stays."""
    for name, table in _tables().items():
        begin = f"<!-- {name}: written by python -m mirrormaker.settings.reference_tables -->"
        end = f"<!-- {name}: end -->"
        if begin not in page or end not in page:
            raise ValueError(f"the page has no place for {name}: {begin} and {end} are missing")
        before, after = page[: page.index(begin)], page[page.index(end) :]
        page = f"{before}{begin}\n{table}\n{after}"
    return page


def options_table(options: Iterable[Option]) -> str:
    """Return a Markdown table of command line options."""
    rows = []
    for option in options:
        names = f"`{option.value}`" if option.is_positional else _codes(option.names)
        value = "" if option.is_positional else option.value_text
        rows.append((names, value, _default(option), option.help))
    return _table(("option", "value", "default", "what it does"), rows)


def _default(option: Option) -> str:
    if option.required:
        return "required"
    if option.value is None:
        return "off"
    return option.default_text or ("none" if option.default is None else _code(str(option.default)))


def _tables() -> dict[str, str]:
    sides = {"both": keys.COMMON, "consumer": keys.CONSUMER, "producer": keys.PRODUCER}
    tables = {"options": options_table(OPTIONS)}
    for side, side_keys in sides.items():
        tables[f"{side}, used"] = _used(key for key in side_keys if key.has_effect)
        tables[f"{side}, not used"] = _not_used(key for key in side_keys if not key.has_effect)
    return tables


def _used(used_keys: Iterable[Key]) -> str:
    rows = [
        (_code(key.name), _codes(key.old_names), key.type.unit, _code(key.default) if key.default else "", key.meaning)
        for key in used_keys
    ]
    return _table(("setting", "older names", "value", "default", "what it does"), rows)


def _not_used(ignored_keys: Iterable[Key]) -> str:
    rows = [
        (_code(key.name), _codes(key.old_names), key.meaning, "yes" if key.is_announced else "") for key in ignored_keys
    ]
    return _table(("setting", "older names", "why it has no effect", "noted at the start"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(_code, names))


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(update_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
