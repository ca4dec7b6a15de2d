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
from dataclasses import dataclass, field
from typing import Any

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

from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, FencedError, NotMember
from mirrormaker.model.assignor import AGAIN, Member, card, read_card, share
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.acls import GROUP_DENIED, TOPIC_DENIED, denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.worker.stream_task import now

Key = tuple[str, int]

_NO_TOPIC, _LOADING, _NO_COORDINATOR, _NOT_COORDINATOR = 3, 14, 15, 16
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCE, _MEMBER_ID_REQUIRED, _FENCED = 22, 25, 27, 79, 82
_UNSTABLE = 88  # a transaction on the offsets is about to end
_ANOTHER_COORDINATOR = {_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR}
_REBALANCE_TIMEOUT_MS = 30_000  # how long the group waits for a member; ours answers within a heartbeat
_PAUSE = 0.2  # seconds before asking a coordinator again
# Before Kafka 2.1 a committed offset is forgotten a day after it was written, unless whoever writes it asks for more.
_REMEMBERED_MS = 365 * 86_400_000
_WHOLE_GROUP = 2  # the version of OffsetFetch that asks for all that a group has (Kafka 0.10.2)


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
        self._coordinator: int | None = None
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
            owned_partitions=[entry(topic=t, partitions=ps) for t, ps in sorted(_by_topic(claimed).items())],
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
        if answer.error_code == _MEMBER_ID_REQUIRED:
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
                    kind.TopicPartition(topic=t, partitions=ps) for t, ps in sorted(_by_topic(keys).items())
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
        if answer.error_code in (0, _REBALANCE):
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
                if p.error_code == _NO_TOPIC and not must_exist:
                    continue  # the topic was deleted meanwhile: there is nothing to remember
                if p.error_code == TOPIC_DENIED:
                    raise ClusterError(denied(self.cluster.endpoint, "Read", "topic", topic_answer.name))
                self._check(p.error_code, f"commit of {topic_answer.name}-{p.partition_index}", seat)

    async def committed(self) -> dict[Key, tuple[int, str]]:
        """All that the group has committed: offset and metadata of each partition."""
        while True:
            topics = await self._topics_to_ask_for()
            answer = await self._ask(
                OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True), newest=7
            )
            codes = {answer.error_code or 0} | {p.error_code for t in answer.topics for p in t.partitions}
            if topics is not None and _NO_TOPIC in codes:
                # A coordinator of that time that has just come up: it may have offsets, and does not know its topics yet.
                await asyncio.sleep(_PAUSE)
                await self.cluster.refresh()
                continue
            if codes & _ANOTHER_COORDINATOR or _UNSTABLE in codes:
                self._coordinator = None
                await asyncio.sleep(_PAUSE)
                continue
            self._check(max(codes, default=0), "reading committed offsets", None)
            return {
                (t.name, p.partition_index): (p.committed_offset, p.metadata or "")
                for t in answer.topics
                for p in t.partitions
                if p.committed_offset >= 0
            }

    async def _topics_to_ask_for(self) -> list[Any] | None:
        """All, or before 0.10.2 the chosen ones by name."""
        if self._coordinator is None:
            await self._find_coordinator()
        assert self._coordinator is not None
        connection = await self.cluster.connection(self._coordinator)
        if connection.best_version(OffsetFetchRequest) >= _WHOLE_GROUP:
            return None
        row, known = OffsetFetchRequest.OffsetFetchRequestTopic, self.cluster.topics
        chosen = {(name, p) for name in self.topics if name in known for p in known[name].partitions}
        ours = {key for key in self.seat.assigned if key[0] in known}
        return [row(name=name, partition_indexes=found) for name, found in _by_topic(chosen | ours).items()]

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
            if answer.error_code == GROUP_DENIED:
                self._check(GROUP_DENIED, "", None)
            if answer.error_code not in _ANOTHER_COORDINATOR or time.monotonic() > deadline:
                raise BrokerError(answer.error_code, f"looking for the coordinator of group {self.group}")
            await asyncio.sleep(_PAUSE)

    def _check(self, code: int, what: str, seat: Seat | None) -> None:
        """Raise what an answer means. One to a seat that has been replaced since says nothing of the present one."""
        if code == 0:
            return
        if code in _ANOTHER_COORDINATOR:
            self._coordinator = None
            raise BrokerError(code, what)
        if code in (_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCE):
            if seat is None or (self.joined and seat is self.seat):
                if code == _UNKNOWN_MEMBER:
                    self._member_id = ""
                if code != _REBALANCE:
                    self._heard = -1e9
                self._rejoin.set()
            raise NotMember
        if code == _FENCED:
            self._heard = -1e9
            raise FencedError(
                f"another process has joined group {self.group} as group.instance.id={self.instance_id}:"
                " give each process its own, or leave it out"
            )
        if code == GROUP_DENIED:
            raise ClusterError(denied(self.cluster.endpoint, "Read", "group", self.group))
        error = BrokerError(code, what)
        if error.retriable:
            raise error
        raise ClusterError(f"group {self.group} on {self.cluster.endpoint}: {error}")


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
