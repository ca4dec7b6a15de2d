"""`mirrormaker offsets`: show the progress of a consumer group. It replaces Kafka's kafka-consumer-offset-checker."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from typing import Any

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import ClusterError, SettingError, ZooKeeperError
from mirrormaker.settings import options, properties
from mirrormaker.settings.addresses import addresses
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.login import login_files
from mirrormaker.settings.property_file import PropertyFile
from mirrormaker.settings.security import security
from mirrormaker.wire.credentials import PLAINTEXT, Security

_DEFAULT_ZOOKEEPER = "localhost:2181"
_CLUSTER, _OUTPUT = "group and cluster", "output"
_OPTIONS = (
    Option(("--group",), "Consumer group.", "GROUP", required=True, group=_CLUSTER),
    Option(
        ("--zookeeper", "--zkconnect"), "ZooKeeper of the cluster: host:2181,host2:2181/chroot.",
        "HOSTS", default_text=_DEFAULT_ZOOKEEPER, group=_CLUSTER,
    ),
    Option(
        ("--bootstrap-server",), "Brokers of the cluster, instead of ZooKeeper: host:9092,host2:9092.",
        "HOSTS", default_text="the brokers that ZooKeeper names", group=_CLUSTER,
    ),
    Option(
        ("--command-config",),
        "Property file for the connections to the brokers, with settings such as security.protocol.",
        "FILE", default_text="none; the connections are not encrypted and need no login", group=_CLUSTER,
    ),
    *(option for option in options.OPTIONS if option.names[0] in ("--jaas.config", "--krb5.config")),
    Option(
        ("--topic",), "Topics to show. Separate the names with commas.",
        "TOPICS", default_text="all topics of the group", group=_OUTPUT,
    ),
    Option(("--broker-info",), "Also print the addresses of the brokers.", group=_OUTPUT),
    Option(
        ("--watch",),
        "Repeat every SECONDS until Ctrl+C, with the speed of each partition and the time until it has caught up."
        " Without a number: every 2 seconds.",
        "SECONDS", default_text="print once", type=float, bare_value=2.0, group=_OUTPUT,
    ),
    Option(("--json",), "Print JSON instead of a table.", group=_OUTPUT),
    Option(
        ("--socket.timeout.ms",), "Longest wait in milliseconds for a connection and for an answer.",
        "MS", 6000, type=int, group="timeouts",
    ),
    Option(
        ("--retry.backoff.ms",), "Longest pause in milliseconds before the group's coordinator is asked again.",
        "MS", 3000, type=int, group="timeouts",
    ),
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the table on stdout.

    If ZooKeeper does not answer, the error has the original's words, but is on stderr and exits with code 1.
    """
    _check(args)
    try:
        _show(args)
    except KeyboardInterrupt:
        if args.watch is None:
            raise
    except BrokenPipeError:
        # The reader ended, as in `mirrormaker offsets ... | head`. Python must not write to the pipe again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ClusterError as error:
        if args.bootstrap_server is not None:
            raise
        print(f"Exiting due to: {_original_words(error, args.zookeeper or _DEFAULT_ZOOKEEPER)}.", file=sys.stderr)
        return 1
    return 0


def _check(args: argparse.Namespace) -> None:
    if not args.group:
        raise SettingError('Missing required argument "[group]"', option=True)
    if args.zookeeper is not None and args.bootstrap_server is not None:
        raise SettingError(
            "--zookeeper and --bootstrap-server are two ways to the same cluster: give one of them", option=True
        )
    if args.watch is not None and not 0.1 <= args.watch <= 86_400:
        raise SettingError(f"--watch {args.watch:g}: this must be from 0.1 to 86400 seconds", option=True)
    for option, value in (
        ("--socket.timeout.ms", args.socket_timeout_ms),
        ("--retry.backoff.ms", args.retry_backoff_ms),
    ):
        if value < 1:
            raise SettingError(f"{option} {value}: this must be at least 1", option=True)


