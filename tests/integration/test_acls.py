"""ACLs of real brokers: a missing right is named together with the command that grants it."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.cli import call
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.flow import Flow, Wiring
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.grants import grant, revoke
from mirrormaker.errors import ClusterError
from mirrormaker.events.event import Event
from mirrormaker.events.group_events import GroupNotFollowed, HeartbeatsFailed
from mirrormaker.groups.checkpoints import HEARTBEATS
from mirrormaker.mapping import map_topic
from mirrormaker.model.offset_map import Block
from mirrormaker.model.offset_map_format import BlockKey, pack_block, pack_key
from mirrormaker.model.offset_runs import RunList
from mirrormaker.model.position import Identity
from mirrormaker.model.topic_filter import Filter, python_matcher
from mirrormaker.settings import properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.options import parse
from mirrormaker.wire.client import keyed_topic
from tests.support.group_clients import commit, committed
from tests.support.reading import read
from tests.support.tls_clusters import (
    GROUP,
    READER,
    SOURCE_RIGHTS,
    TARGET_RIGHTS,
    TOPIC,
    WRITER,
    TlsClusters,
    tls_clusters,
    write_settings,
)
from tests.support.wire_clients import wire_client


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsClusters]:
    with tls_clusters(tmp_path_factory.mktemp("stores")) as running:
        yield running


def begin(
    clusters: TlsClusters,
    directory: Path,
    more: str = "",
    options: tuple[str, ...] = (),
    *,
    is_enough: Callable[[list[Event]], bool] = lambda _: True,
) -> list[str]:
    """Run a mirror up to the start of its streams, and until it has done enough. Return the texts of its events.

    `more` are further lines of the consumer file.
    """
    consumer, producer = directory / "source.properties", directory / "target.properties"
    consumer.write_text(f"bootstrap.servers={clusters.source.address('MTLS')}\ngroup.id={GROUP}\n{clusters.jks}{more}")
    producer.write_text(f"bootstrap.servers={clusters.target.address('MTLS')}\n{clusters.pkcs12}")
    line = ["--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", TOPIC, *options]
    events: list[Event] = []

    async def matcher() -> Callable[[str], bool]:
        return python_matcher(TOPIC)

    async def never() -> Any:
        await asyncio.Event().wait()

    async def run() -> None:
        source = source_settings(properties.read(str(consumer), "--consumer.config"))
        target = target_settings(properties.read(str(producer), "--producer.config"))
        wiring = Wiring(
            parse(line),
            target,
            Filter.of(TOPIC, None),
            matcher,
            never,
            ControlServer(),
            directory / "spark.log",
            events.append,
        )
        flow = Flow(0, source, wiring, None)
        try:
            await flow.connect()
            running = asyncio.ensure_future(flow.run())
            await asyncio.wait([running, asyncio.ensure_future(flow.ready.wait())], return_when=asyncio.FIRST_COMPLETED)
            while not await asyncio.to_thread(is_enough, events):
                assert not running.done()
                await asyncio.sleep(0.1)
            flow.stop()
            await running
        finally:
            flow.source.close()
            flow.target.close()

    try:
        asyncio.run(asyncio.wait_for(run(), 60))
    except asyncio.TimeoutError:
        raise AssertionError("\n".join(event.text for event in events)) from None
    return [event.text for event in events]


def refusal(clusters: TlsClusters, directory: Path) -> str:
    """Return the error for a missing right. It takes a moment until a broker knows changed ACLs."""
    deadline = time.monotonic() + 10
    while True:
        try:
            begin(clusters, directory)
        except ClusterError as error:
            return str(error)
        assert time.monotonic() < deadline, "the mirror has all rights"


def begin_within(clusters: TlsClusters, directory: Path, seconds: float = 10) -> list[str]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return begin(clusters, directory)
        except ClusterError:
            if time.monotonic() > deadline:
                raise


def without_the_topic(target: Cluster) -> None:
    """Delete the topic, so that the mirror must create it."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    try:
        if TOPIC in admin.list_topics():
            admin.delete_topics([TOPIC])
        while TOPIC in admin.list_topics():
            time.sleep(0.05)
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("side", "right"),
    [*(("source", right) for right in SOURCE_RIGHTS), *(("target", right) for right in TARGET_RIGHTS)],
)
def test_a_right_that_is_missing_is_named_with_the_command_that_grants_it(
    clusters: TlsClusters, tmp_path: Path, side: str, right: tuple[str, str, str]
) -> None:
    cluster: Cluster = getattr(clusters, side)
    who, (operation, kind, name) = READER if side == "source" else WRITER, right
    if operation == "Create":
        without_the_topic(clusters.target)
    else:
        begin_within(clusters, tmp_path)
    revoke(cluster, who, *right)
    try:
        said = refusal(clusters, tmp_path)
    finally:
        grant(cluster, who, *right)
    servers = cluster.address("MTLS")
    assert f"{servers} does not give {who} the right to" in said
    command = said.partition("this grants it: ")[2]
    assert command.startswith(f"kafka-acls --bootstrap-server {servers} --add --allow-principal {who} --operation")
    assert f"--operation {operation}" in command
    assert command.endswith(f"--{kind} {name}")


