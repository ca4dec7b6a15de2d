"""`mirrormaker verify`: compare source and target, record by record."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from mirrormaker.cli.command import Command, Example, shared_with_run
from mirrormaker.errors import CannotTell, MirrorError, SettingError
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import SourceSettings, source_settings, target_settings
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.login import login_files

_COMPARING = "comparing"
# The options of `mirrormaker run` that have the same meaning here, with the help texts that differ.
_SHARED_WITH_RUN = {
    "--consumer.config": "Property file of a source cluster. Repeat the option to compare several clusters.",
    "--producer.config": "",
    "--whitelist": "Topics to compare: a Java regular expression that matches the whole name. A comma means 'or';"
    " spaces are ignored.",
    "--blacklist": "Compare all topics except those whose names match this Java regular expression.",
    "--jaas.config": "",
    "--krb5.config": "",
    "-D": "",
    "--spark.master": "Spark master that compares the records.",
    "--spark.conf": "",
    "--log.file": "",
}
_DEFAULTS = {"--spark.master": "local, with all cores"}
_OPTIONS = (
    *shared_with_run(_SHARED_WITH_RUN, _DEFAULTS),
    Option(
        ("--topics",),
        "Compare only these topics, out of those that --whitelist or --blacklist selects. Separate the names with"
        " commas.",
        "NAMES", default_text="all selected topics", group=_COMPARING,
    ),
    Option(
        ("--from",),
        "Compare only records with this timestamp or a later one: ISO 8601, in this machine's time zone if none is"
        " given, or milliseconds since 1970.",
        "TIME", default_text="all records", group=_COMPARING, dest="since",
    ),
    Option(
        ("--to",), "Compare only records with a timestamp before this one, in the format of --from.",
        "TIME", default_text="all records", group=_COMPARING, dest="until",
    ),
    Option(
        ("--allow.other.writers",),
        "Count records on the target that the mirror did not write, but do not report them as differences.",
        group=_COMPARING,
    ),
    Option(("--json",), "Print the result as JSON.", group=_COMPARING),
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Compare both sides and print the verdict; raise CannotTell for an error that nobody expected."""
    try:
        return _verify(args)
    except MirrorError:
        raise
    except Exception as error:
        # The text of an unexpected error can contain a record or a password, so only its type is shown.
        raise CannotTell(f"could not tell: unexpected {type(error).__name__}{_origin(error)}") from error


def _origin(error: Exception) -> str:
    """Return the line of code that failed, for a bug report."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _verify(args: argparse.Namespace) -> int:
    options.check_clusters_and_topics(args)
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    sources = [source_settings(properties.read(path, "--consumer.config"), logins) for path in args.consumer_config]
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    include, exclude = _topics(args.whitelist, args.blacklist, sources)
    since, until = _milliseconds("--from", args.since), _milliseconds("--to", args.until)
    if since is not None and until is not None and since >= until:
        raise SettingError(f"--from {args.since} --to {args.until}: --from must be before --to", option=True)
    spark_conf = options.spark_properties(args.spark_conf)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning:pyspark")
    # Importing Spark takes two seconds; errors in the settings are reported before that.
    from mirrormaker.verification.command import SparkOptions, verify

    verdict = verify(
        sources,
        target,
        whitelist=include,
        blacklist=exclude,
        topics=[name.strip() for name in (args.topics or "").split(",") if name.strip()],
        since=since,
        until=until,
        allow_other_writers=args.allow_other_writers,
        spark=SparkOptions(args.spark_master, spark_conf, args.log_file),
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(verdict.to_json(), indent=2) if args.json else verdict.text())
    return verdict.exit_code


def _topics(
    include: str | None, exclude: str | None, sources: Sequence[SourceSettings]
) -> tuple[str | None, str | None]:
    """Return the topic filter of the command line, else the one that all consumer files have."""
    if include or exclude:
        return include, exclude
    first, *others = [(source.include, source.exclude) for source in sources]
    if not any(first) or any(other != first for other in others):
        raise SettingError(options.TOPICS_MISSING, option=True)
    return first


def _milliseconds(option: str, given: str | None) -> int | None:
    """Return a time as milliseconds since 1970; a time without a zone is in this machine's zone."""
    if given is None:
        return None
    if given.isascii() and given.isdigit():
        return int(given)
    try:
        return round(datetime.fromisoformat(given.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        raise SettingError(
            f"{option} {given}: this must be a time like 2026-03-01T12:00:00Z, or milliseconds", option=True
        ) from None


COMMAND = Command(
    name="verify",
    purpose="compare source and target, record by record",
    usage="--consumer.config FILE --producer.config FILE --whitelist REGEX [OPTION ...]",
    description="Compare the records of both sides: key, value, headers, timestamp and order. Records that are not"
    " mirrored yet, or that retention or compaction removed, are counted, but not as differences.",
    options=_OPTIONS,
    examples=(
        Example(
            "Compare everything that a mirror has done so far, with the files and the filter of the mirror:",
            '%(prog)s --consumer.config source.properties --producer.config target.properties \\\n    --whitelist ".*"',
        ),
        Example(
            "Compare the records of one day in two of the topics:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            '    --whitelist ".*" --topics "orders, payments" \\\n'
            "    --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z",
        ),
        Example(
            "Print the result for a program:",
            "%(prog)s --consumer.config source.properties --producer.config target.properties \\\n"
            "    --whitelist orders --json",
        ),
    ),
    exit_codes={
        0: "both sides have the same records",
        1: "the two sides differ",
        2: "could not tell: the last line on stderr names the error",
    },
    run=run,
    error_code=2,
)
