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
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, FencedError, NotMember
from mirrormaker.kafka_errors import (
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mirrormaker.model.assignor import AGAIN, Member, card, read_card, share
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.groups import MOVING, GroupCoordinator, by_topic
from mirrormaker.wire.protocol.messages import (
    ApiMessage,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from mirrormaker.worker.stream_task import now

Key = tuple[str, int]

_REBALANCE_TIMEOUT_MS = 30_000  # how long the group waits for a member; ours answers within a heartbeat
_PAUSE = 0.2  # seconds before asking a coordinator again
# Before Kafka 2.1 a committed offset is forgotten a day after it was written, unless whoever writes it asks for more.
_REMEMBERED_MS = 365 * 86_400_000


@dataclass(frozen=True)
class Seat:
    """What a generation of the group has given us; it counts from the answer that gave it, and is replaced as a whole."""

    member_id: str = ""
    generation: int = -1
    assigned: frozenset[Key] = field(default_factory=frozenset)
    claimed: frozenset[Key] = field(default_factory=frozenset)  # what we said that we have when we joined
    # A leader of ours: what was claimed and not assigned belongs to nobody until we have let go of it and joined again.
    two_rounds: bool = False
    leader: str = ""

    @property
    def has_to_go(self) -> frozenset[Key]:
        return self.claimed - self.assigned if self.two_rounds else frozenset()


class Membership:
    """How this process gets its seat in the group, and keeps it."""

    def __init__(
        self, cluster: Cluster, settings: SourceSettings, instance_id: str | None, streams: int,
        held: Callable[[], Collection[Key]],
    ) -> None:  # fmt: skip
        """`held` tells which partitions this process has at the moment."""
        self.cluster, self.settings = cluster, settings
        self.instance_id, self.streams, self._held = instance_id, streams, held
        self.group = settings.group_id
        self.topics: frozenset[str] = frozenset()
        self.seat = Seat()
        self.joined = False
        self.has_streams = False  # until then nothing is moved to us from others who have some
        self._is_late = False
        self._member_id = ""
        # Member, generation and leader in the last answer to a join, whether it led to a seat or not.
        self._last_join = ("", -1, "")
        self._broken = False  # since the last seat a generation went by in which others may have had what was ours
        self._heard = -1e9  # when the last request was sent that the coordinator answered as to a member
        self._coordinator = GroupCoordinator(cluster, settings.group_id)
        self._rejoin = asyncio.Event()

    # -- the seat

    @property
    def is_sure(self) -> bool:
        """Can the coordinator not have given our partitions to others yet?"""
        return now() - self._heard < self.settings.session_timeout_ms / 1000

    @property
    def is_settled(self) -> bool:
        """Is nothing of the group's sharing about to change, as far as we know?"""
        return self.joined and self.has_streams and not self._rejoin.is_set() and not self.seat.has_to_go

    async def keep(self, parting: Callable[[], Awaitable[None]], assigned: Callable[[bool], None]) -> None:
        """Stay in the group for as long as this runs. `parting` runs before each join, `assigned` right after it.

        `assigned` is told whether we have been in the group all the time: if not, others may have had what we hold.
        """
        while True:
            try:
                if not self.joined:
                    await parting()
                    self._rejoin.clear()
                    assigned(await self._join())
                await self._wait_a_heartbeat()
                if self._rejoin.is_set():
                    self.joined = False
                    continue
                await self._heartbeat()
            except NotMember:
                self.joined = False
            except OUTAGE:
                self._coordinator.forget()
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

    @property
    def _weight(self) -> int:
        return self.streams if self.has_streams else -1 if self._is_late else 0

    def be_late(self) -> None:
        """No stream has come for long: what we hold is better with others, if there are any."""
        if not self.has_streams:
            self._is_late = True
            self._rejoin.set()

    def arrive(self) -> None:
        """The first streams are there: now we can take our share of what others have."""
        if not self.has_streams:
            self.has_streams = True
            self._rejoin.set()

    async def _while_others_join(self, request: ApiMessage, member: str, generation: int) -> Any:
        """Send it and wait; heartbeats go on meanwhile, and tell whether the seat is still ours."""
        answer = asyncio.ensure_future(self._ask(request, lane="group", timeout=_REBALANCE_TIMEOUT_MS / 1000 + 10))
        try:
            while not (await asyncio.wait([answer], timeout=self.settings.heartbeat_interval_ms / 1000))[0]:
                if generation >= 0:
                    with contextlib.suppress(*OUTAGE):
                        await self._beat(member, generation)
            return answer.result()
        finally:
            answer.cancel()

    async def _join(self) -> bool:
        """Take a new seat. False if others may have had what we hold: we were away, or someone of another kind shared."""
        before, claimed = self.seat, frozenset(self._held())
        entry = ConsumerProtocolSubscription.TopicPartition
        subscription = ConsumerProtocolSubscription(
            version=1,
            topics=sorted(self.topics),
            user_data=card(self._weight, before.generation if claimed else -1),
            owned_partitions=[entry(topic=t, partitions=ps) for t, ps in sorted(by_topic(claimed).items())],
        ).encode()
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
            reason="",
        )
        answer = await self._while_others_join(request, before.member_id, before.generation)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            raise NotMember
        self._check(answer.error_code, "join", None)
        member, generation = answer.member_id, answer.generation_id
        self._note_join(before, member, generation, answer.leader)
        assignments = []
        if answer.leader == member and not answer.skip_assignment:
            shares = await self._share(answer)
            row = SyncGroupRequest.SyncGroupRequestAssignment
            assignments = [row(member_id=name, assignment=share) for name, share in shares.items()]
        asked = now()
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        sync = await self._while_others_join(request, member, generation)
        self._check(sync.error_code, "sync", None)
        share = ConsumerProtocolAssignment.decode(bytes(sync.assignment)) if sync.assignment else None
        assigned = frozenset((t.topic, p) for t in (share.assigned_partitions if share else ()) for p in t.partitions)
        two_rounds = share is not None and share.user_data == AGAIN
        self.seat = Seat(member, generation, assigned, claimed, two_rounds, answer.leader)
        self._heard = max(asked, self._heard)
        self.joined = True
        unbroken, self._broken = not self._broken, False
        return unbroken

    def _note_join(self, before: Seat, member: str, generation: int, leader: str) -> None:
        """Has each generation since our last seat left us what we hold?

        One that came to nothing has, if a leader of ours led it: it respects what members claim.
        """
        last_member, last_generation, last_leader = self._last_join
        follows = member == last_member and generation in (last_generation, last_generation + 1)
        seated = before.generation == last_generation
        self._broken |= not follows or not (seated or (before.two_rounds and last_leader == before.leader))
        self._last_join = (member, generation, leader)
        self._member_id = member

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
                    kind.TopicPartition(topic=t, partitions=ps) for t, ps in sorted(by_topic(keys).items())
                ],
                user_data=AGAIN,
            ).encode()
            for member, keys in share(members, counts).items()
        }

    async def _heartbeat(self) -> None:
        seat = self.seat
        self._check(await self._beat(seat.member_id, seat.generation), "heartbeat", seat)

    async def _beat(self, member: str, generation: int) -> int:
        """The coordinator's answer; that we are not in the group any more is known only from it."""
        asked = now()
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member, group_instance_id=self.instance_id
        )
        answer = await self._ask(request, timeout=self.settings.session_timeout_ms / 3000)
        if answer.error_code in (0, REBALANCE_IN_PROGRESS):
            self._heard = max(asked, self._heard)
        return int(answer.error_code)

    async def leave(self) -> None:
        """Give the seat back, so that the others need not wait for it."""
        if not self._member_id:
            return
        who = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        await self._ask(LeaveGroupRequest(group_id=self.group, member_id=self._member_id, members=[who]), timeout=3)
        self._member_id, self.joined = "", False

    # -- offsets

    async def commit(self, rows: dict[str, list[tuple[int, int, int, str]]], *, must_exist: bool = False) -> None:
        """Commit with the seat of this moment: (partition, offset, leader epoch, metadata) per topic."""
        seat = self.seat
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=seat.generation,
            member_id=seat.member_id,
            group_instance_id=self.instance_id,
            retention_time_ms=_REMEMBERED_MS,  # versions 2 to 4; version 1 has a time for each offset
            topics=[
                topic(
                    name=name,
                    partitions=[
                        row(
                            partition_index=p,
                            committed_offset=o,
                            committed_leader_epoch=e,
                            committed_metadata=m,
                            commit_timestamp=int(time.time() * 1000) + _REMEMBERED_MS,
                        )
                        for p, o, e, m in partitions
                    ],
                )
                for name, partitions in rows.items()
            ],
        )
        answer = await self._ask(request, newest=8)
        for topic_answer in answer.topics:
            for p in topic_answer.partitions:
                if p.error_code == UNKNOWN_TOPIC_OR_PARTITION and not must_exist:
                    continue  # the topic was deleted meanwhile: there is nothing to remember
                if p.error_code == TOPIC_AUTHORIZATION_FAILED:
                    raise ClusterError(denied(self.cluster.endpoint, "Read", "topic", topic_answer.name))
                self._check(p.error_code, f"commit of {topic_answer.name}-{p.partition_index}", seat)

    async def committed(self) -> dict[Key, tuple[int, str]]:
        """Return everything that the group has committed: offset and metadata of each partition."""
        try:
            return await self._coordinator.committed(self._partitions_to_name)
        except BrokerError as error:
            self._check(error.code, "reading committed offsets", None)
            raise

    def _partitions_to_name(self) -> set[Key]:
        known = self.cluster.topics
        chosen = {(name, p) for name in self.topics if name in known for p in known[name].partitions}
        return chosen | {key for key in self.seat.assigned if key[0] in known}

    # -- the coordinator

    async def _ask(
        self, request: ApiMessage, *, lane: str = "control", timeout: float | None = None, newest: int | None = None
    ) -> Any:
        try:
            return await self._coordinator.ask(request, purpose=lane, timeout=timeout, newest=newest)
        except BrokerError as error:
            self._check(error.code, error.detail, None)
            raise

    def _check(self, code: int, what: str, seat: Seat | None) -> None:
        """Raise what an answer means. One to a seat that has been replaced since says nothing of the present one."""
        if code == 0:
            return
        if code in MOVING:
            self._coordinator.forget()
            raise BrokerError(code, what)
        if code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS):
            if seat is None or (self.joined and seat is self.seat):
                if code == UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                if code != REBALANCE_IN_PROGRESS:
                    self._heard = -1e9
                self._rejoin.set()
            raise NotMember
        if code == FENCED_INSTANCE_ID:
            self._heard = -1e9
            raise FencedError(
                f"another process has joined group {self.group} as group.instance.id={self.instance_id}:"
                " give each process its own, or leave it out"
            )
        if code == GROUP_AUTHORIZATION_FAILED:
            raise ClusterError(denied(self.cluster.endpoint, "Read", "group", self.group))
        error = BrokerError(code, what)
        if error.retriable:
            raise error
        raise ClusterError(f"group {self.group} on {self.cluster.endpoint}: {error}")


def _member(metadata: bytes) -> Member:
    subscription = ConsumerProtocolSubscription.decode(metadata)
    streams, generation = read_card(bytes(subscription.user_data or b""))
    held = frozenset((t.topic, p) for t in subscription.owned_partitions or () for p in t.partitions)
    return Member(frozenset(subscription.topics), streams, held, generation)
