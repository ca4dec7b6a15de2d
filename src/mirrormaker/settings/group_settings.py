"""The settings of consumer groups in a consumer file, as a typed value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirrormaker.errors import SettingError
from mirrormaker.settings.group_keys import EXCLUDED
from mirrormaker.settings.property_file import PropertyFile


@dataclass(frozen=True)
class GroupSettings:
    """The group settings of a consumer file; times are in seconds."""

    include: str | None = None
    exclude: str = EXCLUDED
    # None: the file does not say it.
    commits: bool | None = None
    interval: float = 5.0
    heartbeat_interval: float = 0.0  # 0: no heartbeats
    alias: str = ""
    target_alias: str = ""
    path: str = "the consumer file"  # for errors

    @property
    def chosen(self) -> str | None:
        """Return the groups to keep in step; None for none."""
        return self.include or (".*" if self.commits else None)


def check_exclusion(include: str | None, exclude: str | None, files: Iterable[GroupSettings]) -> None:
    """Raise SettingError if the command line excludes groups, and neither it nor a file chooses any."""
    if exclude is not None and include is None and all(file.chosen is None for file in files):
        raise SettingError(
            "--groups.exclude needs --groups, or groups in a consumer file: no group is chosen without them",
            option=True,
        )


def group_settings(file: PropertyFile) -> GroupSettings:
    """Return the settings of a consumer file."""
    commits = "sync.group.offsets.enabled"
    return GroupSettings(
        include=file.text("groups") or None,
        exclude=file.text("groups.exclude"),
        commits=bool(file.value(commits)) if file.has(commits) else None,
        interval=float(file.number("sync.group.offsets.interval.seconds")),
        heartbeat_interval=float(file.number("emit.heartbeats.interval.seconds"))
        if file.value("emit.heartbeats.enabled")
        else 0.0,
        alias=file.text("source.cluster.alias"),
        target_alias=file.text("target.cluster.alias"),
        path=file.properties.path,
    )
