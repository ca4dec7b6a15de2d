"""One trouble stays one trouble: a topic or a member of the group that cannot work does not keep the others from flowing."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient

from mirrormaker.driver.group_protocol import decode_assignment
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.ports import free_port
from mirrormaker.wire.client.cluster import Cluster as ClusterClient
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.client.groups import GroupCoordinator
from mirrormaker.wire.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.support.comparing import assert_same, wait_until_equal
from tests.support.mirror_process import MirrorProcess
from tests.support.numbered_records import write
from tests.support.reading import end_offsets


def overview(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status", timeout=5) as answer:
        return json.load(answer)


def test_a_topic_that_cannot_be_created_is_named_and_the_others_flow(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    # Kafka refuses a name that collides with another one in the names of metrics: dots and underscores are the same there.
    collides, good, later = f"{topic_name}.x_y", f"{topic_name}.good", f"{topic_name}.later"
    for name in (collides, good):
        source.create_topic(name, partitions=2)
        write(source, name, 100, 2)
    target.create_topic(f"{topic_name}.x.y", partitions=1)
    port = free_port()
    options = ("--whitelist", f"{topic_name}[.].*(x_y|good|later)", "--status.address", f"127.0.0.1:{port}")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, good, 2, mirror)
        assert f"{collides} is left out: topic {collides} cannot be created on {target.bootstrap}" in mirror.text
        assert f"kafka-topics --bootstrap-server {target.bootstrap} --create --topic {collides}" in mirror.text
        (found,) = overview(port)["sources"][0]["topics_left_out"]
        assert found["topic"] == collides
        # A topic that appears later flows, although the other one still cannot be created.
        source.create_topic(later, partitions=1)
        write(source, later, 50, 1)
        wait_until_equal(source, target, later, 1, mirror)
        assert mirror.text.count(f"{collides} is left out") == 1
        admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
        admin.delete_topics([f"{topic_name}.x.y"])
        admin.close()
        wait_until_equal(source, target, collides, 2, mirror)
        mirror.wait_for(f"{collides} can be mirrored now", 10)
        mirror.wait_until(lambda: overview(port)["sources"][0]["topics_left_out"] == [], 10)
        assert mirror.stop() == 0, mirror.text
    for name, records in ((collides, 100), (good, 100), (later, 50)):
        assert_same(source, target, name, records)


def test_a_topic_that_is_the_only_one_and_cannot_be_created_ends_the_process(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(f"{topic_name}.x_y", partitions=1)
    target.create_topic(f"{topic_name}.x.y", partitions=1)
    options = ("--whitelist", f"{topic_name}.x_y")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        assert mirror.wait(60) == 1
    assert "cannot be created" in mirror.text
    assert "Traceback" not in mirror.text


async def join_as_stranger(bootstrap: str, group: str, seconds: float) -> bytes:
    """Be a member of a group whose subscription nobody can read, for so long; return what the leader assigned to it."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    cluster = ClusterClient(Endpoint(((host, int(port)),)))
    await cluster.refresh()
    coordinator = GroupCoordinator(cluster, group)
    member, assignment, until = "", b"", time.monotonic() + seconds
    while time.monotonic() < until:
        # The name of its topic is no UTF-8. Brokers take that; Kafka 4 itself refuses bytes that are no subscription at all.
        metadata = b"\0\0" + b"\0\0\0\1" + b"\0\2\xff\xfe" + b"\xff\xff\xff\xff"
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
        join = JoinGroupRequest(
            group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member,
            group_instance_id=None, protocol_type="consumer", protocols=[protocol], reason="",
        )  # fmt: skip
        joined = await coordinator.ask(join, purpose="group", timeout=30)
        member = joined.member_id
        if joined.error_code:
            continue
        assert joined.leader != member, "the mirror leads the group"
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=member, group_instance_id=None,
            protocol_type="consumer", protocol_name="range", assignments=[],
        )  # fmt: skip
        synced = await coordinator.ask(sync, purpose="group", timeout=30)
        assignment = bytes(synced.assignment or b"")
        code = synced.error_code
        while not code and time.monotonic() < until:
            await asyncio.sleep(0.5)
            beat = HeartbeatRequest(
                group_id=group, generation_id=joined.generation_id, member_id=member, group_instance_id=None
            )
            code = (await coordinator.ask(beat)).error_code
    identity = LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=None)
    await coordinator.ask(LeaveGroupRequest(group_id=group, member_id=member, members=[identity]))
    cluster.close()
    return assignment


def test_a_strange_member_of_the_group_gets_nothing_and_the_mirror_goes_on(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=4)
    write(source, topic_name, 100, 4)
    options = ("--whitelist", topic_name)
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 4, mirror)
        assignment = asyncio.run(join_as_stranger(source.bootstrap, topic_name, 5))
        mirror.wait_for("gets no partitions, because its subscription cannot be read")
        assert decode_assignment(assignment)[0] == frozenset()
        write(source, topic_name, 100, 4, start=100)
        wait_until_equal(source, target, topic_name, 4, mirror)
        assert mirror.stop() == 0, mirror.text
    assert "Traceback" not in mirror.text
    assert_same(source, target, topic_name, 200)


def test_a_damaged_ledger_entry_stops_its_partition_alone(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=3)
    write(source, topic_name, 90, 3)
    admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
    damaged = {TopicPartition(topic_name, 1): OffsetAndMetadata(0, "mirrormaker/1:damaged", -1)}
    admin.alter_group_offsets(topic_name, damaged)
    admin.close()
    options = ("--whitelist", topic_name)
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_until(lambda: end_offsets(target, topic_name, 3) == [30, 0, 30], 60)
        mirror.wait_for(f"the committed offset of {topic_name}-1 has damaged metadata")
        assert mirror.stop() == 1, mirror.text
    assert "Traceback" not in mirror.text
