"""`mirrormaker groups`: whether consumer groups could go on at the target now, and the way out if not."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mirrormaker.cli.command import Command, Example, shared_with_run
from mirrormaker.errors import OUTAGE, ClusterError, MirrorError, SettingError, describe
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.login import login_files

if TYPE_CHECKING:
    from mirrormaker.groups.readiness import Readiness, ReadinessQuestion
    from mirrormaker.groups.readiness_reader import ReadinessReader

_OUTPUT = "output"
# The options of `mirrormaker run` that have the same meaning here, with the help texts that differ.
_SHARED_WITH_RUN = {
    "--consumer.config": "Property file of a source cluster. Repeat the option to look at several. The cluster itself may be gone.",
    "--producer.config": "",
    "--whitelist": "Topics to look at: a regular expression that matches the whole name. A comma means 'or'; spaces are ignored.",
    "--blacklist": "Look at all topics except those whose names match this regular expression.",
    "--groups": "Consumer groups to look at: regular expressions, separated by commas.",
    "--groups.exclude": "",
    "--jaas.config": "",
    "--krb5.config": "",
    "-D": "",
}
_DEFAULTS = {
    "--whitelist": "mirror.topics.whitelist of the consumer file, else every mirrored topic",
    "--groups": "groups in the consumer file",
}
_OPTIONS = (
    *shared_with_run(_SHARED_WITH_RUN, _DEFAULTS),
    Option(("--partitions",), "Print one row for each partition of the target.", group=_OUTPUT),
    Option(
        ("--watch",), "Repeat every SECONDS until Ctrl+C. Without a number: every 5 seconds.",
        "SECONDS", default_text="print once", type=float, bare_value=5.0, group=_OUTPUT,
    ),
    Option(("--json",), "Print JSON instead of a table: one object, with --watch one in each line.", group=_OUTPUT),
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the table; return 0 if every chosen group was ready when both clusters were last read, otherwise 3."""
    options.check_clusters_and_topics(args)
    if args.watch is not None and not 0.1 <= args.watch <= 86_400:
        raise SettingError(f"--watch {args.watch:g}: this must be from 0.1 to 86400 seconds", option=True)
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    sources = [source_settings(properties.read(path, "--consumer.config"), logins) for path in args.consumer_config]
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    questions = [_question(args, source) for source in sources]
    last: list[Readiness] = []
    try:
        asyncio.run(_show(args, list(zip(sources, questions, strict=True)), target, last))
    except KeyboardInterrupt:
        if args.watch is None or not last:
            raise
    except BrokenPipeError:
        # The reader ended, as in `mirrormaker groups ... | head`. Python must not write to the pipe again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if isinstance(error, MirrorError):
            # It names the cluster.
            raise
        raise ClusterError(f"the target cluster cannot be read: {describe(error)}") from error
    return 0 if last and all(part.is_ready for part in last) else 3


def _question(args: argparse.Namespace, source: SourceSettings) -> ReadinessQuestion:
    from mirrormaker.groups.choice import GroupChoice
    from mirrormaker.groups.readiness import ReadinessQuestion
    from mirrormaker.model.topic_filter import Filter

    choice = GroupChoice.from_settings(args.groups, args.groups_exclude, source.groups)
    if choice is None:
        raise SettingError(
            '--groups REGEX is missing: name the groups, or write --groups ".*" for all of them', option=True
        )
    given = args.whitelist is not None or args.blacklist is not None
    include, exclude = (args.whitelist, args.blacklist) if given else (source.include, source.exclude)
    return ReadinessQuestion(
        is_chosen=choice,
        is_mirrored=Filter.of(include, exclude).by_name() if include or exclude else None,
        mirror_group=source.group_id,
        alias=source.groups.alias,
        interval=source.groups.interval,
        commits=source.groups.commits is not False,
    )


