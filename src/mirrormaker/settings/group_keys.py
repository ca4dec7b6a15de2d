"""The keys of a consumer file that keep consumer groups in step on the target. Most are MirrorMaker 2's."""

from __future__ import annotations

from mirrormaker.settings.security_keys import ignored
from mirrormaker.settings.value_types import FLAG, TEXT, Key, number

_SECONDS = number(1, 86_400, unit="seconds")
# MirrorMaker 2's own default: consoles have random names, and Connect's groups belong to its workers.
EXCLUDED = "console-consumer-.*,connect-.*,__.*"

GROUPS = (
    Key(
        "groups", TEXT,
        "The consumer groups whose offsets are kept in step on the target: regular expressions, separated by commas. Used"
        " if --groups is not given. Without both, groups are left alone, unless sync.group.offsets.enabled=true.",
    ),
    Key(
        "groups.exclude", TEXT, "The groups to leave alone, even if groups matches them.", EXCLUDED,
        old_names=("groups.blacklist",),
    ),
    Key(
        "sync.group.offsets.enabled", FLAG,
        "true without groups: all groups are kept in step. false with groups: only checkpoints are written, no offsets.",
    ),
    Key(
        "sync.group.offsets.interval.seconds", _SECONDS,
        "The interval between two looks at the groups of both clusters. MirrorMaker 2's default is 60.", "5",
    ),
    Key(
        "emit.checkpoints.enabled", FLAG,
        "Checkpoints in MirrorMaker 2's format are written whenever groups are kept in step: they are the memory of it.",
        "true",
        note=lambda value: "" if value
        else "checkpoints are written all the same if groups are kept in step: they tell whose offsets are on the target",
    ),
    Key(
        "emit.heartbeats.enabled", FLAG,
        "true writes MirrorMaker 2's heartbeats to the topic heartbeats of the target. MirrorMaker 2's default is true.",
        "false",
    ),
    Key("emit.heartbeats.interval.seconds", _SECONDS, "The interval between two heartbeats.", "1"),
    Key(
        "source.cluster.alias", TEXT,
        "The name of the source in <alias>.checkpoints.internal and in heartbeats. Without it: the id of its cluster.",
    ),
    Key("target.cluster.alias", TEXT, "The name of the target in heartbeats. Without it: the id of its cluster."),
    ignored(
        "emit.checkpoints.interval.seconds", _SECONDS, "Checkpoints are written together with the offsets of groups.",
    ),
    ignored("refresh.groups.enabled", FLAG, "Groups are found anew in every round."),
    ignored("refresh.groups.interval.seconds", _SECONDS, "Groups are found anew in every round."),
)  # fmt: skip
