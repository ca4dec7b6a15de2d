"""Cases in which a cluster is upgraded from Kafka 2.0.1 through 3.9.2 to 4.3.1 while a mirror runs.

The cluster keeps its data and its ports. On the way it gives ids to its topics and moves from ZooKeeper to KRaft.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path

from tests.support.counting import Count, count
from tests.support.load import PARTITIONS, Load
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_watch import OffsetWatch
from tests.support.topics import EndOffsets
from tests.support.waiting import wait_until
from tests.support.wire_clients import wire_client

from faults.case import Result, SeparateCase
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.upgrade import upgrade
from mirrormaker.model.ledger import unpack
from mirrormaker.model.position import Position
from mirrormaker.wire.client.groups import GroupCoordinator

_OLD, _NEW = "2.0.1", ("3.9.2", "4.3.1")
_GROUP = "upgraded"
_BUSY, _QUIET = "busy", "quiet"  # the quiet topic gets records before the first step and after the last one
_QUIET_RECORDS = 800
_FLOW = 120.0  # seconds after which the case ends
# Seconds within which every partition flows after a step. A cluster of one broker is away for longer than a session lasts, so the
# streams may have lost their lease, and start again.
_PROMPT = 20.0
_NOTICED = 65.0  # seconds until a stream has seen the ids of topics that it has nothing for

# Kafka 4's brokers log each request with its version: the mirror must address topics by id then.
_LOG_REQUESTS = ("-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug",)
_FIRST_WITH_TOPIC_IDS = 13  # version of Fetch (Kafka 3.1), and of Produce (Kafka 4.1)
_FETCH, _PRODUCE = 1, 0
_REQUEST = re.compile(r'"requestApiKey":(\d+),"requestApiVersion":(\d+),.*?"clientId":"([^"]*)"')

# The beginnings and parts of lines that the mirror must not print: an upgrade is no loss and no new topic.
_UNWANTED = ("LOST ", " stops at source offset ", "created again", "again from", "Traceback")


def upgrade_the_source(directory: Path, result: Result) -> None:
    """Upgrade the source; the target is a current one."""
    with Cluster(_OLD, name="old-source", java=_LOG_REQUESTS) as source, Cluster(name="target") as target:
        _mirror_while_upgrading(directory, result, source, target, source)
        _check_version(result, source, _FETCH, _GROUP)


def upgrade_the_target(directory: Path, result: Result) -> None:
    """Upgrade the target; the source is a current one."""
    with Cluster(name="source") as source, Cluster(_OLD, name="old-target", java=_LOG_REQUESTS) as target:
        _mirror_while_upgrading(directory, result, source, target, target)
        _check_version(result, target, _PRODUCE, "mirrormaker")


def _mirror_while_upgrading(
    directory: Path, result: Result, source: Cluster, target: Cluster, upgraded: Cluster
) -> None:
    for cluster in (source, target):
        for topic in (_BUSY, _QUIET):
            cluster.create_topic(topic, PARTITIONS)
    options = ("--whitelist", f"{_BUSY}|{_QUIET}", "--num.streams", "2", "--progress.interval.ms", "1000")
    mirror = MirrorProcess(directory, source.bootstrap, target.bootstrap, *options, group=_GROUP)
    watch = OffsetWatch(source.bootstrap, target.bootstrap, _BUSY)
    busy, quiet = Load(source.bootstrap, _BUSY), Load(source.bootstrap, _QUIET)
    try:
        for thread in (busy, quiet, watch):
            thread.start()
        with mirror:
            _wait_until_flowing(mirror, watch)
            quiet.pause()
            _wait_for_last(mirror, source, target, _QUIET, quiet)
            for version in _NEW:
                for step in upgrade(upgraded, version):
                    result.rounds += 1
                    took = _wait_until_flowing(mirror, watch)
                    _note_longest(result, step, took)
                    if took > _PROMPT:
                        result.problems.append(f"{step}: partitions flowed only after {took:.1f} s")
            # A stream looks at the target's topics once a minute, also at those that it has nothing for.
            time.sleep(_NOTICED)
            quiet.resume()
            wanted = quiet.acknowledged + _QUIET_RECORDS
            wait_until("the quiet topic gets records again", lambda: quiet.acknowledged >= wanted, _FLOW)
            for topic, load in ((_BUSY, busy), (_QUIET, quiet)):
                load.stop()
                _wait_for_last(mirror, source, target, topic, load)
            result.longest_pause = watch.longest_pause(watch.samples[0].time)
            if code := mirror.stop():
                result.problems.append(f"the mirror was asked to stop and ended with exit code {code}")
            # A mirror that starts afterwards holds the ledger's topic ids against those of the clusters.
            mirror.options += ("--exit.when.caught.up",)
            if code := mirror.start().wait():
                result.problems.append(f"a mirror that was started afterwards ended with exit code {code}")
    finally:
        busy.stop_without_waiting()
        quiet.stop_without_waiting()
        watch.stop()
    _check(result, source, target, mirror)
    for load in (busy, quiet):
        result.problems += load.failures[:1]


def _wait_until_flowing(mirror: MirrorProcess, watch: OffsetWatch) -> float:
    """Wait until every busy partition has mirrored a record that is written after now. Return the seconds it took."""
    ends = list(watch.source)

    def flows() -> bool:
        _check_running(mirror)
        return all(target > source for target, source in zip(watch.target, ends, strict=True))

    return wait_until("every partition flows", flows, _FLOW, lambda: f"{watch.source} {watch.target}\n{mirror.text}")


def _wait_for_last(mirror: MirrorProcess, source: Cluster, target: Cluster, topic: str, load: Load) -> None:
    """Wait until every record of a load that has been paused or stopped is on both clusters."""
    with (
        contextlib.closing(EndOffsets(source, topic, PARTITIONS)) as on_source,
        contextlib.closing(EndOffsets(target, topic, PARTITIONS)) as on_target,
    ):

        def is_mirrored() -> bool:
            _check_running(mirror)
            return on_target.by_partition() == on_source.by_partition() and on_target.records() == load.acknowledged

        wait_until(f"every record of {topic} is mirrored", is_mirrored, _FLOW, lambda: mirror.text)


def _check_running(mirror: MirrorProcess) -> None:
    if mirror.has_ended:
        raise AssertionError(f"the mirror ended with exit code {mirror.wait()}: {mirror.text[-500:]}")


def _note_longest(result: Result, step: str, seconds: float) -> None:
    """Keep the note of the step after which partitions took longest."""
    before = [float(note.split(" s ")[0]) for note in result.notes]
    if not before or seconds > before[0]:
        result.notes = [f"{seconds:.1f} s at most until all partitions flowed after a step ({step})"]


def _check(result: Result, source: Cluster, target: Cluster, mirror: MirrorProcess) -> None:
    """Count the records, and look for topic ids in the ledger and for unwanted lines of the mirror."""
    counted = sum((count(source, target, topic) for topic in (_BUSY, _QUIET)), Count())
    result.set_count(counted)
    if not counted.is_exact:
        result.problems.append("records are lost, duplicated or out of order")
    positions = asyncio.run(_ledger(source))
    incomplete = [position.key for position in positions if not (position.topic_id and position.target_topic_id)]
    if len(positions) != 2 * PARTITIONS or incomplete:
        result.problems.append(f"{len(positions)} ledger entries, and without a topic id: {sorted(incomplete)}")
    result.problems += [line for line in mirror.text.splitlines() if any(text in line for text in _UNWANTED)]


async def _ledger(source: Cluster) -> list[Position]:
    client = wire_client(source.bootstrap, "faults")
    try:
        found, _ = await GroupCoordinator(client, _GROUP).committed(lambda: ())
        return [
            position
            for (topic, partition), (offset, metadata) in found.items()
            if (position := unpack(topic, partition, offset, metadata)) is not None
        ]
    finally:
        client.close()


def _check_version(result: Result, cluster: Cluster, request: int, client: str) -> None:
    """Check that the mirror addressed topics by id after the last step."""
    (broker,) = cluster.brokers
    found = [
        int(version)
        for key, version, name in _REQUEST.findall(broker.logged())
        if (int(key), name) == (request, client)
    ]
    if not found or found[-1] < _FIRST_WITH_TOPIC_IDS:
        result.problems.append(f"the last request of the mirror has version {found[-1:]}, without topic ids")


CASES = (
    SeparateCase(
        "upgraded-source", "the source is upgraded from 2.0.1 through 3.9.2 to 4.3.1, with the same data",
        upgrade_the_source,
    ),
    SeparateCase(
        "upgraded-target", "the target is upgraded from 2.0.1 through 3.9.2 to 4.3.1, with the same data",
        upgrade_the_target,
    ),
)  # fmt: skip
