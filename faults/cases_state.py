"""Lost or changed state: the group's offsets expire, a stranger joins the group, the target's log is truncated."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import Any

from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.support.counting import read_log
from tests.support.topic_flow import count_topic
from tests.support.waiting import wait_until
from tests.support.wire_clients import wire_client

from faults.ascending import problems_after_truncation
from faults.case import Result, SeparateCase
from faults.several_topics import GROUP, SeveralTopics, admin, create_at, find_partition
from mirrormaker.driver.group_protocol import decode_assignment
from mirrormaker.embedded import Broker, Cluster, metadata
from mirrormaker.kafka_errors import REBALANCE_IN_PROGRESS
from mirrormaker.wire.client.groups import GroupCoordinator

_QUIET = {"auto.create.topics.enable": "false"}
_STRAY = 15.0  # seconds for which the stray member stays
_LIMIT = 60.0  # seconds for brokers to change roles
_VICTIM = "victim"
_LOST = re.compile(rf"\b{_VICTIM}-0\b.*\bLOST (at most )?(\d+) records? that the target had acknowledged")
_NO_PARTITIONS = "gets no partitions, because its subscription cannot be read"
_NO_UTF8 = b"\0\0" + b"\0\0\0\1" + b"\0\2\xff\xfe" + b"\xff\xff\xff\xff"  # the name of its topic
# By the source's version: Kafka 4 refuses bytes that are no subscription at all. A broker of 3.9 takes them, but never again
# answers a JoinGroup of the group if they promise more topics than there are bytes.
_UNREADABLE = {"4.3.1": (_NO_UTF8,), "3.9.2": (b"", b"\xff\xff\xff")}


def expired_offsets(directory: Path, result: Result) -> None:
    """Delete the group's offsets while the mirror is stopped: the target's log still says how far it had come."""
    with (
        Cluster(name="expired-source", settings=_QUIET) as source,
        Cluster(name="expired-target", settings=_QUIET) as target,
        SeveralTopics(result, directory, source, target) as several,
    ):
        several.start()
        time.sleep(3)
        if code := several.mirror.stop():
            result.problems.append(f"exit code {code}")
        with admin(source) as client:
            client.delete_groups([GROUP])
        several.start()
        result.rounds = 1
        several.finish()


def stray_member(directory: Path, result: Result) -> None:
    """Let a stranger join the group whose subscription cannot be read, while the mirror leads the group."""
    for version, subscriptions in _UNREADABLE.items():
        where = directory / version
        where.mkdir()
        with (
            Cluster(version, name="stray-source", settings=_QUIET) as source,
            Cluster(name="stray-target", settings=_QUIET) as target,
            SeveralTopics(result, where, source, target) as several,
        ):
            several.start()
            for data in subscriptions:
                with several.trouble(f"{version}: a member with the subscription {data[:16]!r}"):
                    printed = len(several.mirror.text)
                    stray = _Stray(source.bootstrap, data)
                    stray.start()
                    time.sleep(_STRAY)
                    stray.leave()
                    stray.check()
                    several.wait_for_line(_NO_PARTITIONS, printed, 1)
                    several.wait_until_flowing(several.calm, _LIMIT)
            several.finish()


class _Stray(threading.Thread):
    """A member of the mirror's group with bytes of our choice as its subscription."""

    def __init__(self, bootstrap: str, subscription: bytes) -> None:
        super().__init__(daemon=True)
        self._address, self._subscription = bootstrap, subscription
        self._leaving = threading.Event()
        self._member, self._leader = "", ""
        self._assignments: list[bytes] = []
        self._error: object = "no answer"  # the last one

    def run(self) -> None:
        """Join, and answer every rebalance until `leave`."""
        try:
            asyncio.run(self._stay())
        except Exception as error:
            self._error = repr(error)

    def leave(self) -> None:
        """Leave the group."""
        self._leaving.set()
        self.join()

    def check(self) -> None:
        """Raise an error unless the stray was a member whom another one led, and got no partitions."""
        assert self._member and self._assignments, f"the stray did not become a member: {self._error}"
        assert self._leader != self._member, "the stray led the group, so the mirror did not read its subscription"
        partitions = decode_assignment(self._assignments[-1])[0]
        assert not partitions, f"the stray got partitions: {sorted(partitions)}"

    async def _stay(self) -> None:
        client = wire_client(self._address, "stray")
        coordinator = GroupCoordinator(client, GROUP)
        await client.refresh()
        try:
            while not self._leaving.is_set():
                joined = await coordinator.ask(self._join(self._member), newest=5, timeout=60)
                if joined.member_id:
                    self._member = joined.member_id
                if joined.error_code:
                    self._error = joined.error_code
                    await asyncio.sleep(0.2)
                    continue
                self._leader = joined.leader
                sync = SyncGroupRequest(
                    group_id=GROUP, generation_id=joined.generation_id, member_id=self._member, group_instance_id=None,
                    assignments=[],
                )  # fmt: skip
                synced = await coordinator.ask(sync, newest=3, timeout=60)
                if synced.error_code:
                    self._error = synced.error_code
                    continue
                self._assignments.append(bytes(synced.assignment or b""))
                await self._beat(coordinator, self._member, joined.generation_id)
            leave = LeaveGroupRequest(group_id=GROUP, member_id=self._member)
            await coordinator.ask(leave, newest=2)
        finally:
            client.close()

    async def _beat(self, coordinator: GroupCoordinator, member: str, generation: int) -> None:
        """Send heartbeats until the group rebalances."""
        while not self._leaving.is_set():
            beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member, group_instance_id=None)
            answer = await coordinator.ask(beat, newest=3)
            if answer.error_code == REBALANCE_IN_PROGRESS:
                return
            await asyncio.sleep(0.3)

    def _join(self, member: str) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=self._subscription)
        return JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=30_000, member_id=member,
            group_instance_id=None, protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip


def truncated_target(directory: Path, result: Result) -> None:
    """Truncate one topic's log on the target, with acks=1: records that were acknowledged are gone."""
    with (
        Cluster(name="cut-source", settings=_QUIET) as source,
        Cluster(brokers=3, name="cut-target", settings=_QUIET, heap="256m") as target,
        SeveralTopics(result, directory, source, target, ("calm-0", "calm-1"), producer="acks=1\n") as several,
    ):
        first, second, third = target.brokers
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        create_at(target, _VICTIM, [first.id, second.id], config)
        for topic in several.calm:
            create_at(target, topic, [third.id])
        several.add([_VICTIM])
        several.start([*several.calm, _VICTIM])
        with several.trouble("the target's log is truncated"):
            second.kill()
            _wait_for_in_sync(target, third, [first.id])
            several.wait_until_flowing([_VICTIM], _LIMIT)
            first.kill()
            second.start()
            wait_until("the old replica leads", lambda: _state(third).leader == second.id, _LIMIT)
            took = several.wait_until_flowing([_VICTIM], _LIMIT)
            result.notes.append(f"the topic flowed {took:.1f} s after the old replica led")
        first.start()
        wait_until("both replicas are in sync", lambda: len(_state(third).in_sync) == 2, _LIMIT)
        several.load.pause()
        several.watch.settle()
        several.finish()
        found = count_topic(source, target, _VICTIM)
        result.records += found.records
        logs = [read_log(cluster, _VICTIM, 0)["number"].tolist() for cluster in (source, target)]
        result.problems += [f"{_VICTIM}: {problem}" for problem in problems_after_truncation(*logs)]
        result.notes.append(f"{found.lost} of {found.records} records are not on the target, {found.duplicated} twice")
        _check_reported(result, several.mirror.text, found.lost)


def _check_reported(result: Result, text: str, lost: int) -> None:
    """Check that the mirror has reported the loss of so many records of the victim, or of more if it says "at most"."""
    said = [(bool(at_most), int(count)) for at_most, count in _LOST.findall(text)]
    if not lost:
        result.problems.append("nothing is lost, so the case shows nothing")
    elif not any(count == lost or (at_most and count > lost) for at_most, count in said):
        numbers = ", ".join(f"{'at most ' * at_most}{count}" for at_most, count in said) or "nothing"
        result.problems.append(f"{lost} records are lost; the mirror reports {numbers} as LOST")


def _state(broker: Broker) -> metadata.Partition:
    found = find_partition(broker, _VICTIM)
    assert found is not None, "the broker does not know the topic"
    return found


def _wait_for_in_sync(cluster: Cluster, broker: Broker, replicas: list[int]) -> None:
    wait_until("only the leader is in sync", lambda: list(_state(broker).in_sync) == replicas, _LIMIT)


CASES = (
    SeparateCase("expired-offsets", "the group's offsets expire while the mirror is stopped", expired_offsets),
    SeparateCase("stray-member", "a member joins the group whose subscription cannot be read", stray_member, limit=2),
    SeparateCase(
        "truncated-target", "an unclean leader election truncates one topic of the target (acks=1)", truncated_target, limit=2
    ),
)  # fmt: skip
