"""host:port lists, and the ways in which people write them wrong."""

from __future__ import annotations

import re

from mirrormaker.errors import SettingError


def addresses(text: str, where: str, key: str) -> tuple[tuple[str, int], ...]:
    """Parse `host:port,host:port`; `where` and `key` name the place in errors."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(?:[A-Za-z_]+://)?(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:/\[\]]+)):(\d{1,5})", part)
        if match and 0 < int(match[3]) < 65536:
            found.append((match[1] or match[2], int(match[3])))
            continue
        dash = re.fullmatch(r"([A-Za-z0-9_.-]*[A-Za-z0-9_])-(\d{4,5})", part)
        if dash:
            raise SettingError(
                f"{where}: {key}={text}: '{part}' has a dash where the colon belongs; write {dash[1]}:{dash[2]}"
            )
        raise SettingError(f"{where}: {key}={text}: '{part}' is not host:port")
    if not found:
        raise SettingError(f"{where}: {key} names no broker; write {key}=host:9092")
    return tuple(dict.fromkeys(found))