async def _show(
    args: argparse.Namespace,
    sources: Sequence[tuple[SourceSettings, ReadinessQuestion]],
    target: TargetSettings,
    last: list[Readiness],
) -> None:
    """Print once, or again and again; `last` holds what was read last."""
    from mirrormaker.groups.readiness_reader import ReadinessReader
    from mirrormaker.wire.client.cluster import Cluster
    from mirrormaker.zookeeper.lookup import endpoint_of

    with contextlib.ExitStack() as stack:

        def opened(endpoint: Any) -> Cluster:
            cluster = Cluster(endpoint)
            stack.callback(cluster.close)
            return cluster

        there = await endpoint_of(target)
        readers = []
        for settings, question in sources:
            here = None
            with contextlib.suppress(ClusterError):
                # ZooKeeper may be gone together with its cluster.
                here = opened(await endpoint_of(settings))
            readers.append(ReadinessReader(here, opened(there), question))
        last[:] = await _read(readers)
        if args.watch is None:
            _print(args, last)
        else:
            await _watch(args, readers, last)


async def _read(readers: Sequence[ReadinessReader]) -> list[Readiness]:
    return [await reader.read() for reader in readers]


async def _watch(args: argparse.Namespace, readers: Sequence[ReadinessReader], last: list[Readiness]) -> None:
    """Print again and again. A round that fails is reported once, and the next one tries again.

    `last` is empty after such a round: then nobody knows whether the groups are ready.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, found, trouble, reported = Console(highlight=False), list(last), "", ""
    with contextlib.ExitStack() as stack:
        is_live = console.is_terminal and not args.json
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if is_live else None
        while True:
            if live is not None:
                text = "\n".join([*_lines(args, found), *([trouble] if trouble else [])])
                live.update(Text(text, no_wrap=True), refresh=True)
            elif trouble and trouble != reported:
                print(trouble, file=sys.stderr, flush=True)
            elif not trouble:
                _print(args, found)
            reported = trouble
            await asyncio.sleep(args.watch)
            try:
                found, trouble = await _read(readers), ""
                last[:] = found
            except (*OUTAGE, MirrorError) as error:
                last.clear()
                trouble = describe(error)


def _print(args: argparse.Namespace, found: Sequence[Readiness]) -> None:
    from mirrormaker.groups.readiness_report import as_json

    if args.json:
        now = time.time()
        documents = [as_json(part, now) for part in found]
        ready = all(part.is_ready for part in found)
        indent = None if args.watch is not None else 2
        print(json.dumps({"time": now, "ready": ready, "sources": documents}, indent=indent), flush=True)
    else:
        print("\n".join(_lines(args, found)), end="\n\n" if args.watch is not None else "\n", flush=True)


def _lines(args: argparse.Namespace, found: Sequence[Readiness]) -> list[str]:
    from mirrormaker.groups.readiness_report import lines

    now, text = time.time(), []
    for part in found:
        if len(found) > 1:
            text.append(f"{part.source} -> {part.target}")
        text += lines(part, now, partitions=args.partitions)
    return text


COMMAND = Command(
    name="groups",
    purpose="show whether consumer groups could go on at the target now",
    usage="--consumer.config FILE --producer.config FILE --groups REGEX [OPTION ...]",
    description="Show for each consumer group and topic where the group is on both clusters, whether it could go on at the target"
    " now, and the way out if not. Both clusters are only read; a mirror need not run.",
    options=_OPTIONS,
    examples=(
        Example(
            "All groups, before a failover; the exit code is 0 if all of them are ready:",
            '%(prog)s --consumer.config source.properties --producer.config target.properties \\\n    --groups ".*"',
        ),
        Example(
            "Watch two groups in one topic, partition by partition, until Ctrl+C:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --groups billing,shipping --whitelist orders --partitions --watch",
        ),
        Example(
            "The same for a program:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --groups ".*" --json',
        ),
    ),
    notes="Columns: READ AGAIN and MISSING are records at most, if the group failed over now and nothing more were written."
    ' "-" means that the target has no offset: auto.offset.reset of the consumers decides. LAST WRITTEN is the last time that'
    " the mirror wrote an offset of the group; it writes those of a group that does not move twice a day.\n"
    "States that are ready: synced, ahead of the mirror, behind the source's log, before the offset map, behind the target's"
    " log. All others have a line with the way out.",
    exit_codes={
        0: "every chosen group is ready; with --watch: at the last look before Ctrl+C",
        1: "an error; the line on stderr names it",
        3: "some groups are not ready, or no chosen group was found",
        130: "Ctrl+C, and the last look failed, or none has ended",
    },
    run=run,
)
