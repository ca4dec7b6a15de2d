"""Every option of `mirrormaker run`: the table from which parsing and `--help` are made."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mirrormaker import __version__
from mirrormaker.errors import SettingError
from mirrormaker.settings.login import NO_FILES, LoginFiles, login_files
from mirrormaker.settings.status_options import StatusSettings, status_settings


@dataclass(frozen=True)
class Option:
    """One option: its spellings, what it takes, and what it means."""

    names: tuple[str, ...]
    help: str
    value: str | None = None  # None: a flag; "[true|false]": the value may be left out
    default: Any = None
    kind: type = str
    repeated: bool = False
    group: str = "what to mirror"

    @property
    def dest(self) -> str:
        return self.names[0].lstrip("-").replace(".", "_")


_LEGACY, _SHOWN, _LOGIN = "accepted from the original", "what is shown", "logging in"

OPTIONS = (
    Option(
        ("--consumer.config",), "a property file for a source cluster; give it again for each further source", "FILE",
        repeated=True,
    ),
    Option(("--producer.config",), "the property file for the target cluster", "FILE"),
    Option(
        ("--whitelist", "--white-list", "--include"),
        "topics to mirror: a Java regular expression for the whole name; a comma means 'or', blanks are ignored"
        " (default: mirror.topics.whitelist of the consumer's file, if it is there)",
        "REGEX",
    ),
    Option(("--blacklist", "--exclude"), "mirror all topics but these", "REGEX"),
    Option(
        ("--exit.when.caught.up",),
        "mirror what is there now, then exit 0: for a migration (exit 1 if a partition could not be mirrored)",
    ),
    Option(("--num.streams",), "streams per source: Spark tasks that fetch and send", "N", 1, int, group="how"),
    Option(("--num.producers",), "connections to each target broker, per stream", "N", 1, int, group="how"),
    Option(
        ("--queue.size",), "messages that a stream may hold between source and target (default: only buffer.memory, in bytes)",
        "N", None, int, group="how",
    ),
    Option(("--offset.commit.interval.ms",), "how often positions are committed to the source group", "MS", 1000, int, group="how"),
    Option(
        ("--abort.on.send.failure", "--abort.on.send.fail", "--abortOnSendFail"),
        "a record that the target will never take: true stops with exit 1; false writes it down and goes on", "[true|false]",
        "true", group="how",
    ),
    Option(
        ("--undelivered.file",),
        "where records are written down that could not be delivered, as JSON lines: topic, partition, offset, cause"
        " (default: undelivered-GROUP.jsonl here)", "FILE", group="how",
    ),
    Option(
        ("--message.handler",),
        "a Python function or class that changes, drops or fans out records on their way (see docs/handlers.md)",
        "MODULE:NAME", group="how",
    ),
    Option(("--message.handler.args",), "a text for the handler's class", "ARGS", group="how"),
    Option(
        ("--consumer.rebalance.listener",), "a Python class that is told of partitions assigned and revoked", "MODULE:CLASS",
        group="how",
    ),
    Option(("--rebalance.listener.args",), "a text for the listener's class", "ARGS", group="how"),
    Option(
        ("--accept.new.target",),
        "the group's positions belong to another target cluster: start there from the committed offsets", group="how",
    ),
    Option(
        ("--jaas.config",),
        "Java's login configuration with its section KafkaClient, for clusters whose file has no sasl.jaas.config (default: the one"
        " that KAFKA_OPTS or KAFKA_CLIENT_KERBEROS_PARAMS names)",
        "FILE", group=_LOGIN,
    ),
    Option(
        ("--krb5.config",), "a krb5.conf (default: the one that those variables name, else the machine's own)", "FILE",
        group=_LOGIN,
    ),
    Option(
        ("-D",),
        "a property of Java: java.security.auth.login.config and java.security.krb5.conf mean the options above, others nothing;"
        " may be repeated",
        "NAME=VALUE", repeated=True, group=_LOGIN,
    ),
    Option(
        ("--spark.master",), "where Spark runs (default: here, with slots for the streams and their successors)", "URL",
        group="Spark",
    ),
    Option(("--spark.conf",), "a Spark setting; may be repeated", "KEY=VALUE", repeated=True, group="Spark"),
    Option(
        ("--progress.interval.ms",), "how often a line of progress is printed when there is no terminal", "MS", 10_000, int,
        group=_SHOWN,
    ),
    Option(
        ("--log.format",), "lines for people (text), or one JSON object in each line (json)", "FORMAT", "text", group=_SHOWN,
    ),
    Option(
        ("--status.address",),
        "a page that shows the mirror at work, with /api, /metrics for Prometheus, /healthz and /readyz; port 0 takes a free one",
        "HOST:PORT", group=_SHOWN,
    ),
    Option(
        ("--status.token",), "what must be known to see the page: needed for any address but loopback; @FILE reads it from a file",
        "TOKEN", group=_SHOWN,
    ),
    Option(
        ("--metrics.max.partitions",),
        "partitions that have metrics of their own; the others are added up as partition=\"other\"", "N", 1000, int, group=_SHOWN,
    ),
    Option(("--log.file",), "where Spark's own messages go (default: kept only while the mirror runs)", "FILE", group=_SHOWN),
    Option(("--new.consumer",), "accepted for old command lines; there is only one consumer", group=_LEGACY),
    Option(("--new.producer",), "accepted for old command lines; there is only one producer", group=_LEGACY),
)  # fmt: skip

EXAMPLES = """examples:
  mirror two topics with four streams, for as long as it runs:
    %(prog)s --consumer.config source.properties --producer.config target.properties \\
        --whitelist "orders, payments" --num.streams 4
  move everything that is there now, then exit:
    %(prog)s --consumer.config source.properties --producer.config target.properties \\
        --whitelist ".*" --exit.when.caught.up
  the smallest files:
    source.properties: bootstrap.servers=old1:9092,old2:9092
                       group.id=mirror
    target.properties: bootstrap.servers=new1:9092

