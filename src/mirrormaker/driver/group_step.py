"""The part of a flow that keeps consumer groups in step on the target and writes heartbeats, if the user has chosen any."""

from __future__ import annotations

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.errors import SettingError
from mirrormaker.events import event
from mirrormaker.groups.choice import GroupChoice
from mirrormaker.groups.sync import GroupSync, SyncSettings
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.wire.client.cluster import Cluster


def choice_of(options: RunOptions, settings: SourceSettings) -> GroupChoice | None:
    """Return the groups that the command line or the consumer file chooses; None for none."""
    return GroupChoice.from_settings(options.groups, options.groups_exclude, settings.groups)


def group_sync_of(
    source: Cluster,
    target: Cluster,
    settings: SourceSettings,
    options: RunOptions,
    offset_map: MapKeeper | None,
    scheduler: Scheduler,
    membership: Membership,
    report: event.Report,
) -> GroupSync | None:
    """Return the loop that keeps groups in step and writes heartbeats; None if neither is chosen.

    Raise SettingError if groups are chosen, and there is no offset map.
    """
    choice, groups = choice_of(options, settings), settings.groups
    if choice is None and not groups.heartbeat_interval:
        return None
    if choice is not None and offset_map is None:
        raise SettingError("groups are kept in step by the offset map: remove offset.map=false, or choose no groups")
    sync = SyncSettings(
        # The mirror's own group holds its positions on the source.
        is_chosen=lambda name: choice is not None and name != settings.group_id and choice(name),
        has_groups=choice is not None,
        alias=groups.alias,
        target_alias=groups.target_alias,
        interval=groups.interval,
        commits=groups.commits is not False,
        heartbeat_interval=groups.heartbeat_interval,
        has_handler=options.message_handler is not None,
        is_mirrored=lambda name: name in membership.topics,
    )
    return GroupSync(source, target, sync, offset_map, lambda: scheduler.owned.keys(), report)
