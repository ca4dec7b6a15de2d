"""`mirrormaker translate`: offsets of the source as offsets of the target, and back."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace

from mirrormaker.cli.command import Command, Example
from mirrormaker.console.aligned import aligned
from mirrormaker.errors import ClusterError, SettingError, describe
from mirrormaker.mapping.translation import Translation, find_source, translate
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.login import login_files
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.zookeeper.lookup import endpoint_of

_TRANSLATING = "translating"
_SHARED_WITH_RUN = {
    "--consumer.config": "Property file of the source cluster. The cluster itself may be gone.",
    "--producer.config": "",
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
    Option(("--topic",), "The topic whose offsets are translated.", "NAME", required=True, group=_TRANSLATING),
    Option(
        ("--offsets",), "Partitions and offsets, as PARTITION:OFFSET. Separate several with commas.",
        "LIST", required=True, group=_TRANSLATING,
    ),
    Option(("--back",), "Translate offsets of the target to offsets of the source.", group=_TRANSLATING),
    Option(
        ("--source.id",), "The id of the source cluster, if it does not answer and the target has maps of several.",
        "ID", default_text="the id that the source tells", group=_TRANSLATING,
    ),
    Option(("--json",), "Print the result as JSON.", group=_TRANSLATING),
)  # fmt: skip
_HEAD = ("TOPIC", "PARTITION", "OFFSET", "TO TOPIC", "TO PARTITION", "TO OFFSET", "READ AGAIN AT MOST")


def run(args: argparse.Namespace) -> int:
    """Translate and print; exit 0 if every place is exact, 3 if some records would be read again."""
    if len(args.consumer_config) != 1:
        raise SettingError("--consumer.config: name the one source cluster whose offsets are translated", option=True)
    offsets = _pairs(args.offsets)
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    source = source_settings(properties.read(args.consumer_config[0], "--consumer.config"), logins)
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    try:
        found = asyncio.run(_translated(source, target, args.source_id or "", args.topic, offsets, args.back))
    except OSError as error:
        raise ClusterError(f"the target cluster cannot be reached: {describe(error)}") from error
    print(json.dumps([row.__dict__ for row in found], indent=2) if args.json else _table(found))
    return 0 if all(row.is_exact for row in found) else 3


async def _translated(
    source: SourceSettings,
    target: TargetSettings,
    source_id: str,
    topic: str,
    offsets: Sequence[tuple[int, int]],
    back: bool,
) -> list[Translation]:
    ours, theirs = Cluster(source.endpoint), Cluster(await endpoint_of(target))
    try:
        found = await find_source(ours, theirs, source_id, topic)
        return translate(found, topic, offsets, back=back)
    finally:
        ours.close()
        theirs.close()


def _pairs(text: str) -> list[tuple[int, int]]:
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        partition, _, offset = part.partition(":")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise SettingError(f"--offsets {part}: this must be PARTITION:OFFSET, for example 0:1234", option=True)
        pairs.append((int(partition), int(offset)))
    if not pairs:
        raise SettingError("--offsets: name at least one PARTITION:OFFSET, for example 0:1234", option=True)
    return pairs


def _table(found: Sequence[Translation]) -> str:
    places = [(r.partition, r.offset, r.to_partition, r.to_offset, r.latest - r.to_offset) for r in found]
    rows: list[tuple[str, ...]] = []
    for row, numbers in zip(found, places, strict=True):
        partition, offset, to_partition, to_offset, again = map(str, numbers)
        rows.append((row.topic, partition, offset, row.to_topic, to_partition, to_offset, again))
    return "\n".join(aligned(rows))


COMMAND = Command(
    name="translate",
    purpose="translate offsets between source and target",
    usage="--consumer.config FILE --producer.config FILE --topic NAME --offsets LIST [OPTION ...]",
    description="Show where records of the source are on the target, and back, from the offset map that mirrors keep on the"
    " target. The source may be gone. For programs that keep offsets outside of consumer groups, such as Flink or a database.",
    options=_OPTIONS,
    examples=(
        Example(
            "A program has processed partition 0 up to offset 1234 and partition 1 up to 99. Where does it go on?",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --topic orders --offsets 0:1234,1:99",
        ),
        Example(
            "The way back, as JSON:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --topic orders --offsets 0:1200 --back --json",
        ),
    ),
    exit_codes={
        0: "every place is exact",
        1: "the offsets cannot be translated, or a setting is wrong",
        3: "a reader that goes on there reads some records again",
    },
    run=run,
)