exit codes: 0 stopped cleanly or caught up, 1 anything else; the last line on stderr says what."""


class Once(argparse.Action):
    """An option that may be given one time: which of two values counts should be nobody's guess."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        given: set[str] = namespace.__dict__.setdefault("_given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, "given more than once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line and exit code 1."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What a command does not know is that command's mistake, not a mistake of `mirrormaker` itself."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        raise SettingError(f"{message} (see {self.prog} --help)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Put the table into a parser."""
    groups: dict[str, Any] = {}
    for option in OPTIONS:
        group = groups.get(option.group) or groups.setdefault(option.group, parser.add_argument_group(option.group))
        arguments: dict[str, Any] = {"dest": option.dest, "help": option.help}
        if option.value is None:
            arguments["action"] = "store_true"
        else:
            arguments |= {"metavar": option.value, "default": option.default, "type": option.kind, "action": Once}
            if option.repeated:
                arguments |= {"action": "append", "default": []}
            if option.value.startswith("["):
                arguments |= {"nargs": "?", "const": "true"}
            if option.default is not None:
                arguments["help"] += f" (default: {option.default})"
        group.add_argument(*option.names, **arguments)
    parser.add_argument("--version", action="version", version=f"mirrormaker {__version__}")


@dataclass(frozen=True)
class RunOptions:
    """The command line of `mirrormaker run`, checked; `together.settle` fills in topics and streams that only files name."""

    consumer_config: tuple[str, ...]
    producer_config: str
    include: str | None
    exclude: str | None
    num_streams: int
    num_producers: int
    queue_size: int | None
    commit_interval: float
    exit_when_caught_up: bool
    accept_new_target: bool
    spark_master: str | None
    spark_conf: tuple[tuple[str, str], ...]
    progress_interval: float
    log_file: str | None
    abort_on_send_failure: bool = True
    undelivered_file: str | None = None
    message_handler: tuple[str, str | None] | None = None  # and its arguments
    # A handler that is an object of the calling program; `message_handler` then only names it.
    handler_object: Callable[[Any], Any] | None = None
    rebalance_listener: tuple[str, str | None] | None = None
    streams_given: bool = False
    log_format: str = "text"
    status: StatusSettings | None = None
    login_files: LoginFiles = NO_FILES


def check(args: argparse.Namespace) -> RunOptions:
    """Refuse what is missing or contradictory, before anything is started."""
    if not args.consumer_config:
        raise SettingError("--consumer.config FILE is missing: the property file of the source cluster")
    if not args.producer_config:
        raise SettingError("--producer.config FILE is missing: the property file of the target cluster")
    if args.whitelist is not None and args.blacklist is not None:
        raise SettingError(
            "--whitelist (--include) and --blacklist (--exclude) contradict each other: give one of them"
        )
    for name, value in (("--whitelist", args.whitelist), ("--blacklist", args.blacklist)):
        if value is not None and not value.strip():
            raise SettingError(f"{name} '{value}': this names no topic; --whitelist \".*\" takes all of them")
    for name, low in (
        ("num_streams", 1),
        ("num_producers", 1),
        ("queue_size", 1),
        ("offset_commit_interval_ms", 1),
        ("progress_interval_ms", 100),
        ("metrics_max_partitions", 0),
    ):
        value = getattr(args, name)
        if value is not None and value < low:
            raise SettingError(f"--{name.replace('_', '.')} {value}: this must be at least {low}")
    abort = str(args.abort_on_send_failure).lower()
    if abort not in ("true", "false"):
        raise SettingError(f"--abort.on.send.failure {abort}: this must be true or false")
    for name, needs in (
        ("message_handler_args", "message_handler"),
        ("rebalance_listener_args", "consumer_rebalance_listener"),
    ):
        if getattr(args, name) is not None and getattr(args, needs) is None:
            option, other = (f"--{dest.replace('_', '.')}" for dest in (name, needs))
            raise SettingError(f"{option} without {other}: arguments of what?")
    if args.log_format not in ("text", "json"):
        raise SettingError(f"--log.format {args.log_format}: this must be text or json")
    if args.undelivered_file is not None and abort == "true":
        raise SettingError(
            "--undelivered.file is for --abort.on.send.failure false: otherwise the first such record ends the run"
        )
    conf = []
    for pair in args.spark_conf:
        key, separator, value = pair.partition("=")
        if not separator or not key.startswith("spark."):
            raise SettingError(f"--spark.conf {pair}: this must be spark.something=value")
        conf.append((key, value))
    return RunOptions(
        consumer_config=tuple(args.consumer_config),
        producer_config=args.producer_config,
        include=args.whitelist,
        exclude=args.blacklist,
        num_streams=args.num_streams,
        num_producers=args.num_producers,
        queue_size=args.queue_size,
        commit_interval=args.offset_commit_interval_ms / 1000,
        exit_when_caught_up=args.exit_when_caught_up,
        accept_new_target=args.accept_new_target,
        spark_master=args.spark_master,
        spark_conf=tuple(conf),
        progress_interval=args.progress_interval_ms / 1000,
        log_file=args.log_file,
        abort_on_send_failure=abort == "true",
        undelivered_file=args.undelivered_file,
        message_handler=(args.message_handler, args.message_handler_args) if args.message_handler else None,
        rebalance_listener=(
            (args.consumer_rebalance_listener, args.rebalance_listener_args)
            if args.consumer_rebalance_listener
            else None
        ),
        streams_given="num_streams" in getattr(args, "_given", ()),
        log_format=args.log_format,
        status=status_settings(args.status_address, args.status_token, args.metrics_max_partitions),
        login_files=login_files(args.jaas_config, args.krb5_config, args.D, os.environ),
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> RunOptions:
    return check(parser.parse_args(argv))
