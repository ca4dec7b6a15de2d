"""Consumer groups of real clusters: records, members, and offsets that somebody commits, reads or deletes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.kafka_tools import KafkaTools
from mirrormaker.wire.client import group_offsets
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.protocol.group_messages import CommitRow
from tests.support.wire_clients import wire_client


def send(cluster: Cluster, topic: str, first: int, count: int, partitions: int = 2) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=5)
    for number in range(first, first + count):
        producer.send(topic, b"%d" % number, b"k%d" % number, partition=number % partitions)
    producer.flush()
    producer.close()


def consume(cluster: Cluster, topic: str, group: str, most: int) -> list[int]:
    """Read as a member of a group, commit what was read, and leave; end early if nothing comes for 4 s."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=50,
        session_timeout_ms=9000,
        consumer_timeout_ms=4000,
    )
    found: list[int] = []
    for record in consumer:
        found.append(int(record.value))
        if len(found) == most:
            break
    consumer.commit({part: OffsetAndMetadata(consumer.position(part), "mine", -1) for part in consumer.assignment()})
    consumer.close()
    return found


async def _with_client(cluster: Cluster, work: Callable[[Client], object]) -> object:
    client = wire_client(cluster.bootstrap)
    try:
        await client.refresh()
        return await work(client)  # type: ignore[misc]
    finally:
        client.close()
        await asyncio.sleep(0)


Change = Callable[[Client, dict[str, list[CommitRow]], dict[str, int]], Awaitable[dict[str, Any]]]


def _change(cluster: Cluster, how: Change, group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Change a group's offsets; the first group of a cluster waits until the offsets topic is there and loaded."""
    rows = [CommitRow(topic, partition, offset, metadata) for partition, offset in offsets.items()]
    expected = dict.fromkeys(((topic, partition) for partition in offsets), 0)

    async def work(client: Client) -> None:
        found: Any = None
        deadline = time.monotonic() + 30
        while found != {group: expected} and time.monotonic() < deadline:
            nodes = await group_offsets.find_coordinators(client, [group])
            found = await how(client, {group: rows}, nodes) if nodes else None
            if found != {group: expected}:
                await asyncio.sleep(0.2)
        assert found == {group: expected}

    asyncio.run(_with_client(cluster, work))


def commit(cluster: Cluster, group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commit offsets without being a member of the group."""
    _change(cluster, group_offsets.commit_offsets, group, topic, offsets, metadata)


def committed(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    """Return the group's offsets in a topic."""
    return _offsets(cluster, partial(group_offsets.fetch_offsets, stable=True), group, topic)


def share_offsets(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    """Return the start offsets of a share group in a topic."""
    return _offsets(cluster, group_offsets.fetch_share_offsets, group, topic)


Fetch = Callable[[Client, dict[str, int]], Awaitable[dict[str, Any]]]


def _offsets(cluster: Cluster, fetch: Fetch, group: str, topic: str) -> dict[int, int]:
    found: dict[int, int] = {}

    async def work(client: Client) -> None:
        groups = await group_offsets.list_groups(client)
        if group in groups:
            answer = await fetch(client, {group: groups[group].node})
            offsets = answer[group]
            assert not isinstance(offsets, Exception), offsets
            if topic in offsets.topics:
                found.update((p, row.offset) for p, row in offsets.topics[topic].rows().items())

    asyncio.run(_with_client(cluster, work))
    return found


def delete_offsets(cluster: Cluster, group: str, topic: str) -> None:
    """Delete a group's offsets in a topic with Kafka's own tool, as the advice says."""
    done = KafkaTools(cluster.version).run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", cluster.bootstrap, "--delete-offsets", "--group", group, "--topic", topic),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def types(cluster: Cluster, *groups: str) -> dict[str, str]:
    """Return the types of groups, in small letters; a group that does not exist is left out."""
    return {name: group.type.lower() for name, group in _listed(cluster, groups).items()}


def protocols(cluster: Cluster, *groups: str) -> dict[str, str]:
    """Return the protocol types of groups; that of a group that never had members is empty."""
    return {name: group.protocol for name, group in _listed(cluster, groups).items()}


def _listed(cluster: Cluster, groups: Collection[str]) -> dict[str, group_offsets.ListedGroup]:
    found: dict[str, group_offsets.ListedGroup] = {}

    async def work(client: Client) -> None:
        found.update({name: row for name, row in (await group_offsets.list_groups(client)).items() if name in groups})

    asyncio.run(_with_client(cluster, work))
    return found


def set_share_offsets(cluster: Cluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Set the start offsets of a share group, which is created if it does not exist."""
    _change(cluster, group_offsets.alter_share_offsets, group, topic, offsets)
