"""`mirrormaker translate`: offsets of the source as offsets of the target, and back."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence

from mirrormaker.cli.command import Command, Example, shared_with_run
from mirrormaker.console.aligned import aligned
from mirrormaker.errors import SettingError
from mirrormaker.mapping.translation import translate_offsets
from mirrormaker.model.offset_translation import Translation
from mirrormaker.settings import properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.login import login_files

_TRANSLATING = "translating"
_SHARED_WITH_RUN = {
    "--consumer.config": "Property file of the source cluster. The cluster itself may be gone.",
    "--producer.config": "",
    "--jaas.config": "",
    "--krb5.config": "",
    "-D": "",
}
_OPTIONS = (
    *shared_with_run(_SHARED_WITH_RUN),
    Option(("--topic",), "The topic whose offsets are translated.", "NAME", required=True, group=_TRANSLATING),
    Option(
        ("--offsets",), "Partitions and offsets, as PARTITION:OFFSET. Separate several with commas.",
        "LIST", default_text="none; one of --offsets, --offsets.file and --group is required", group=_TRANSLATING,
    ),
    Option(
        ("--offsets.file",),
        'File with the offsets: CSV with partition,offset in each line, or JSON such as {"0": 1234} or'
        ' [{"partition": 0, "offset": 1234}].',
        "FILE", default_text="none", group=_TRANSLATING,
    ),
    Option(
        ("--group",),
        "Consumer group whose committed offsets are translated: those on the source, or with --back those on the target.",
        "NAME", default_text="none", group=_TRANSLATING,
    ),
    Option(("--back",), "Translate offsets of the target to offsets of the source.", group=_TRANSLATING),
    Option(
        ("--source.id",), "The id of the source cluster, if it does not answer and the target has maps of several.",
        "ID", default_text="the id that the source tells", group=_TRANSLATING,
    ),
    Option(("--json",), "Print the result as JSON.", group=_TRANSLATING),
)  # fmt: skip
_LAST = 2**31 - 1, 2**63 - 1  # a partition, an offset
_FILE_FORM = "a line must be like 0,1234"
_HEAD = ("TOPIC", "PARTITION", "OFFSET", "TO TOPIC", "TO PARTITION", "TO OFFSET", "READ AGAIN AT MOST")


def run(args: argparse.Namespace) -> int:
    """Translate and print; exit 0 if every place is exact, 3 if one is not or is no longer in the log."""
    if len(args.consumer_config) != 1:
        raise SettingError("--consumer.config: name the one source cluster whose offsets are translated", option=True)
    if not args.producer_config:
        raise SettingError("--producer.config FILE is missing: the property file of the target cluster", option=True)
    if not args.topic:
        raise SettingError("--topic NAME is missing: the topic whose offsets are translated", option=True)
    offsets = _offsets(args)
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    source = source_settings(properties.read(args.consumer_config[0], "--consumer.config"), logins)
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    found = asyncio.run(
        translate_offsets(source, target, args.topic, offsets, back=args.back, source_id=args.source_id or "")
    )
    print(json.dumps([row.__dict__ for row in found], indent=2) if args.json else _table(found))
    return 0 if all(row.is_exact for row in found) else 3


def _offsets(args: argparse.Namespace) -> list[tuple[int, int]] | str:
    """Return partitions and offsets, or the name of the group that has committed them."""
    given = {"--offsets": args.offsets, "--offsets.file": args.offsets_file, "--group": args.group}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        text = f"{' and '.join(names)} contradict each other" if names else "the offsets are missing"
        raise SettingError(f"{text}: give one of {', '.join(given)}", option=True)
    if args.group is not None:
        if not args.group:
            raise SettingError("--group: name a consumer group", option=True)
        return str(args.group)
    return _pairs(args.offsets) if args.offsets is not None else _file_pairs(args.offsets_file)


def _pairs(text: str) -> list[tuple[int, int]]:
    parts = list(filter(None, (part.strip() for part in text.split(","))))
    if not parts:
        raise SettingError("--offsets: name at least one PARTITION:OFFSET, for example 0:1234", option=True)
    form = "PARTITION:OFFSET, for example 0:1234"
    return [_pair(part.split(":"), f"--offsets {part}", form, option=True) for part in parts]


def _file_pairs(path: str) -> list[tuple[int, int]]:
    """Read a file: CSV with a partition and an offset in each line, or JSON."""
    place = f"--offsets.file {path}"
    try:
        text = properties.file_content(path).decode()
    except OSError as error:
        raise SettingError(f"{place}: {(error.strerror or str(error)).lower()}", option=True) from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{place}: this is not a text file; {_FILE_FORM}") from error
    pairs = _json_pairs(place, text) if text.lstrip()[:1] in ("[", "{") else _csv_pairs(place, text)
    if not pairs:
        raise SettingError(f"{place}: the file has no offsets; {_FILE_FORM}")
    return pairs


def _csv_pairs(place: str, text: str) -> list[tuple[int, int]]:
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.split(",")]
        if cells == [""] or (number == 1 and cells == ["partition", "offset"]):
            continue
        pairs.append(_pair(cells, f"{place}, line {number}: {line.strip()}", "partition,offset, for example 0,1234"))
    return pairs


def _json_pairs(place: str, text: str) -> list[tuple[int, int]]:
    form = 'like {"0": 1234} or [{"partition": 0, "offset": 1234}]'
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SettingError(f"{place}: this is no JSON: {error}") from error
    rows = list(document.items()) if isinstance(document, dict) else document
    pairs = []
    for row in rows:
        cells = (row.get("partition"), row.get("offset")) if isinstance(row, dict) else row
        texts = [str(cell) for cell in cells] if isinstance(cells, tuple | list) else []
        pairs.append(_pair(texts, f"{place}: {json.dumps(row)}", form))
    return pairs


def _pair(cells: Sequence[str], place: str, form: str, *, option: bool = False) -> tuple[int, int]:
    """Return a partition and an offset; raise SettingError if they are not two numbers that Kafka can have."""
    if len(cells) != 2 or not all(cell.isascii() and cell.isdigit() for cell in cells):
        raise SettingError(f"{place}: this must be {form}", option=option)
    for cell, name, last in zip(cells, ("a partition", "an offset"), _LAST, strict=True):
        if len(cell) > len(str(last)) or int(cell) > last:
            raise SettingError(f"{place}: {name} is at most {last}", option=option)
    return int(cells[0]), int(cells[1])


def _table(found: Sequence[Translation]) -> str:
    has_notes = any(row.trimmed or row.ahead for row in found)
    places = [(r.partition, r.offset, r.to_partition, r.to_offset, r.latest - r.to_offset) for r in found]
    rows: list[tuple[str, ...]] = [(*_HEAD, "NOTE") if has_notes else _HEAD]
    for row, numbers in zip(found, places, strict=True):
        partition, offset, to_partition, to_offset, again = map(str, numbers)
        cells = (row.topic, partition, offset, row.to_topic, to_partition, to_offset, again)
        rows.append((*cells, _note(row)) if has_notes else cells)
    return "\n".join(aligned(rows))


def _note(row: Translation) -> str:
    if row.trimmed:
        return f"trimmed by {row.trimmed}"
    return f"ahead by {row.ahead}" if row.ahead else "-"


COMMAND = Command(
    name="translate",
    purpose="translate offsets between source and target",
    usage="--consumer.config FILE --producer.config FILE --topic NAME\n"
    "    (--offsets LIST | --offsets.file FILE | --group NAME) [OPTION ...]",
    description="Show where records of the source are on the target, and back, from the offset map that mirrors keep on the"
    " target. The source may be gone. For programs that keep offsets outside of consumer groups, such as Flink or a database.",
    options=_OPTIONS,
    notes="NOTE, in the table: the other cluster's log begins so many offsets at most after the place (trimmed, because of"
    " retention), or ends so many before it (ahead): the offset is the log's start or end then.",
    examples=(
        Example(
            "A program has processed partition 0 up to offset 1234 and partition 1 up to 99. Where does it go on?",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --topic orders --offsets 0:1234,1:99",
        ),
        Example(
            "The offsets that a consumer group has committed on the source:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --topic orders --group billing",
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
        3: "a reader that goes on there reads some records again, or the log no longer has its place",
    },
    run=run,
)
