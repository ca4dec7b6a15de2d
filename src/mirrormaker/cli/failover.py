"""`mirrormaker failover`: let consumers and producers go on at the target, and close the flow."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import os
import socket
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import ClusterError, SettingError, describe
from mirrormaker.model.topic_filter import Filter
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.command_line import Option, is_given
from mirrormaker.settings.group_settings import check_exclusion
from mirrormaker.settings.login import login_files

if TYPE_CHECKING:
    from mirrormaker.groups.failover_report import FailoverReport
    from mirrormaker.groups.sync import SyncSettings

_FAILOVER, _OUTPUT = "failing over", "output"
_SHARED_WITH_RUN = {
    "--consumer.config": "Property file of the source cluster, as the mirror runs with it.",
    "--producer.config": "",
    "--whitelist": "Topics to fail over, as the mirror has them: a Java regular expression that matches the whole name."
    " A comma means 'or'; spaces are ignored.",
    "--blacklist": "Fail over all topics except those whose names match this Java regular expression.",
    "--groups": "Consumer groups that go on at the target, as the mirror has them: regular expressions, separated by"
    " commas.",
    "--groups.exclude": "",
    "--jaas.config": "",
    "--krb5.config": "",
    "-D": "",
}
_OPTIONS = (
    *(
        replace(option, help=_SHARED_WITH_RUN[option.names[0]] or option.help)
        for option in options.OPTIONS
        if option.names[0] in _SHARED_WITH_RUN
    ),
    Option(
        ("--source.is.gone",),
        "Do not ask the source at all. Everything comes from the target: the offset map, the checkpoints and the logs.",
        group=_FAILOVER,
    ),
    Option(
        ("--deadline.ms",), "Longest wait in milliseconds until everything is mirrored. Not with --source.is.gone or --undo.",
        "MS", 60_000, type=int, group=_FAILOVER,
    ),
    Option(
        ("--accept.missing",),
        "Fail over at the deadline even if records are not mirrored yet. By default nothing is changed then.",
        group=_FAILOVER,
    ),
    Option(
        ("--dry.run",), "Change nothing, and do not wait: show what a failover would find now.", group=_FAILOVER,
    ),
    Option(
        ("--repeat",), "Go on with a failover that was interrupted: the flow may be closed already.", group=_FAILOVER,
    ),
    Option(
        ("--undo",), "Open the flow again, so that a mirror can be started: the fence is removed, nothing else.",
        group=_FAILOVER,
    ),
    Option(
        ("--source.id",), "The id of the source cluster, if it is gone and the target has maps of several.",
        "ID", default_text="the id that the source tells, or the only one in the map", group=_FAILOVER,
    ),
    Option(("--json",), "Print the result as JSON.", group=_OUTPUT),
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Fail over and print the tables; exit 0 if everything is there, 3 if something is missing."""
    _check(args)
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    source = source_settings(properties.read(args.consumer_config[0], "--consumer.config"), logins)
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    try:
        if args.undo:
            print(asyncio.run(_undone(args, source, target)))
            return 0
        report = asyncio.run(_failed_over(args, source, target, _filter(args, source)))
    except OSError as error:
        raise ClusterError(f"a cluster cannot be reached: {describe(error)}") from error
    print(json.dumps(report.to_json(), indent=2) if args.json else "\n".join(report.lines()))
    return report.exit_code


def _check(args: argparse.Namespace) -> None:
    if len(args.consumer_config) != 1:
        raise SettingError("--consumer.config: name the one source cluster that is left", option=True)
    options.check_clusters_and_topics(args)
    if args.deadline_ms < 0:
        raise SettingError(f"--deadline.ms {args.deadline_ms}: this must be at least 0", option=True)
    waits = {"--accept.missing": args.accept_missing, "--deadline.ms": is_given(args, "deadline_ms")}
    others = {"--dry.run": args.dry_run, "--repeat": args.repeat, **waits, "--json": args.json}
    for name in (name for name, given in others.items() if given):
        if args.undo:
            raise SettingError(f"--undo and {name} contradict each other: give one of them", option=True)
        if args.source_is_gone and name in waits:
            raise SettingError(f"{name} needs the source: with --source.is.gone nothing is waited for", option=True)


