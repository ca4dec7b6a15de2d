"""Generate the tables of docs/compatibility.md: `python -m mirrormaker.settings.reference_tables docs/compatibility.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from mirrormaker.settings import keys
from mirrormaker.settings.keys import Key
from mirrormaker.settings.options import OPTIONS


def rewritten(page: str) -> str:
    """The page with its tables as the code has them; everything outside of the markers stays."""
    for name, table in _tables().items():
        begin, end = (
            f"<!-- {name}: written by python -m mirrormaker.settings.reference_tables -->",
            f"<!-- {name}: end -->",
        )
        if begin not in page or end not in page:
            raise ValueError(f"the page has no place for {name}: {begin} and {end} are missing")
        before, after = page[: page.index(begin)], page[page.index(end) :]
        page = f"{before}{begin}\n{table}\n{after}"
    return page


def _tables() -> dict[str, str]:
    sides = {"both": keys.COMMON, "consumer": keys.CONSUMER, "producer": keys.PRODUCER}
    tables = {"options": _options()}
    for side, found in sides.items():
        tables[f"{side}, used"] = _used(key for key in found if key.used)
        tables[f"{side}, not used"] = _not_used(key for key in found if not key.used)
    return tables


def _options() -> str:
    rows = []
    for option in OPTIONS:
        default = "" if option.default is None else _code(str(option.default))
        rows.append((", ".join(map(_code, option.names)), option.value or "", default, option.help))
    return _table(("option", "value", "default", "what it does"), rows)


def _used(found: Iterable[Key]) -> str:
    rows = [
        (_code(k.name), _codes(k.old), k.kind.unit, _code(k.default) if k.default else "", k.meaning) for k in found
    ]
    return _table(("setting", "older names", "value", "default", "what it does"), rows)


def _not_used(found: Iterable[Key]) -> str:
    rows = [(_code(k.name), _codes(k.old), k.meaning, "yes" if k.told else "") for k in found]
    return _table(("setting", "older names", "why it does nothing here", "said at the start"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(_code, names))


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
