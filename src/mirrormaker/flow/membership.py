"""Being one member of the source's consumer group, the way every Kafka client is: join, sync, heartbeat, commit, leave.

Compatible with a Java MirrorMaker in the same group: the protocol is `consumer`, the assignor `range` (see `sharing`). With an
instance id (Kafka 2.3 on) a process that was killed and started again takes its old place at once instead of after a session
timeout.

The seat is also the root of every lease: a process that the coordinator may have given up, because it was frozen or cut off for
longer than a session, answers no stream's report until it has been heard again. So what it held is silent before others touch it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from kafka.errors import KafkaError
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from mirrormaker.errors import ClusterError, FencedError
from mirrormaker.flow.sharing import AGAIN, Member, card, read_card, share
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.cluster import Cluster, error_for

Key = tuple[str, int]

_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR = 14, 15, 16
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCE, _MEMBER_ID_REQUIRED, _FENCED = 22, 25, 27, 79, 82
_ANOTHER_COORDINATOR = {_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR}
_REBALANCE_TIMEOUT_MS = 30_000  # how long the group waits for a member; ours answers within a heartbeat
_PAUSE = 0.2  # seconds before asking a coordinator again
_TICK = 0.5  # seconds between signs of life while the group waits for others


class NotMember(Exception):
    """The group has moved on without us: join again."""


class Membership:
    """This process's seat in the group."""

    def __init__(
        self, cluster: Cluster, settings: SourceSettings, instance_id: str | None, streams: int,
        held: Callable[[], Collection[Key]],
    ) -> None:  # fmt: skip
        """`held` tells which partitions this process has at the moment."""
        self.cluster, self.settings = cluster, settings
        self.instance_id, self.streams, self._held = instance_id, streams, held
        self.group = settings.group_id
        self.member_id = ""
        self.generation = -1
        self.topics: frozenset[str] = frozenset()
        self.is_leader = False
        self.assigned: frozenset[Key] = frozenset()
        self.joined = False
        self.moves_in_two_rounds = False  # whoever loses a partition joins again once it has let go
        self._heard = -1e9  # when the last request was sent that the coordinator answered as to a member
        self._coordinator: int | None = None
        self._rejoin = asyncio.Event()

    # -- the seat

    @property
    def is_sure(self) -> bool:
        """Can the coordinator not have given our partitions to others yet?"""
        return time.monotonic() - self._heard < self.settings.session_timeout_ms / 1000

    async def keep(self, parting: Callable[[], Awaitable[None]], assigned: Callable[[bool], None]) -> None:
        """Stay in the group for as long as this runs. `parting` runs before each join, `assigned` right after it.

        `assigned` is told whether we have been in the group all the time: if not, others may have had what we hold.
        """
        while True:
            try:
                if not self.joined:
                    await parting()
                    self._rejoin.clear()
                    before = self.member_id, self.generation
                    await self._join()
                    assigned(before in ((self.member_id, self.generation - n) for n in (0, 1)))
                await self._wait_a_heartbeat()
                if self._rejoin.is_set():
                    self.joined = False
                    continue
                await self._heartbeat()
            except NotMember:
                self.joined = False
            except (KafkaError, OSError, asyncio.TimeoutError):
                self._coordinator = None
                await asyncio.sleep(_PAUSE)

    def subscribe(self, topics: Iterable[str]) -> None:
        """What we ask the group for; a change means joining again."""
        wanted = frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self._rejoin.set()

    def rebalance(self) -> None:
        """Have the group share its partitions anew: their number has changed."""
        self._rejoin.set()

    async def _wait_a_heartbeat(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._rejoin.wait(), self.settings.heartbeat_interval_ms / 1000)

    async def _while_others_join(self, request: ApiMessage) -> Any:
        """Send it and wait: meanwhile the coordinator keeps our seat, unless we are not awake to take it."""
        answer = asyncio.ensure_future(self._ask(request, lane="group", timeout=_REBALANCE_TIMEOUT_MS / 1000 + 10))
        try:
            last = time.monotonic()
            while not (await asyncio.wait([answer], timeout=_TICK))[0]:
                if self.is_sure and time.monotonic() - last < 4 * _TICK:
                    self._heard = last
                last = time.monotonic()
            return answer.result()
        finally:
            answer.cancel()

    async def _join(self) -> None:
        held = _by_topic(self._held())
        entry = ConsumerProtocolSubscription.TopicPartition
        subscription = ConsumerProtocolSubscription(
            version=1,
            topics=sorted(self.topics),
            user_data=card(self.streams, self.generation if held else -1),
            owned_partitions=[entry(topic=t, partitions=ps) for t, ps in sorted(held.items())],
        ).encode()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
            reason="",
        )
        answer = await self._while_others_join(request)
        if answer.error_code == _MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            raise NotMember
        self._check(answer.error_code, "join")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        assignments = []
        if self.is_leader and not answer.skip_assignment:
            shares = await self._share(answer)
            entry = SyncGroupRequest.SyncGroupRequestAssignment
            assignments = [entry(member_id=member, assignment=share) for member, share in shares.items()]
        asked = time.monotonic()
        sync = await self._while_others_join(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
        )
        self._check(sync.error_code, "sync")
        self._heard = max(asked, self._heard)
        share = ConsumerProtocolAssignment.decode(bytes(sync.assignment)) if sync.assignment else None
        self.assigned = frozenset(
            (t.topic, p) for t in (share.assigned_partitions if share else ()) for p in t.partitions
        )
        self.moves_in_two_rounds = share is not None and share.user_data == AGAIN
        self.joined = True

    async def _share(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """As the group's leader: who gets what, for all members."""
        members = {m.member_id: _member(bytes(m.metadata)) for m in answer.members}
        topics = {topic for member in members.values() for topic in member.topics}
        if topics - set(self.cluster.topics):
            await self.cluster.refresh()
        counts = {t: len(self.cluster.topics[t].partitions) for t in topics if t in self.cluster.topics}
        kind = ConsumerProtocolAssignment
        return {
            member: kind(
                version=1,
                assigned_partitions=[
                    kind.TopicPartition(topic=t, partitions=ps) for t, ps in sorted(_by_topic(keys).items())
                ],
                user_data=AGAIN,
            ).encode()
            for member, keys in share(members, counts).items()
        }

    async def _heartbeat(self) -> None:
        asked = time.monotonic()
        answer = await self._ask(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
        )
        if answer.error_code in (0, _REBALANCE):
            self._heard = asked
        self._check(answer.error_code, "heartbeat")

    async def leave(self) -> None:
        """Give the seat back, so that the others need not wait for it."""
        if not self.member_id:
            return
        who = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        await self._ask(LeaveGroupRequest(group_id=self.group, member_id=self.member_id, members=[who]), timeout=3)
        self.member_id, self.joined = "", False

    # -- offsets

    async def commit(self, rows: dict[str, list[tuple[int, int, int, str]]]) -> None:
        """Commit as a member: (partition, offset, leader epoch, metadata) per topic."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        row(partition_index=p, committed_offset=o, committed_leader_epoch=e, committed_metadata=m)
                        for p, o, e, m in partitions
                    ],
                )
                for name, partitions in rows.items()
            ],
        )
        answer = await self._ask(request, newest=8)
        for topic_answer in answer.topics:
            for p in topic_answer.partitions:
                if p.error_code == 3:
                    continue  # the topic was deleted meanwhile: there is nothing to remember
                self._check(p.error_code, f"commit of {topic_answer.name}-{p.partition_index}")

    async def committed(self) -> dict[Key, tuple[int, str]]:
        """All that the group has committed: offset and metadata of each partition."""
        while True:
            answer = await self._ask(
                OffsetFetchRequest(group_id=self.group, topics=None, require_stable=True), newest=7
            )
            codes = {answer.error_code or 0} | {p.error_code for t in answer.topics for p in t.partitions}
            if codes & _ANOTHER_COORDINATOR or 88 in codes:  # 88: a transaction on the offsets is about to end
                await asyncio.sleep(_PAUSE)
                continue
            self._check(max(codes), "reading committed offsets")
            return {
                (t.name, p.partition_index): (p.committed_offset, p.metadata or "")
                for t in answer.topics
                for p in t.partitions
                if p.committed_offset >= 0
            }

    # -- the coordinator

    async def _ask(
        self,
        request: ApiMessage,
        *,
        lane: str = "control",
        timeout: float | None = None,
        newest: int | None = None,
    ) -> Any:
        if self._coordinator is None:
            await self._find_coordinator()
        try:
            answer = await self.cluster.ask(request, self._coordinator, lane=lane, timeout=timeout, newest=newest)
        except OSError:
            self._coordinator = None
            raise
        return answer

    async def _find_coordinator(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            answer = await self.cluster.ask(FindCoordinatorRequest(key=self.group, key_type=0), newest=3)
            if answer.error_code == 0:
                self.cluster.brokers.setdefault(answer.node_id, (answer.host, answer.port))
                self._coordinator = answer.node_id
                return
            if answer.error_code not in _ANOTHER_COORDINATOR or time.monotonic() > deadline:
                raise error_for(answer.error_code, f"looking for the coordinator of group {self.group}")
            await asyncio.sleep(_PAUSE)

    def _check(self, code: int, what: str) -> None:
        if code == 0:
            return
        if code in _ANOTHER_COORDINATOR:
            self._coordinator = None
            raise error_for(code, what)
        if code in (_ILLEGAL_GENERATION, _UNKNOWN_MEMBER):
            self.member_id = "" if code == _UNKNOWN_MEMBER else self.member_id
            self._heard = -1e9
            self._rejoin.set()
            raise NotMember
        if code == _REBALANCE:
            self._rejoin.set()
            raise NotMember
        if code == _FENCED:
            raise FencedError(
                f"another process has joined group {self.group} as group.instance.id={self.instance_id}:"
                " give each process its own, or leave it out"
            )
        error = error_for(code, what)
        if getattr(error, "retriable", False):
            raise error
        raise ClusterError(f"group {self.group} on {self.cluster.endpoint}: {what}: {type(error).__name__} ({code})")


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(keys):
        found[topic].append(partition)
    return found


def _member(metadata: bytes) -> Member:
    subscription = ConsumerProtocolSubscription.decode(metadata)
    streams, generation = read_card(bytes(subscription.user_data or b""))
    held = frozenset((t.topic, p) for t in subscription.owned_partitions or () for p in t.partitions)
    return Member(frozenset(subscription.topics), streams, held, generation)
