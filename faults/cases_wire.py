"""Bad connections: a thin line, and brokers that answer garbage."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import closing
from pathlib import Path

from tests.support.counting import Count
from tests.support.raw_requests import RawConnection, produce_many, produce_request, record_batch
from tests.support.rewriting_proxy import RewritingProxy, random_damage
from tests.support.topics import EndOffsets, create_topic
from tests.support.waiting import NotInTime, wait_until
from tests.support.wire_clients import wire_client

from faults.case import Result, SeparateCase
from faults.network import compare_logs
from faults.proxy import Proxy
from faults.several_topics import GROUP, LIMIT, SeveralTopics, create_at
from mirrormaker.embedded import Cluster
from mirrormaker.mapping.map_topic import TOPIC as MAP
from mirrormaker.wire.client.group_offsets import find_coordinators

_QUIET = {"auto.create.topics.enable": "false"}
_THIN = 2_500_000  # bytes per second in each direction: 20 Mbit/s
_PARTITIONS = 64
_BACKLOG = 60 << 20  # bytes: 25 s at that rate
_WIDE = "wide"
_RECORD = 1000  # bytes
_COMPARED = 900  # bytes of each record
_PER_BATCH = 256
_STALLED = 40.0  # seconds without any progress after which the line counts as stuck
_GARBAGE = 60.0  # seconds on each side
_VICTIMS = ("victim-0", "victim-1", "victim-2")
_DAMAGED = 0.2  # share of all answers: 0.05 were 59 in a quiet minute
_ALL_GARBAGE = 15.0  # seconds on each side in which every answer of a broker is damaged
# Answers that must have been damaged in each of these times: less would say that the case caused no trouble.
_FEWEST = 100
_FEWEST_OF_ALL = 20  # a broker that never answers properly is asked less and less often
_RECOVERED = 60.0  # seconds until everything flows again, or is complete


def thin_line(directory: Path, result: Result) -> None:
    """Copy a backlog of 64 partitions over 20 Mbit/s: it must make progress, and another topic must flow meanwhile."""
    with (
        Cluster(name="thin-source", settings=_QUIET, proxied=True) as source,
        Cluster(name="thin-target", settings=_QUIET, proxied=True) as target,
        Proxy(source.proxy_routes) as source_proxy,
        Proxy(target.proxy_routes) as target_proxy,
        SeveralTopics(
            result, directory, source, target, ("calm-0",), addresses=(source_proxy.bootstrap, target_proxy.bootstrap)
        ) as several,
    ):
        for cluster in (source, target):
            create_topic(cluster, _WIDE, _PARTITIONS)
        _fill(source)
        for proxy in (source_proxy, target_proxy):
            proxy.send(f"throttle {_THIN}")
        began = time.monotonic()
        several.start()
        flowing = time.monotonic()
        with (
            closing(EndOffsets(source, _WIDE, _PARTITIONS)) as written,
            closing(EndOffsets(target, _WIDE, _PARTITIONS)) as ends,
        ):
            wanted = written.records()
            arrived, since = 0, time.monotonic()
            while arrived < wanted:
                time.sleep(0.5)
                if (now := ends.records()) > arrived:
                    arrived, since = now, time.monotonic()
                elif time.monotonic() - since > _STALLED:
                    result.problems.append(f"no progress for {_STALLED:g} s after {arrived} of {wanted} records")
                    break
            took = time.monotonic() - began
            result.rounds = 1
            pause = result.longest_pause = several.watch.longest_pause("calm-0", flowing)
            result.notes.append(f"{arrived * _RECORD / 1e6 / took:.1f} MB/s of {_THIN / 1e6:g}; {took:.0f} s")
            if pause > LIMIT:
                result.problems.append(f"another topic stood still for {pause:.1f} s; {LIMIT:g} s are allowed")
            for proxy in (source_proxy, target_proxy):
                proxy.send("throttle 0")
            try:
                wait_until(
                    "every partition is complete", lambda: ends.by_partition() == written.by_partition(), _RECOVERED
                )
            except NotInTime as error:
                result.problems.append(str(error))
        several.finish()
        counts = (compare_logs(source, target, _WIDE, partition, _COMPARED) for partition in range(_PARTITIONS))
        result.add(sum(counts, Count()), _WIDE)


def _fill(cluster: Cluster) -> None:
    """Write the backlog, the same number of records to each partition. No two records are the same."""
    generator = random.Random(4)
    per_partition = -(-_BACKLOG // (_RECORD * _PER_BATCH * _PARTITIONS))
    requests = [
        produce_request(_WIDE, {partition: _batch(generator) for partition in range(start, start + 8)})
        for _ in range(per_partition)
        for start in range(0, _PARTITIONS, 8)
    ]
    connection = RawConnection(cluster.brokers[0].port)
    for _ in produce_many([connection], requests, len(requests), 2):
        pass
    connection.close()


def _batch(generator: random.Random) -> bytes:
    return record_batch([generator.randbytes(_RECORD - 12) for _ in range(_PER_BATCH)])


def garbage(directory: Path, result: Result) -> None:
    """Damage some answers of one broker of two, and then all of them, on one side after the other.

    They are garbage, lose their end, have one wrong bit, or break off with the connection.
    The topics on the other broker must not notice, and not a record of any topic may be lost or doubled.
    """
    generator = random.Random(7)
    settings = {**_QUIET, "offsets.topic.replication.factor": "1"}
    with (
        Cluster(brokers=2, name="garbage-source", settings=settings, proxied=True) as source,
        Cluster(brokers=2, name="garbage-target", settings=settings, proxied=True) as target,
        RewritingProxy(source.proxy_routes) as source_proxy,
        RewritingProxy(target.proxy_routes) as target_proxy,
        SeveralTopics(
            result, directory, source, target, ("calm-0", "calm-1"), addresses=(source_proxy.bootstrap, target_proxy.bootstrap),
            create=False,
        ) as several,
    ):  # fmt: skip
        for cluster, proxy in ((source, source_proxy), (target, target_proxy)):
            # The mirror's group, which all topics need, and the offset map are at the good broker.
            good = _coordinator(source) if cluster is source else 1
            bad = 1 - good
            proxy.damaged = [list(proxy.routes.values())[bad]]
            for topic in several.calm:
                create_at(cluster, topic, [cluster.brokers[good].id])
            for topic in _VICTIMS:
                create_at(cluster, topic, [cluster.brokers[bad].id])
            if cluster is target:
                create_at(cluster, MAP, [cluster.brokers[good].id], {"cleanup.policy": "compact"})
        several.add([*several.calm, *_VICTIMS], create=False)
        several.start([*several.calm, *_VICTIMS])
        for side, proxy in (("source", source_proxy), ("target", target_proxy)):
            with several.trouble(f"the {side} answers garbage"):
                proxy.damage = random_damage(generator, _DAMAGED)
                _wait_for_damage(several, proxy, side, _GARBAGE, _FEWEST)
            with several.trouble(f"a broker of the {side} answers nothing but garbage"):
                proxy.damage = random_damage(generator, 1.0)
                _wait_for_damage(several, proxy, side, _ALL_GARBAGE, _FEWEST_OF_ALL)
        several.finish(*_VICTIMS)


def _coordinator(cluster: Cluster) -> int:
    """Return the number of the broker that coordinates the mirror's group, which need not exist."""
    found: list[int] = []

    async def ask() -> None:
        client = wire_client(cluster.bootstrap)
        try:
            await client.refresh()
            found.extend((await find_coordinators(client, [GROUP])).values())
        finally:
            client.close()
            await asyncio.sleep(0)

    def is_found() -> bool:
        asyncio.run(ask())
        return bool(found)

    wait_until("the coordinator of the group is found", is_found, _RECOVERED)
    return [broker.id for broker in cluster.brokers].index(found[0])


def _wait_for_damage(several: SeveralTopics, proxy: RewritingProxy, side: str, seconds: float, fewest: int) -> None:
    """Let a proxy damage answers for so many seconds; at least `fewest` must have been damaged, and everything must flow again."""
    before = proxy.answers_damaged
    time.sleep(seconds)
    proxy.damage = None
    count = proxy.answers_damaged - before
    took = several.wait_until_flowing([*several.calm, *_VICTIMS], _RECOVERED)
    several.result.notes.append(
        f"{count} answers of the {side} were damaged in {seconds:g} s; all topics flowed {took:.1f} s after that"
    )
    assert count >= fewest, f"only {count} answers were damaged"


CASES = (
    SeparateCase("thin-line", "64 partitions are copied over a line of 20 Mbit/s", thin_line, limit=2),
    SeparateCase(
        "garbage",
        "a broker of each side answers garbage, cut-off and wrong bytes for a minute, and then nothing else",
        garbage,
        limit=2,
    ),
)
