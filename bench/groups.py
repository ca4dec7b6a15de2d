"""`python -m bench groups`: how long a commit takes to the target, and what it costs, with a thousand consumer groups."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from tests.support.java_mirrors import Job, start_ours
from tests.support.raw_requests import RawConnection, check_produced, produce_request, record_batch
from tests.support.topics import EndOffsets, create_topic
from tests.support.waiting import wait_until
from tests.support.wire_clients import wire_client

from bench.mirror_run import MirrorRun, running
from bench.progress import step
from bench.tools import Tool
from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.wire.client import group_offsets
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.protocol.group_messages import CommitRow

_TOPIC = "grouped"
_RECORDS = 100  # of each partition
_BROKER = {"auto.create.topics.enable": "false", "log.index.size.max.bytes": "65536"}
_START, _FIRST_ROUND = 120.0, 180.0  # seconds for the mirror's first record, and for the first offsets of all groups
_IDLE, _BUSY = 20.0, 30.0  # seconds of the measurements
_SAMPLES = 5  # commits whose way to the target is timed
_EACH_COMMITS_EVERY = 60.0  # seconds: so often each group commits while the mirror is measured
# The goals: seconds from a commit on the source to the same place on the target, and percent of a core.
_WITHIN, _CPU = 5.0, 10.0


def main(arguments: Sequence[str]) -> int:
    """Measure, show the figures, and return 0 if the goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000, help="number of groups (default: 1000)")
    parser.add_argument("--partitions", type=int, default=100, help="partitions of the topic (default: 100)")
    args = parser.parse_args(arguments)
    console = Console()
    names = [f"group-{number:05}" for number in range(args.groups)]
    directory = child_processes.new_directory("groups")
    with (
        Cluster(name="groups-source", settings=_BROKER, heap="1g", quick=False) as source,
        Cluster(name="groups-target", settings=_BROKER, heap="1g", quick=False) as target,
    ):
        for cluster in (source, target):
            create_topic(cluster, _TOPIC, args.partitions)
        _write(source, args.partitions)
        with step(console, f"{args.groups:,} groups commit in {args.partitions} partitions"):
            asyncio.run(_commit(source, names, args.partitions, 10))
        job = Job(_TOPIC, source.bootstrap, target.bootstrap, directory, "bench-groups")
        with step(console, "idle, without groups"), _mirror(job, target, args.partitions) as mirror:
            without = _cpu(mirror, _IDLE)
        with (
            step(console, "with groups") as progress,
            _mirror(job, target, args.partitions, "--groups", "group-.*") as mirror,
        ):
            began = time.monotonic()
            _wait_until_moved(target, names[-1], 10, _FIRST_ROUND)
            first = time.monotonic() - began
            idle = _cpu(mirror, _IDLE)
            progress(args.groups)
            busy, delays = asyncio.run(_while_groups_commit(mirror, source, target, names, args.partitions))
    child_processes.remove_directory(directory)
    console.print(f"all groups were on the target {first:.1f} s after the mirror's first record")
    console.print(f"CPU of the mirror: {without:.1f} % of a core without groups, {idle:.1f} % with idle groups")
    console.print(
        f"each group commits once in {_EACH_COMMITS_EVERY:g} s: {busy:.1f} % of a core;"
        f" a commit is on the target after {min(delays):.1f} to {max(delays):.1f} s"
    )
    goals = {"seconds": (max(delays), _WITHIN), "% of a core for groups": (busy - without, _CPU)}
    for name, (value, limit) in goals.items():
        console.print(f"{name}: {value:.1f}, at most {limit:g}: {'met' if value <= limit else 'missed'}")
    return 0 if all(value <= limit for value, limit in goals.values()) else 1


