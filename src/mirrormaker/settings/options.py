"""The options of `mirrormaker run`: the table of all options, and their checked values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirrormaker.errors import SettingError
from mirrormaker.settings.command_line import CommandLineParser, Option, is_given
from mirrormaker.settings.login import NO_FILES, LoginFiles, login_files
from mirrormaker.settings.status_options import StatusSettings, status_settings

_TOPICS, _MIRRORING, _LOGIN = "clusters and topics", "mirroring", "login"
_SPARK, _OUTPUT, _LEGACY = "Spark", "output and monitoring", "accepted from old command lines"

OPTIONS = (
    Option(
        ("--consumer.config",),
        "Property file of a source cluster. Repeat the option to mirror from several clusters.",
        "FILE", repeated=True, required=True, group=_TOPICS,
    ),
    Option(("--producer.config",), "Property file of the target cluster.", "FILE", required=True, group=_TOPICS),
    Option(
        ("--whitelist", "--white-list", "--include"),
        "Topics to mirror: a Java regular expression that matches the whole name. A comma means 'or'; spaces are ignored.",
        "REGEX", default_text="mirror.topics.whitelist of the consumer file", group=_TOPICS,
    ),
    Option(
        ("--blacklist", "--exclude"),
        "Mirror all topics except those whose names match this Java regular expression.",
        "REGEX", default_text="mirror.topics.blacklist of the consumer file", group=_TOPICS,
    ),
    Option(
        ("--exit.when.caught.up",),
        "Mirror up to the end offsets that the source has at the start, then exit. The exit code is 1 if a partition is"
        " stopped at that moment, or if a signal comes first.",
        group=_TOPICS,
    ),
    Option(
        ("--num.streams",),
        "Number of streams per source cluster. A stream is a Spark task that fetches from the source and sends to the"
        " target.",
        "N", 1, "1, or mirror.consumer.numthreads of the consumer file", int, group=_MIRRORING,
    ),
    Option(
        ("--num.producers",), "Number of connections from each stream to each target broker.", "N", 1, type=int,
        group=_MIRRORING,
    ),
    Option(
        ("--queue.size",), "Largest number of messages that a stream holds between source and target.",
        "N", default_text="no limit; buffer.memory of the producer file limits the bytes", type=int, group=_MIRRORING,
    ),
    Option(
        ("--offset.commit.interval.ms",),
        "Interval in milliseconds between commits of mirrored offsets to the source's consumer group.",
        "MS", 1000, "1000 (Kafka's MirrorMaker: 60000)", int, group=_MIRRORING,
    ),
    Option(
        ("--abort.on.send.failure", "--abort.on.send.fail", "--abortOnSendFail"),
        "Behaviour when the target refuses a record for good, for example because it is too large. true: stop with exit"
        " code 1. false: list the record in --undelivered.file and continue.",
        "true|false", "true", bare_value="true", group=_MIRRORING,
    ),
    Option(
        ("--undelivered.file",),
        "File that lists the records that could not be delivered, as JSON lines with topic, partition, offset and"
        " cause. Only with --abort.on.send.failure false.",
        "FILE", default_text="undelivered-GROUP.jsonl in the working directory", group=_MIRRORING,
    ),
    Option(
        ("--message.handler",),
        "Python function or class that changes, drops or multiplies records (see docs/handlers.md).",
        "MODULE:NAME", default_text="none; records are mirrored unchanged", group=_MIRRORING,
    ),
    Option(
        ("--message.handler.args",), "Text for the constructor of the message handler.",
        "ARGS", default_text="none; the constructor is called without arguments", group=_MIRRORING,
    ),
    Option(
        ("--consumer.rebalance.listener",),
        "Python class whose methods are called when partitions are assigned to this process or revoked from it.",
        "MODULE:CLASS", default_text="none", group=_MIRRORING,
    ),
    Option(
        ("--rebalance.listener.args",), "Text for the constructor of the rebalance listener.",
        "ARGS", default_text="none; the constructor is called without arguments", group=_MIRRORING,
    ),
    Option(
        ("--groups",),
        "Consumer groups of the source whose offsets are kept in step on the target: regular expressions, separated by commas.",
        "REGEX", default_text="groups in the consumer file, else none", group=_MIRRORING,
    ),
    Option(
        ("--groups.exclude",),
        "Groups to leave alone, even if --groups matches them. An empty text leaves out none of them.",
        "REGEX", default_text="console-consumer-.*,connect-.*,__.*", group=_MIRRORING,
    ),
    Option(
        ("--accept.new.target",),
        "Start even if the group's committed offsets were written for another target cluster. By default this is an"
        " error.",
        group=_MIRRORING,
    ),
    Option(
        ("--jaas.config",),
        "JAAS configuration file with a KafkaClient section, for clusters whose property file has no sasl.jaas.config.",
        "FILE", group=_LOGIN,
        default_text="java.security.auth.login.config in KAFKA_OPTS or KAFKA_CLIENT_KERBEROS_PARAMS",
    ),
    Option(
        ("--krb5.config",), "Kerberos configuration file.",
        "FILE", group=_LOGIN,
        default_text="java.security.krb5.conf in KAFKA_OPTS or KAFKA_CLIENT_KERBEROS_PARAMS, else the system's"
        " krb5.conf",
    ),
    Option(
        ("-D",),
        "Java system property, as old scripts pass it. java.security.auth.login.config counts as --jaas.config and"
        " java.security.krb5.conf as --krb5.config; other properties have no effect. Can be repeated.",
        "NAME=VALUE", repeated=True, group=_LOGIN,
    ),
    Option(
        ("--spark.master",), "Spark master that runs the streams.",
        "URL", group=_SPARK,
        default_text="local, with two task slots per stream, so that a failed stream restarts at once",
    ),
    Option(("--spark.conf",), "Spark property. Can be repeated.", "KEY=VALUE", repeated=True, group=_SPARK),
    Option(
        ("--log.file",), "File for Spark's own log.",
        "FILE", default_text="a temporary file that is deleted at the end", group=_SPARK,
    ),
    Option(
        ("--progress.interval.ms",), "Interval in milliseconds between lines of progress if stderr is not a terminal.",
        "MS", 10_000, type=int, group=_OUTPUT,
    ),
    Option(
        ("--log.format",), "Format of the lines on stderr: text for people, json for programs (one object per line).",
        "FORMAT", "text", group=_OUTPUT,
    ),
    Option(
        ("--status.address",),
        "Address of an HTTP server with a status page, /api, /metrics for Prometheus, /healthz and /readyz. Port 0"
        " means a free port.",
        "HOST:PORT", default_text="no server", group=_OUTPUT,
    ),
    Option(
        ("--status.token",),
        "Secret that the HTTP server asks for. Required if other machines can reach the address. @FILE reads it from a"
        " file.",
        "TOKEN", default_text="none", group=_OUTPUT,
    ),
    Option(
        ("--metrics.max.partitions",),
        'Largest number of partitions with metrics of their own. The other partitions are summed up as'
        ' partition="other".',
        "N", 1000, type=int, group=_OUTPUT,
    ),
    Option(("--new.consumer",), "Accepted and ignored.", group=_LEGACY),
    Option(("--new.producer",), "Accepted and ignored.", group=_LEGACY),
)  # fmt: skip

TOPICS_MISSING = '--whitelist REGEX is missing: name the topics, or write --whitelist ".*" for all of them'
_SMALLEST = {
    "--num.streams": 1,
    "--num.producers": 1,
    "--queue.size": 1,
    "--offset.commit.interval.ms": 1,
    "--progress.interval.ms": 100,
    "--metrics.max.partitions": 0,
}


@dataclass(frozen=True)
class RunOptions:
    """The checked options of `mirrormaker run`.

    `consistency.combine` fills in the topics and the number of streams if only the property files name them.
    """

    consumer_config: tuple[str, ...]
    producer_config: str
    include: str | None
    exclude: str | None
    num_streams: int
    num_producers: int
    queue_size: int | None
    commit_interval: float  # seconds
    exit_when_caught_up: bool
    accept_new_target: bool
    spark_master: str | None
    spark_conf: tuple[tuple[str, str], ...]
    progress_interval: float  # seconds
    log_file: str | None
    abort_on_send_failure: bool = True
    undelivered_file: str | None = None
    message_handler: tuple[str, str | None] | None = None  # the handler and its arguments
    # A handler that is an object of the calling program; `message_handler` then only names it.
    handler_object: Callable[[Any], Any] | None = None
    rebalance_listener: tuple[str, str | None] | None = None  # the listener and its arguments
    groups: str | None = None
    groups_exclude: str | None = None
    streams_given: bool = False  # --num.streams is on the command line
    log_format: str = "text"
    status: StatusSettings | None = None
    login_files: LoginFiles = NO_FILES


def parse(argv: Sequence[str]) -> RunOptions:
    """Return the checked options of a command line without its command."""
    parser = CommandLineParser(prog="mirrormaker run")
    parser.add_options(OPTIONS)
    return check(parser.parse_args(argv))


def check(args: argparse.Namespace) -> RunOptions:
    """Return the options, or raise an error if one is missing, wrong or contradicts another."""
    check_clusters_and_topics(args)
    for option, smallest in _SMALLEST.items():
        value = getattr(args, _attribute(option))
        if value is not None and value < smallest:
            raise _error(f"{option} {value}: this must be at least {smallest}")
    abort = str(args.abort_on_send_failure).lower()
    if abort not in ("true", "false"):
        raise _error(f"--abort.on.send.failure {abort}: this must be true or false")
    if args.undelivered_file is not None and abort == "true":
        raise _error(
            "--undelivered.file needs --abort.on.send.failure false; otherwise the first such record ends the run"
        )
    if args.log_format not in ("text", "json"):
        raise _error(f"--log.format {args.log_format}: this must be text or json")
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
        spark_conf=spark_properties(args.spark_conf),
        progress_interval=args.progress_interval_ms / 1000,
        log_file=args.log_file,
        abort_on_send_failure=abort == "true",
        undelivered_file=args.undelivered_file,
        message_handler=_with_arguments(args, "--message.handler", "--message.handler.args"),
        rebalance_listener=_with_arguments(args, "--consumer.rebalance.listener", "--rebalance.listener.args"),
        groups=args.groups,
        groups_exclude=args.groups_exclude,
        streams_given=is_given(args, "num_streams"),
        log_format=args.log_format,
        status=status_settings(args.status_address, args.status_token, args.metrics_max_partitions),
        login_files=login_files(args.jaas_config, args.krb5_config, args.D, os.environ),
    )


def check_clusters_and_topics(args: argparse.Namespace) -> None:
    """Raise an error if a property file is missing, or if the topic filters contradict each other."""
    if not args.consumer_config:
        raise _error("--consumer.config FILE is missing: the property file of the source cluster")
    if not args.producer_config:
        raise _error("--producer.config FILE is missing: the property file of the target cluster")
    if args.whitelist is not None and args.blacklist is not None:
        raise _error("--whitelist (--include) and --blacklist (--exclude) contradict each other: give one of them")
    for option, value in (("--whitelist", args.whitelist), ("--blacklist", args.blacklist)):
        if value is not None and not value.strip():
            raise _error(f"{option} '{value}': this names no topic; write --whitelist \".*\" for all of them")


def spark_properties(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of `--spark.conf` options."""
    properties = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.startswith("spark."):
            raise _error(f"--spark.conf {pair}: this must be spark.something=value")
        properties.append((key, value))
    return tuple(properties)


def _with_arguments(args: argparse.Namespace, option: str, arguments_option: str) -> tuple[str, str | None] | None:
    """Return the name of user code and the text for its constructor."""
    name, arguments = getattr(args, _attribute(option)), getattr(args, _attribute(arguments_option))
    if arguments is not None and name is None:
        raise _error(f"{arguments_option} needs {option}, which is not given")
    return (name, arguments) if name else None


def _attribute(option: str) -> str:
    return next(row.attribute for row in OPTIONS if option in row.names)


def _error(text: str) -> SettingError:
    return SettingError(text, option=True)
