"""The user's choice of groups: two lists of regular expressions, as MirrorMaker 2 has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.settings.group_settings import GroupSettings


@dataclass(frozen=True)
class GroupChoice:
    """Groups whose whole name matches one of `include`, and none of `exclude`."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    @classmethod
    def from_settings(cls, include: str | None, exclude: str | None, file: GroupSettings) -> GroupChoice | None:
        """Return the choice of the command line, or else of a consumer file; None for no group.

        Raise SettingError for a list that is no regular expression, and for an option that names no group.
        """
        if include is not None and not include.strip(" ,"):
            raise SettingError(
                f"--groups '{include}': this names no group; write --groups \".*\" for all of them", option=True
            )
        if include is None and file.chosen is None:
            return None
        return cls(
            _compiled("groups", include, file.chosen or "", file),
            _compiled("groups.exclude", exclude, file.exclude, file),
        )

    def __call__(self, name: str) -> bool:
        """Return True if the group is chosen."""
        return bool(self.include.fullmatch(name)) and not self.exclude.fullmatch(name)


def _compiled(key: str, option: str | None, in_file: str, file: GroupSettings) -> re.Pattern[str]:
    """Return the pattern of an option, or else of the file. An empty list matches nothing."""
    text = in_file if option is None else option
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        for part in parts:
            # Each for itself: a bracket may not begin in one and end in the next.
            re.compile(part)
        return re.compile("|".join(f"(?:{part})" for part in parts) or r"(?!)")
    except re.error as error:
        place = f"{file.path}: {key}={text}" if option is None else f"--{key} '{text}'"
        raise SettingError(
            f"{place}: this must be regular expressions, separated by commas: {error.msg}", option=option is not None
        ) from error
