"""The user's choice of groups: two lists of regular expressions, as MirrorMaker 2 has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.settings.group_keys import EXCLUDED
from mirrormaker.settings.group_settings import GroupSettings


@dataclass(frozen=True)
class GroupChoice:
    """Groups whose whole name matches one of `include`, and none of `exclude`."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    @classmethod
    def of(cls, include: str, exclude: str | None) -> GroupChoice:
        """Return the choice for two lists with commas; raise SettingError for one that is no regular expression."""
        return cls(_compiled("groups", include), _compiled("groups.exclude", EXCLUDED if exclude is None else exclude))

    @classmethod
    def from_settings(cls, include: str | None, exclude: str | None, file: GroupSettings) -> GroupChoice | None:
        """Return the choice of the command line, or else of a consumer file; None for no group."""
        chosen = include or file.chosen
        return None if chosen is None else cls.of(chosen, exclude or file.exclude)

    def __call__(self, name: str) -> bool:
        """Return True if the group is chosen."""
        return bool(self.include.fullmatch(name)) and not self.exclude.fullmatch(name)


def _compiled(key: str, text: str) -> re.Pattern[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        # An empty list matches nothing.
        return re.compile("|".join(f"(?:{part})" for part in parts) or r"(?!)")
    except re.error as error:
        raise SettingError(f"{key} {text!r}: this is no list of regular expressions: {error}") from error
