"""The user's choice of topics: a list of names, or a Java regular expression."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.wire.client.cluster_description import Topic

# Brokers do not mark all of these as internal.
_INTERNAL = re.compile(
    r"__consumer_offsets|__transaction_state|__share_group_state|__cluster_metadata|__mirrormaker_offsets"
)

Matcher = Callable[[str], bool]  # returns True if the pattern matches the whole name of a topic


def normalised(raw: str) -> str:
    """Return the pattern that every MirrorMaker makes of a list of topics before it compiles it."""
    text = raw.strip("".join(map(chr, range(33)))).replace(",", "|").replace(" ", "")
    return re.sub(r"[\"']+$", "", re.sub(r"^[\"']+", "", text))


def is_plain(pattern: str) -> bool:
    """Return True for a list of names or `.*`, which mean the same in Java and in Python: no JVM is needed."""
    return re.fullmatch(r"[\w.|-]+|\.\*", pattern, re.ASCII) is not None


@dataclass(frozen=True)
class Filter:
    """A whitelist, or a blacklist if `exclude` is True."""

    pattern: str
    exclude: bool

    @classmethod
    def of(cls, include: str | None, exclude: str | None) -> Filter:
        """Return the filter for a whitelist or a blacklist. Raise SettingError if it is empty."""
        raw = include if include is not None else exclude or ""
        pattern = normalised(raw)
        if not pattern:
            option = "--whitelist" if include is not None else "--blacklist"
            raise SettingError(f"{option} {raw!r}: this matches no topic; name at least one", option=True)
        return cls(pattern, include is None)

    @property
    def names(self) -> list[str]:
        """Return the topics that a whitelist names one by one; empty if it is a regular expression."""
        is_list = re.fullmatch(r"[\w.|-]+", self.pattern, re.ASCII) and not self.exclude
        return [name for name in self.pattern.split("|") if name] if is_list else []

    def chosen(self, topics: Iterable[Topic], matcher: Matcher) -> list[Topic]:
        """Return the topics to mirror. Internal ones never are: their records mean something to one cluster only."""
        return [t for t in topics if not _is_internal(t) and matcher(t.name) is not self.exclude]

    def by_name(self) -> Matcher:
        """Return a function that tells whether a name is chosen. It needs no JVM: Python reads the pattern, as it does almost all.

        Raise SettingError for a pattern that Python cannot read.
        """
        try:
            with warnings.catch_warnings():
                # Python warns of what Java reads in another way, for example [a-z&&[^x]].
                warnings.simplefilter("error")
                matcher = python_matcher(self.pattern)
        except (re.error, FutureWarning) as error:
            raise SettingError(
                f"{self.pattern}: this command reads regular expressions as Python does, which cannot read this one: {error};"
                " name the topics instead, separated by commas"
            ) from error
        return lambda name: matcher(name) is not self.exclude

    def left_out(self, topics: Iterable[Topic], matcher: Matcher) -> list[str]:
        """Return the internal topics that the filter would have chosen."""
        return sorted(t.name for t in topics if _is_internal(t) and matcher(t.name) is not self.exclude)


def _is_internal(topic: Topic) -> bool:
    return topic.internal or _INTERNAL.fullmatch(topic.name) is not None


def python_matcher(pattern: str) -> Matcher:
    """Return a matcher for a plain pattern."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda name: compiled.fullmatch(name) is not None