def test_the_command_grants_what_it_says(clusters: TlsClusters, tmp_path: Path) -> None:
    revoke(clusters.source, READER, *SOURCE_RIGHTS[1])
    words = shlex.split(refusal(clusters, tmp_path).partition("this grants it: ")[2])
    words[words.index("--bootstrap-server") + 1] = (
        clusters.source.bootstrap
    )  # the listener at which an administrator may connect
    done = clusters.source.tools.run("org.apache.kafka.tools.AclCommand", *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    begin_within(clusters, tmp_path)


def test_settings_that_may_not_be_read_are_not_taken_over_and_a_line_says_so(
    clusters: TlsClusters, tmp_path: Path
) -> None:
    right = ("DescribeConfigs", "topic", TOPIC)
    revoke(clusters.source, READER, *right)
    try:
        deadline, said = time.monotonic() + 10, ""
        while "is created with the target's own settings" not in said:
            assert time.monotonic() < deadline, said
            without_the_topic(clusters.target)
            said = "\n".join(begin_within(clusters, tmp_path))
    finally:
        grant(clusters.source, READER, *right)
    assert f"{READER} the right to DescribeConfigs on topic {TOPIC}" in said


def test_the_offset_checker_comes_in_the_same_way(
    clusters: TlsClusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_within(clusters, tmp_path)  # the mirror commits the start of each partition
    servers = clusters.source.address("MTLS")
    file = write_settings(tmp_path, servers, clusters.jks)
    assert call(["offsets", "--bootstrap-server", servers, "--group", GROUP, "--command-config", file]) == 0
    assert capsys.readouterr().out.count(f" {TOPIC} ") == 2


async def write_map(clusters: TlsClusters) -> None:
    """Write the offset map of an empty partition, as an administrator."""
    source, target = wire_client(clusters.source.bootstrap), wire_client(clusters.target.bootstrap)
    try:
        await source.refresh()
        await target.refresh()
        await keyed_topic.ensure(target, map_topic.TOPIC)
        block = Block(0, 0, Identity(1, 0), "", lists={("", 0): RunList(0, 0, 0, 0)})
        row = (pack_key(BlockKey(source.id, TOPIC, 0, 0)), pack_block(block, 0))
        await keyed_topic.KeyedWriter(target, map_topic.TOPIC).write([row])
    finally:
        source.close()
        target.close()


def test_heartbeats_need_no_groups_and_a_missing_right_is_named_once(clusters: TlsClusters, tmp_path: Path) -> None:
    lines = "emit.heartbeats.enabled=true\nsource.cluster.alias=east\ntarget.cluster.alias=west\n"
    begin_within(clusters, tmp_path)
    heard: list[float] = []

    def is_told(events: list[Event]) -> bool:
        """Return True some heartbeats after the first line about them."""
        if any(isinstance(event, HeartbeatsFailed) for event in events):
            heard.append(time.monotonic())
        return bool(heard) and time.monotonic() > heard[0] + 3

    (said,) = [text for text in begin(clusters, tmp_path, lines, is_enough=is_told) if "heartbeats" in text]
    servers = clusters.target.address("MTLS")
    command = (
        f"kafka-acls --bootstrap-server {servers} --add --allow-principal {WRITER} --operation Create --operation Write"
    )
    assert f"{command} --topic {HEARTBEATS}" in said
    for operation in ("Create", "Write"):
        grant(clusters.target, WRITER, operation, "topic", HEARTBEATS)

    def has_beats(_: list[Event]) -> bool:
        return len(read(clusters.target, HEARTBEATS).get(0, ())) >= 2

    begin(clusters, tmp_path, lines, is_enough=has_beats)
    first, *_ = read(clusters.target, HEARTBEATS)[0]
    assert (first.key, len(first.value or b"")) == (b"\0\4east\0\4west", 10)


def test_rights_that_groups_need_are_named_one_after_the_other(
    clusters: TlsClusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, offset_map, checkpoints = "reports", map_topic.TOPIC, "east.checkpoints.internal"
    grant(clusters.source, READER, "Describe", "group", group)
    begin_within(clusters, tmp_path)  # makes the files and the topic
    commit(clusters.source, group, TOPIC, {0: 0})
    with (tmp_path / "source.properties").open("a") as file:
        file.write("source.cluster.alias=east\n")
    files = ["--consumer.config", str(tmp_path / "source.properties")]
    files += ["--producer.config", str(tmp_path / "target.properties")]

    def says(words: str, code: int) -> str:
        """Run the command until it says that: it takes a moment until a broker knows changed ACLs."""
        deadline = time.monotonic() + 10
        while True:
            ended = call(["groups", *files, "--groups", group])
            shown = capsys.readouterr()
            if words in shown.out + shown.err:
                assert ended == code
                return shown.out + shown.err
            assert time.monotonic() < deadline, shown.out + shown.err

    on_target = f"kafka-acls --bootstrap-server {clusters.target.address('MTLS')} --add --allow-principal {WRITER}"
    assert f"{on_target} --operation Describe --operation Read --topic {offset_map}" in says(offset_map, 1)
    asyncio.run(write_map(clusters))
    grant(clusters.target, WRITER, "Read", "topic", offset_map)
    assert f"{on_target} --operation Describe --operation Read --topic {checkpoints}" in says(checkpoints, 1)
    grant(clusters.target, WRITER, "Read", "topic", checkpoints)
    assert f"{on_target} --operation Read --group {group}" in says("no rights", 3)
    grant(clusters.target, WRITER, "Read", "group", group)
    needed = "--operation Create --operation Read --operation Write"
    assert f"{on_target} {needed} --topic {checkpoints}" in says("not written yet", 3)
    clusters.target.create_topic(checkpoints)
    says(f"{on_target} --operation Write --topic {checkpoints}", 3)

    # A running mirror misses the same right, and goes on once it is there.
    grant(clusters.target, WRITER, "Write", "topic", offset_map)
    grant(clusters.target, WRITER, "Write", "topic", checkpoints)
    revoke(clusters.target, WRITER, "Read", "group", group)
    lines = "source.cluster.alias=east\nsync.group.offsets.interval.seconds=1\n"

    def is_refused(events: list[Event]) -> bool:
        return any(isinstance(event, GroupNotFollowed) and event.state == "no rights" for event in events)

    begin(clusters, tmp_path, lines, ("--groups", group), is_enough=is_refused)
    grant(clusters.target, WRITER, "Read", "group", group)

    def is_written(_: list[Event]) -> bool:
        return committed(clusters.target, group, TOPIC) == {0: 0}

    begin(clusters, tmp_path, lines, ("--groups", group), is_enough=is_written)
    says("ready to fail over: 1 of 1", 0)
    # On the source, a group that may not be described is not listed.
    on_source = f"kafka-acls --bootstrap-server {clusters.source.address('MTLS')} --add --allow-principal {READER}"
    revoke(clusters.source, READER, "Describe", "group", group)
    assert f"{on_source} --operation Describe --group {group}" in says("no rights", 3)
    grant(clusters.source, READER, "Describe", "group", group)
    says("ready to fail over: 1 of 1", 0)
