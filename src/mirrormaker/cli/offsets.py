"""`mirrormaker offsets`: how far a consumer group is; the original's kafka-consumer-offset-checker."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from typing import Any

from mirrormaker.errors import ClusterError, SettingError
from mirrormaker.settings import properties
from mirrormaker.settings.addresses import addresses
from mirrormaker.settings.login import login_files
from mirrormaker.settings.options import Once
from mirrormaker.settings.property_file import File
from mirrormaker.settings.security import security
from mirrormaker.wire.credentials import PLAINTEXT, Security

_LOCAL = "localhost:2181"
_EXAMPLES = """examples:
  of a cluster with ZooKeeper, as ever:
    mirrormaker offsets --zookeeper zk1:2181,zk2:2181/kafka --group mirror
  of a cluster without it, two topics only:
    mirrormaker offsets --bootstrap-server old1:9092 --group mirror --topic orders,payments
  watch it catch up, every 5 seconds until Ctrl+C:
    mirrormaker offsets --bootstrap-server old1:9092 --group mirror --watch 5
  for a program: one JSON object, or one in each line with --watch:
    mirrormaker offsets --bootstrap-server old1:9092 --group mirror --json

columns: Offset is what the group has committed (-1: nothing yet), logSize the end of the partition's log, Lag the records
between them, Owner the consumer that has the partition now. What is not known is "unknown", what nobody owns is "none".
exit codes: 0, or 1 with one line on stderr that says why."""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "offsets",
        help="how far a consumer group is, partition by partition",
        description="Show how far a consumer group is: committed offset, end of the log, lag and owner of each partition.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--group", metavar="GROUP", action=Once, help="the consumer group (required)")
    add(
        "--zookeeper", "--zkconnect", metavar="HOSTS", action=Once,
        help=f"ZooKeeper of the cluster: host:2181,host2:2181/chroot (default: {_LOCAL})",
    )  # fmt: skip
    add(
        "--bootstrap-server", metavar="HOSTS", action=Once,
        help="brokers of the cluster, instead of ZooKeeper: host:9092,host2:9092",
    )  # fmt: skip
    add("--command-config", metavar="FILE", action=Once, help="a property file for the connection to the brokers")
    add(
        "--jaas.config",
        metavar="FILE",
        action=Once,
        dest="jaas_config",
        help="a login configuration of Java, with KafkaClient { ... };",
    )
    add(
        "--krb5.config",
        metavar="FILE",
        action=Once,
        dest="krb5_config",
        help="krb5.conf, if it is not the machine's own",
    )
    add(
        "--topic",
        metavar="TOPICS",
        action=Once,
        help="these topics, with commas between them (default: all of the group)",
    )
    add("--broker-info", action="store_true", help="print the addresses of the brokers as well")
    add(
        "--watch", metavar="SECONDS", action=Once, nargs="?", type=float, const=2.0,
        help="again and again, with each partition's pace and the time until it has caught up (without a number: every 2 s)",
    )  # fmt: skip
    add("--json", action="store_true", help="print JSON instead of a table")
    add(
        "--socket.timeout.ms", metavar="MS", action=Once, type=int, default=6000, dest="socket_timeout_ms",
        help="how long a connection and an answer are waited for (default: 6000)",
    )  # fmt: skip
    add(
        "--retry.backoff.ms", metavar="MS", action=Once, type=int, default=3000, dest="retry_backoff_ms",
        help="the longest pause before the group's coordinator is asked again (default: 3000)",
    )  # fmt: skip
    parser.set_defaults(body=body, parser=parser)


def body(args: argparse.Namespace) -> int:
    """The table goes to stdout; what goes wrong with ZooKeeper is said in the original's words, but on stderr and with exit 1."""
    _check(args)
    try:
        _show(args)
    except KeyboardInterrupt:
        if args.watch is None:
            raise
    except BrokenPipeError:  # whoever reads has stopped reading (`| head`): that is no mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ClusterError as error:
        if args.bootstrap_server is not None:
            raise
        print(f"Exiting due to: {_original_words(error, args.zookeeper or _LOCAL)}.", file=sys.stderr)
        return 1
    return 0


def _check(args: argparse.Namespace) -> None:
    see = f"(see {args.parser.prog} --help)"
    if not args.group:
        raise SettingError(f'Missing required argument "[group]" {see}')
    if args.zookeeper is not None and args.bootstrap_server is not None:
        raise SettingError(
            f"--zookeeper and --bootstrap-server are two ways to the same cluster: give one of them {see}"
        )
    if args.watch is not None and not 0.1 <= args.watch <= 86_400:
        raise SettingError(f"--watch {args.watch:g}: this must be from 0.1 to 86400 seconds {see}")
    for name in ("socket.timeout.ms", "retry.backoff.ms"):
        value = getattr(args, name.replace(".", "_"))
        if value < 1:
            raise SettingError(f"--{name} {value}: this must be at least 1 {see}")


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
            connect = args.zookeeper or _LOCAL
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
                await (_once(checker, args) if args.watch is None else _watch(checker, args))
            finally:
                cluster.close()

        asyncio.run(show())


async def _once(checker: Any, args: argparse.Namespace) -> None:
    from mirrormaker.offsets import table

    standing = await checker.check()
    if args.json:
        print(json.dumps(table.as_json(standing, None, args.broker_info)), flush=True)
    else:
        print("\n".join(table.lines(standing, args.broker_info)), flush=True)


async def _watch(checker: Any, args: argparse.Namespace) -> None:
    """Until Ctrl+C. What fails at first ends it; what fails later is said once, and asked for again."""
    from rich.console import Console
    from rich.live import Live

    from mirrormaker.offsets import table
    from mirrormaker.offsets.group_lag import LagHistory

    paces, standing, trouble, said = LagHistory(), await checker.check(), "", False
    console = Console(highlight=False)
    with contextlib.ExitStack() as stack:
        is_live = console.is_terminal and not args.json
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if is_live else None
        while True:
            if not trouble:
                paces.add(time.monotonic(), standing)
            if live is not None:
                live.update(table.live_table(standing, paces, args.broker_info, trouble), refresh=True)
            elif trouble:
                if not said:
                    print(trouble, file=sys.stderr, flush=True)
            elif args.json:
                print(json.dumps({"time": time.time(), **table.as_json(standing, paces, args.broker_info)}), flush=True)
            else:
                print("\n".join(table.lines_with_pace(standing, paces, args.broker_info)), end="\n\n", flush=True)
            said = bool(trouble)
            await asyncio.sleep(args.watch)
            try:
                standing, trouble = await checker.check(), ""
            except ClusterError as error:
                trouble = f"{time.strftime('%H:%M:%S')} {error}"


def _client(args: argparse.Namespace) -> tuple[str, Security]:
    """What a `--command-config` says: the client's name, and how it is let in."""
    path = args.command_config
    if path is None:
        return "mirrormaker", PLAINTEXT
    file = File(properties.read(path, "--command-config"), "consumer")
    file.check()
    return file.text("client.id", "mirrormaker"), security(
        file, login_files(args.jaas_config, args.krb5_config, (), os.environ)
    )


def _original_words(error: ClusterError, connect: str) -> str:
    from mirrormaker.errors import ZooKeeperError

    if not isinstance(error, ZooKeeperError):
        return str(error)
    if error.unknown_host:
        return f"Unable to connect to {connect}"
    return "Unable to connect to zookeeper server within timeout: 30000"