@contextlib.contextmanager
def _mirror(job: Job, target: Cluster, partitions: int, *options: str) -> Iterator[MirrorRun]:
    """Run a mirror, and yield it once it has mirrored everything."""
    with running(Tool("ours", "ours", lambda wanted, log: start_ours(wanted, log, *options)), job) as mirror:
        ends = EndOffsets(target, _TOPIC, partitions)
        wait_until("every record", lambda: ends.records() == partitions * _RECORDS, _START)
        ends.close()
        time.sleep(5)
        yield mirror


def _write(source: Cluster, partitions: int) -> None:
    connection = RawConnection(source.brokers[0].port)
    batch = record_batch([b"a record of the group benchmark"] * _RECORDS)
    check_produced(connection.ask(produce_request(_TOPIC, dict.fromkeys(range(partitions), batch))))
    connection.close()


def _cpu(mirror: MirrorRun, seconds: float) -> float:
    """Return the CPU of the mirror as percent of a core."""
    mirror.tree.update()
    before, began = mirror.tree.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    mirror.tree.update()
    return 100 * (mirror.tree.cpu_seconds() - before) / (time.monotonic() - began)


async def _while_groups_commit(
    mirror: MirrorRun, source: Cluster, target: Cluster, names: Sequence[str], partitions: int
) -> tuple[float, list[float]]:
    """Return the CPU while all groups commit in turns, and how long some commits took to the target."""
    busy = asyncio.ensure_future(asyncio.to_thread(_cpu, mirror, _BUSY))
    committing = asyncio.ensure_future(_commit_in_turns(source, names[_SAMPLES:], partitions))
    delays = []
    client = wire_client(target.bootstrap)
    await client.refresh()
    for number, name in enumerate(names[:_SAMPLES]):
        await asyncio.sleep(_BUSY / _SAMPLES / 4 + number * 0.7)  # at different moments of the mirror's rounds
        await _commit(source, [name], partitions, 50)
        began = time.monotonic()
        while await _offset(client, name) != 50:
            await asyncio.sleep(0.05)
        delays.append(time.monotonic() - began)
    client.close()
    cpu = await busy
    committing.cancel()
    return cpu, delays


async def _commit_in_turns(source: Cluster, names: Sequence[str], partitions: int) -> None:
    offset, pause = 20, _EACH_COMMITS_EVERY / len(names)
    client = wire_client(source.bootstrap)
    await client.refresh()
    nodes = await group_offsets.find_coordinators(client, names)
    while True:
        for name in names:
            rows = [CommitRow(_TOPIC, partition, offset) for partition in range(partitions)]
            await group_offsets.commit_offsets(client, {name: rows}, nodes)
            await asyncio.sleep(pause)
        offset += 1


async def _commit(source: Cluster, names: Sequence[str], partitions: int, offset: int) -> None:
    client = wire_client(source.bootstrap)
    await client.refresh()
    nodes: dict[str, int] = {}
    while len(nodes) < len(names):  # the first group of a cluster waits for the offsets topic
        nodes = await group_offsets.find_coordinators(client, names)
        await asyncio.sleep(0.1)
    rows = [CommitRow(_TOPIC, partition, offset) for partition in range(partitions)]
    found = await group_offsets.commit_offsets(client, dict.fromkeys(names, rows), nodes)
    client.close()
    assert all(isinstance(codes, dict) and set(codes.values()) == {0} for codes in found.values())


def _wait_until_moved(target: Cluster, name: str, offset: int, limit: float) -> None:
    async def wait() -> None:
        client = wire_client(target.bootstrap)
        await client.refresh()
        async with asyncio.timeout(limit):
            while await _offset(client, name) != offset:
                await asyncio.sleep(0.1)
        client.close()

    asyncio.run(wait())


async def _offset(client: Client, name: str) -> int | None:
    """Return the group's offset in the last partition."""
    nodes = await group_offsets.find_coordinators(client, [name])
    found = (await group_offsets.fetch_offsets(client, nodes, stable=True)).get(name)
    if found is None or isinstance(found, Exception) or _TOPIC not in found.topics:
        return None
    rows = found.topics[_TOPIC].rows()
    return rows[max(rows)].offset if rows else None