def _filter(args: argparse.Namespace, source: SourceSettings) -> Filter:
    include, exclude = args.whitelist, args.blacklist
    if include is None and exclude is None:
        include, exclude = source.include, source.exclude
    if not include and not exclude:
        raise SettingError(options.TOPICS_MISSING, option=True)
    return Filter.of(include, exclude)


async def _failed_over(
    args: argparse.Namespace, source: SourceSettings, target: TargetSettings, topics: Filter
) -> FailoverReport:
    from mirrormaker.groups.failover import Failover, FailoverSettings
    from mirrormaker.mapping.flow_choice import find_map, id_of
    from mirrormaker.wire.client.cluster import Cluster, reach
    from mirrormaker.zookeeper.lookup import endpoint_of

    is_chosen = topics.by_name()  # a mistake in it is told before anybody is asked
    settings = FailoverSettings(
        group_id=source.group_id,
        topics=topics,
        sync=_sync_settings(args, source),
        by=_user(),
        read_committed=source.read_committed,
        deadline=args.deadline_ms / 1000,
        is_dry=args.dry_run,
        accepts_missing=args.accept_missing,
        is_repeated=args.repeat,
    )
    here = None if args.source_is_gone else Cluster(await endpoint_of(source))
    there = Cluster(await endpoint_of(target))
    try:
        source_id = args.source_id or ""
        if here is not None:
            found = await id_of(here, source.group_id)
            if source_id not in ("", found):
                raise SettingError(
                    f"--source.id {source_id}: the source in {source.path} has the id {found}", option=True
                )
            source_id = found
        await reach("target", there)
        topic = await find_map(there, source_id, is_chosen)
        return await Failover(here, there, topic, settings, _show).run()
    finally:
        if here is not None:
            here.close()
        there.close()


async def _undone(args: argparse.Namespace, source: SourceSettings, target: TargetSettings) -> str:
    from mirrormaker.mapping.fence_watch import describe_fence
    from mirrormaker.mapping.flow_choice import find_map, id_of, undo
    from mirrormaker.wire.client.cluster import Cluster, reach
    from mirrormaker.zookeeper.lookup import endpoint_of

    here, there = Cluster(source.endpoint), Cluster(await endpoint_of(target))
    try:
        source_id = args.source_id or ""
        if not source_id and not args.source_is_gone:
            here.endpoint = await endpoint_of(source)
            source_id = await id_of(here, source.group_id)
        await reach("target", there)
        topic = await find_map(there, source_id)
        return f"{describe_fence(await undo(topic))}; it is open again, and a mirror of it can be started"
    finally:
        here.close()
        there.close()


def _sync_settings(args: argparse.Namespace, source: SourceSettings) -> SyncSettings | None:
    from mirrormaker.groups.choice import GroupChoice
    from mirrormaker.groups.sync import SyncSettings

    check_exclusion(args.groups, args.groups_exclude, [source.groups])
    choice = GroupChoice.from_settings(args.groups, args.groups_exclude, source.groups)
    if choice is None:
        return None
    return SyncSettings(
        is_chosen=lambda name: name != source.group_id and choice(name),
        alias=source.groups.alias,
        commits=source.groups.commits is not False,
    )


def _user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container without a list of users
        return socket.gethostname()


def _show(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


COMMAND = Command(
    name="failover",
    purpose="let consumers and producers go on at the target",
    usage="--consumer.config FILE --producer.config FILE --whitelist REGEX [OPTION ...]",
    description="Wait until the mirror has caught up, close its flow, bring the offsets of consumer groups up to date, and"
    " show how far every topic and group is. A flow that is closed stays closed: a running mirror of it stops within"
    " seconds, and none starts again before --undo. docs/failover.md is the runbook.",
    options=_OPTIONS,
    examples=(
        Example(
            "How would a failover end now? Nothing is changed:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --groups ".*" --dry.run',
        ),
        Example(
            "A planned move: the producers on the source are stopped, and the mirror runs:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --groups ".*"',
        ),
        Example(
            "A disaster: the source does not answer any more:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --groups ".*" --source.is.gone',
        ),
        Example(
            "Back to mirroring, because nobody has written to the target yet:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties --undo",
        ),
    ),
    exit_codes={
        0: "everything that was chosen is on the target, and every group is ready; with --source.is.gone: everything that"
        " the mirror brought",
        1: "an error; the last line on stderr names it",
        3: "something is missing; the tables say what",
    },
    run=run,
)
