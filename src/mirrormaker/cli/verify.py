"""`mirrormaker verify`: do source and target hold the same records?"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from mirrormaker.errors import MirrorError, UsageError
from mirrormaker.settings import options, properties
from mirrormaker.settings.clients import SourceSettings, source_settings, target_settings
from mirrormaker.settings.login import login_files

_EXAMPLES = """examples:
  what a mirror has done so far, with the files and the filter that it runs with:
    mirrormaker verify --consumer.config source.properties --producer.config target.properties --whitelist ".*"
  some topics of it, and only what was written on one day:
    mirrormaker verify --consumer.config source.properties --producer.config target.properties --whitelist ".*" \\
        --topics "orders, payments" --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z
  for a script:
    mirrormaker verify --consumer.config source.properties --producer.config target.properties --whitelist orders --json

exit codes: 0 the same, 1 different, 2 could not tell; the last line on stderr says why."""
_AS_FOR_RUN = (
    "--consumer.config", "--producer.config", "--whitelist", "--blacklist", "--spark.master", "--spark.conf", "--log.file",
    "--jaas.config", "--krb5.config", "-D",
)  # fmt: skip


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="compare source and target, record by record",
        description="Compare the records of the chosen topics on both sides: key, value, headers, timestamp and order. What is"
        " not mirrored yet, or was removed by retention or compaction, is counted and is no difference.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def error(message: str) -> NoReturn:
        raise UsageError(f"{message} (see {parser.prog} --help)")

    def known(*given: Any) -> Any:
        found, unknown = parse(*given)
        if unknown:
            error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    parse, parser.parse_known_args, parser.error = parser.parse_known_args, known, error
    for option in options.OPTIONS:
        if option.names[0] in _AS_FOR_RUN:
            action: Any = "append" if option.repeated else options.Once
            default: Any = [] if option.repeated else None
            parser.add_argument(
                *option.names, dest=option.dest, metavar=option.value, help=option.help, action=action, default=default
            )
    parser.add_argument("--topics", metavar="NAMES", help="of those topics only these; commas between them")
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        help="only records with this timestamp or a later one: ISO 8601, or milliseconds",
    )
    parser.add_argument("--to", dest="until", metavar="TIME", help="only records with an earlier timestamp than this")
    parser.add_argument(
        "--allow.other.writers", dest="other_writers", action="store_true",
        help="records on the target that the mirror did not write are counted, and are no difference",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(body=body)


def body(args: argparse.Namespace) -> int:
    """Whatever goes wrong, nothing was found out: exit code 2."""
    try:
        return _verify(args)
    except MirrorError as error:
        print(f"mirrormaker: {error}", file=sys.stderr)
    except Exception as error:
        # Only its kind: the words of an error that nobody has foreseen may hold a record or a password.
        print(f"mirrormaker: could not tell: unexpected {type(error).__name__}{_origin(error)}", file=sys.stderr)
    return 2


def _origin(error: Exception) -> str:
    """The line of code that failed, for a report."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _verify(args: argparse.Namespace) -> int:
    for name, words in (("consumer", "of the source cluster"), ("producer", "of the target cluster")):
        if not getattr(args, f"{name}_config"):
            raise UsageError(f"--{name}.config FILE is missing: the property file {words}")
    if args.whitelist and args.blacklist:
        raise UsageError("--whitelist and --blacklist contradict each other: give one of them")
    logins = login_files(args.jaas_config, args.krb5_config, args.D, os.environ)
    sources = [source_settings(properties.read(path, "--consumer.config"), logins) for path in args.consumer_config]
    target = target_settings(properties.read(args.producer_config, "--producer.config"), logins)
    include, exclude = _filter(args.whitelist, args.blacklist, sources)
    since, until = _time("--from", args.since), _time("--to", args.until)
    if since is not None and until is not None and since >= until:
        raise UsageError(f"--from {args.since} --to {args.until}: there is no time between them")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning:pyspark")
    # Spark is imported only now: a wrong option is answered at once, not after two seconds of loading.
    from mirrormaker.verification.command import SparkOptions, verify

    verdict = verify(
        sources,
        target,
        whitelist=include,
        blacklist=exclude,
        topics=[name.strip() for name in (args.topics or "").split(",") if name.strip()],
        since=since,
        until=until,
        allow_other_writers=args.other_writers,
        spark=SparkOptions(args.spark_master, _spark_conf(args.spark_conf), args.log_file),
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(verdict.to_json(), indent=2) if args.json else verdict.text())
    return verdict.exit_code


def _filter(
    include: str | None, exclude: str | None, sources: Sequence[SourceSettings]
) -> tuple[str | None, str | None]:
    """The command line says which topics, or else all of the source's files do."""
    if include or exclude:
        return include, exclude
    first, *others = [(source.include, source.exclude) for source in sources]
    if not any(first) or any(other != first for other in others):
        raise UsageError('--whitelist REGEX is missing: which topics? --whitelist ".*" takes all of them')
    return first


def _time(option: str, given: str | None) -> int | None:
    """Milliseconds since 1970; a time without a zone is this machine's."""
    if given is None:
        return None
    if given.isascii() and given.isdigit():
        return int(given)
    try:
        return round(datetime.fromisoformat(given.replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        raise UsageError(f"{option} {given}: this must be a time like 2026-03-01T12:00:00Z, or milliseconds") from None


def _spark_conf(pairs: list[str]) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.startswith("spark."):
            raise UsageError(f"--spark.conf {pair}: this must be spark.something=value")
        found.append((key, value))
    return found
