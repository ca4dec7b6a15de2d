"""The user's choice of topics: a list of names, or a Java regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.wire.client.cluster import Topic

_INTERNAL = re.compile(r"__consumer_offsets|__transaction_state|__share_group_state|__cluster_metadata")

Matcher = Callable[[str], bool]


def normalised(raw: str) -> str:
    """What every MirrorMaker did to a list of topics before compiling it."""
    text = raw.strip("".join(map(chr, range(33)))).replace(",", "|").replace(" ", "")
    return re.sub(r"[\"']+$", "", re.sub(r"^[\"']+", "", text))


def is_plain(pattern: str) -> bool:
    """A list of names: Java's and Python's ideas of it are the same, and no JVM has to be asked."""
    return re.fullmatch(r"[\w.|-]+|\.\*", pattern, re.ASCII) is not None


@dataclass(frozen=True)
class Filter:
    """The user's choice of topics."""

    pattern: str
    exclude: bool

    @classmethod
    def of(cls, include: str | None, exclude: str | None) -> Filter:
        raw = include if include is not None else exclude or ""
        pattern = normalised(raw)
        if not pattern:
            option = "--whitelist" if include is not None else "--blacklist"
            raise SettingError(f"{option} {raw!r}: this matches no topic; name at least one", option=True)
        return cls(pattern, include is None)

    @property
    def names(self) -> list[str]:
        """Topics that are named one by one."""
        named = re.fullmatch(r"[\w.|-]+", self.pattern, re.ASCII) and not self.exclude
        return [name for name in self.pattern.split("|") if name] if named else []

    def chosen(self, topics: Iterable[Topic], judge: Matcher) -> list[Topic]:
        """Internal topics never: their records mean something to one cluster only."""
        return [t for t in topics if not _is_internal(t) and judge(t.name) is not self.exclude]

    def left_out(self, topics: Iterable[Topic], judge: Matcher) -> list[str]:
        """Internal topics that the pattern would have chosen."""
        return sorted(t.name for t in topics if _is_internal(t) and judge(t.name) is not self.exclude)


def _is_internal(topic: Topic) -> bool:
    return topic.internal or _INTERNAL.fullmatch(topic.name) is not None


def python_matcher(pattern: str) -> Matcher:
    compiled = re.compile(pattern, re.ASCII)
    return lambda name: compiled.fullmatch(name) is not None