def _show(args: argparse.Namespace) -> None:
    from mirrormaker.offsets.checker import Checker
    from mirrormaker.wire.client.cluster import Cluster, Endpoint
    from mirrormaker.zookeeper.ensemble import ZooKeeper
    from mirrormaker.zookeeper.registrations import broker_addresses, requests_version

    client_id, secured = _client(args)
    timeout = args.socket_timeout_ms / 1000
    topics = tuple(filter(None, (name.strip() for name in (args.topic or "").split(","))))
    with contextlib.ExitStack() as stack:
        zookeeper, version = None, None
        if args.bootstrap_server is None:
            connect = args.zookeeper or _DEFAULT_ZOOKEEPER
            zookeeper = stack.enter_context(ZooKeeper(connect, timeout))
            registered = zookeeper.brokers()
            brokers = tuple(broker_addresses(registered, secured.protocol, connect).values())
            version = requests_version(registered)
        else:
            brokers = addresses(args.bootstrap_server, "the command line", "--bootstrap-server")
        endpoint = Endpoint(brokers, client_id, timeout, timeout, broker_version=version, security=secured)

        async def show() -> None:
            cluster = Cluster(endpoint)
            try:
                checker = Checker(cluster, zookeeper, args.group, topics, args.retry_backoff_ms / 1000)
                await (_print_once(checker, args) if args.watch is None else _watch(checker, args))
            finally:
                cluster.close()

        asyncio.run(show())


async def _print_once(checker: Any, args: argparse.Namespace) -> None:
    from mirrormaker.offsets import table

    lag = await checker.check()
    if args.json:
        print(json.dumps(table.as_json(lag, None, args.broker_info)), flush=True)
    else:
        print("\n".join(table.lines(lag, args.broker_info)), flush=True)


async def _watch(checker: Any, args: argparse.Namespace) -> None:
    """Print again and again until Ctrl+C.

    An error in the first round is raised. A later one is printed once, and the next round tries again.
    """
    from rich.console import Console
    from rich.live import Live

    from mirrormaker.offsets import table
    from mirrormaker.offsets.group_lag import LagHistory

    history, lag, trouble, is_reported = LagHistory(), await checker.check(), "", False
    console = Console(highlight=False)
    with contextlib.ExitStack() as stack:
        is_live = console.is_terminal and not args.json
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if is_live else None
        while True:
            if not trouble:
                history.add(time.monotonic(), lag)
            if live is not None:
                live.update(table.live_table(lag, history, args.broker_info, trouble), refresh=True)
            elif trouble:
                if not is_reported:
                    print(trouble, file=sys.stderr, flush=True)
            elif args.json:
                print(json.dumps({"time": time.time(), **table.as_json(lag, history, args.broker_info)}), flush=True)
            else:
                print("\n".join(table.lines_with_pace(lag, history, args.broker_info)), end="\n\n", flush=True)
            is_reported = bool(trouble)
            await asyncio.sleep(args.watch)
            try:
                lag, trouble = await checker.check(), ""
            except ClusterError as error:
                trouble = f"{time.strftime('%H:%M:%S')} {error}"


def _client(args: argparse.Namespace) -> tuple[str, Security]:
    """Return the client id and the security settings of `--command-config`."""
    path = args.command_config
    if path is None:
        return "mirrormaker", PLAINTEXT
    file = PropertyFile(properties.read(path, "--command-config"), "consumer")
    file.check()
    logins = login_files(args.jaas_config, args.krb5_config, (), os.environ)
    return file.text("client.id", "mirrormaker"), security(file, logins)


def _original_words(error: ClusterError, connect: str) -> str:
    """Return the text that kafka-consumer-offset-checker prints if it cannot reach ZooKeeper."""
    if not isinstance(error, ZooKeeperError):
        return str(error)
    if error.unknown_host:
        return f"Unable to connect to {connect}"
    return "Unable to connect to zookeeper server within timeout: 30000"


COMMAND = Command(
    name="offsets",
    purpose="show the progress of a consumer group, partition by partition",
    usage="--group GROUP (--zookeeper HOSTS | --bootstrap-server HOSTS) [OPTION ...]",
    description="Show the progress of a consumer group: the committed offset, the end of the log, the lag and the owner of"
    " each partition.",
    options=_OPTIONS,
    examples=(
        Example(
            "A group of a cluster with ZooKeeper:",
            "%(prog)s --zookeeper zk1:2181,zk2:2181/kafka --group mirror",
        ),
        Example(
            "Two topics of a group of a cluster without ZooKeeper:",
            "%(prog)s --bootstrap-server old1:9092 --group mirror --topic orders,payments",
        ),
        Example(
            "Watch the group catch up, every 5 seconds until Ctrl+C:",
            "%(prog)s --bootstrap-server old1:9092 --group mirror --watch 5",
        ),
        Example(
            "Print one JSON object for a program (with --watch: one per line):",
            "%(prog)s --bootstrap-server old1:9092 --group mirror --json",
        ),
    ),
    notes="Columns: Offset is the committed offset (-1: none), logSize the end of the partition's log, Lag the"
    " difference, and"
    ' Owner the consumer that has the partition now. Values that are not known are "unknown"; a partition without an'
    ' owner has "none".',
    exit_codes={0: "the offsets were printed", 1: "an error; the line on stderr names it"},
    run=run,
)
