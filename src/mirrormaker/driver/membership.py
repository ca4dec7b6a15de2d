"""This process as one member of the source's consumer group: join, sync, heartbeat, commit, leave.

A Java MirrorMaker may be in the same group: the protocol is `consumer` and the assignor `range` (see `model/assignor.py`). With a
group instance id (Kafka 2.3 and later) a process that was killed and started again gets its partitions back at once instead of
after a session timeout.

Every lease depends on the membership: a process that was frozen or cut off for longer than a session timeout may have lost its
partitions to others. It answers no stream's report until the coordinator has answered it again, so its streams fall silent first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mirrormaker.control.lease import lease_clock
from mirrormaker.driver.group_protocol import (
    Generation,
    Row,
    commit_request,
    decode_assignment,
    decode_subscriptions,
    encode_assignment,
    encode_subscription,
)
from mirrormaker.driver.patience import OutageReport
from mirrormaker.errors import OUTAGE, BadFrame, BrokerError, ClusterError, FencedError, NotMember, describe
from mirrormaker.events import event
from mirrormaker.events.process_events import StrangeMember
from mirrormaker.kafka_errors import (
    FENCED_INSTANCE_ID,
    GROUP_AUTHORIZATION_FAILED,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Scope,
    error_code,
)
from mirrormaker.model.assignor import Member, assign
from mirrormaker.settings.clients import SourceSettings
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.groups import MOVING, GroupCoordinator
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import (
    ApiMessage,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from mirrormaker.wire.transport.threads import run_in_thread

_REBALANCE_TIMEOUT_MS = 30_000  # how long the group waits for a member; ours joins again within a heartbeat
_PAUSE = 0.2  # seconds before the coordinator is asked again
_REFUSED_PAUSE = 1.0  # the same after an error that is not expected to pass by itself
_QUICK_JOINS = 3  # attempts without a pause: a member that was forgotten joins twice, for a new id and with it
# Errors about this member rather than about the request.
_ABOUT_MEMBER = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID})
_NEVER = -1e9


class Membership:
    """Joins the group, stays in it, and commits as its member."""

    def __init__(
        self,
        cluster: Cluster,
        settings: SourceSettings,
        instance_id: str | None,
        streams: int,
        owned: Callable[[], Collection[TopicPartition]],
        report: event.Report = lambda _: None,
    ) -> None:
        """`owned` returns the partitions that this process has at the moment."""
        self._report = report
        self.cluster, self.settings = cluster, settings
        self.instance_id, self.streams, self._owned = instance_id, streams, owned
        self.group = settings.group_id
        self.topics: frozenset[str] = frozenset()
        self.generation = Generation()
        self.joined = False
        self.has_streams = False
        self._is_late = False
        self._member_id = ""
        # Member, generation and leader in the last answer to a join, whether the sync after it succeeded or not.
        self._last_join = ("", -1, "")
        # True if since the last completed join a generation passed in which others may have had our partitions.
        self._was_interrupted = False
        # When the last request was sent that the coordinator answered as to a member.
        self._confirmed_at = _NEVER
        self._coordinator = GroupCoordinator(cluster, settings.group_id)
        self._rejoin = asyncio.Event()
        self._strange_members: set[str] = set()  # those that were reported

    # -- staying in the group

    @property
    def is_certain(self) -> bool:
        """True while the coordinator cannot have given our partitions to others yet."""
        return lease_clock() - self._confirmed_at < self.settings.session_timeout_ms / 1000

    @property
    def is_settled(self) -> bool:
        """True if nothing about the group's assignment is about to change, as far as this member knows."""
        return self.joined and self.has_streams and not self._rejoin.is_set() and not self.generation.to_release

    async def keep(self, before_join: Callable[[], Awaitable[None]], after_join: Callable[[bool], None]) -> None:
        """Stay in the group for as long as this runs.

        Once it has joined, an error does not end it: partitions are mirrored on for as long as the membership is certain.

        `after_join` is told whether this member was in the group all the time; if not, others may have had its partitions.
        """
        outage = OutageReport(self._report, f"group {self.group}: ")
        attempts = 0  # to join, since the last one that succeeded
        while True:
            try:
                if not self.joined:
                    await asyncio.sleep(0 if attempts < _QUICK_JOINS else _PAUSE)
                    attempts += 1
                    await before_join()
                    self._rejoin.clear()
                    after_join(await self._join())
                    attempts = 0
                await self._wait_a_heartbeat()
                if self._rejoin.is_set():
                    self.joined = False
                    continue
                await self._heartbeat()
                outage.succeeded()
            except NotMember:
                self.joined = False
            except OUTAGE as error:
                self._coordinator.forget()
                outage.failed(error)
                await asyncio.sleep(_PAUSE)
            except ClusterError as error:
                if self.generation.number < 0:
                    raise  # the start has failed
                self._coordinator.forget()
                outage.failed(error, at_once=True)
                await asyncio.sleep(_REFUSED_PAUSE)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Choose the topics to ask the group for; a change means joining again."""
        wanted = frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self._rejoin.set()

    def rebalance(self) -> None:
        """Have the group assign its partitions anew."""
        self._rejoin.set()

    def streams_work(self, work: bool) -> None:
        """Take part in the assignment while streams run; while none does, offer our partitions to other processes.

        Until the first streams run, partitions stay where they are: a process that starts takes nothing that it cannot mirror.
        """
        if self.has_streams != work or (not work and not self._is_late):
            self.has_streams, self._is_late = work, not work
            self._rejoin.set()

    @property
    def _weight(self) -> int:
        """Our share's weight: the number of streams; 0 before the first one runs, -1 if that takes too long."""
        return self.streams if self.has_streams else -1 if self._is_late else 0

    async def _wait_a_heartbeat(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._rejoin.wait(), self.settings.heartbeat_interval_ms / 1000)

    async def leave(self) -> None:
        """Leave the group, so that the others need not wait for a session timeout."""
        if not self._member_id:
            return
        member = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, member_id=self._member_id, members=[member])
        await self._ask(request, timeout=3)
        self._member_id, self.joined = "", False

    # -- joining

    async def _join(self) -> bool:
        """Enter a new generation. Return False if others may have had our partitions since the last one."""
        before, claimed = self.generation, frozenset(self._owned())
        request = await self._join_request(before, claimed)
        answer = await self._ask_while_beating(request, before.member_id, before.number)
        if answer.error_code == MEMBER_ID_REQUIRED and not self._member_id:
            self._member_id = answer.member_id
            raise NotMember
        self._check(answer.error_code, "join", None)
        member, number = answer.member_id, answer.generation_id
        self._note_join(before, member, number, answer.leader)
        assignments: dict[str, bytes] = {}
        if answer.leader == member and not answer.skip_assignment:
            assignments = await self._assign(answer)
        asked_at = lease_clock()
        sync = await self._ask_while_beating(self._sync_request(member, number, assignments), member, number)
        self._check(sync.error_code, "sync", None)
        assigned, two_rounds = decode_assignment(bytes(sync.assignment or b""))
        self.generation = Generation(member, number, assigned, claimed, two_rounds, answer.leader)
        self._confirmed_at = max(asked_at, self._confirmed_at)
        self.joined = True
        was_interrupted, self._was_interrupted = self._was_interrupted, False
        return not was_interrupted

    async def _join_request(self, before: Generation, claimed: frozenset[TopicPartition]) -> ApiMessage:
        encode = partial(encode_subscription, self.topics, claimed, self._weight, before.number)
        subscription = await run_in_thread(encode)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)],
            reason="",
        )

    def _sync_request(self, member: str, number: int, assignments: Mapping[str, bytes]) -> ApiMessage:
        row = SyncGroupRequest.SyncGroupRequestAssignment
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=number,
            member_id=member,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[row(member_id=name, assignment=data) for name, data in assignments.items()],
        )

    def _note_join(self, before: Generation, member: str, number: int, leader: str) -> None:
        """Note whether every generation since the last completed join kept our partitions assigned to us.

        A generation whose sync failed did, if a mirrormaker led it: that respects what members claim.
        """
        last_member, last_number, last_leader = self._last_join
        follows = member == last_member and number in (last_number, last_number + 1)
        was_completed = before.number == last_number
        kept = was_completed or (before.two_rounds and last_leader == before.leader)
        self._was_interrupted |= not (follows and kept)
        self._last_join = (member, number, leader)
        self._member_id = member

    async def _assign(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """As the group's leader, decide which member gets which partitions; with thousands of them that takes a thread 0.1 s."""
        members, strange = await run_in_thread(partial(_subscriptions, answer.members))
        for name in sorted(strange.keys() - self._strange_members):
            self._strange_members.add(name)
            self._report(StrangeMember(self.group, name, describe(strange[name])))
        topics = {topic for member in members.values() for topic in member.topics}
        if topics - set(self.cluster.topics):
            await self.cluster.refresh()
        counts = {t: len(self.cluster.topics[t].partitions) for t in topics if t in self.cluster.topics}
        return await run_in_thread(partial(_assignments, members, counts))

    async def _ask_while_beating(self, request: ApiMessage, member: str, number: int) -> Any:
        """Send a join or sync, which may wait for other members, and send heartbeats of the old generation meanwhile."""
        answer = asyncio.ensure_future(self._ask(request, purpose="group", timeout=_REBALANCE_TIMEOUT_MS / 1000 + 10))
        try:
            while not (await asyncio.wait([answer], timeout=self.settings.heartbeat_interval_ms / 1000))[0]:
                if number >= 0:
                    with contextlib.suppress(*OUTAGE):
                        await self._beat(member, number)
            return answer.result()
        finally:
            # The answer may come, or fail, in the same moment: nobody waits for it any more.
            answer.add_done_callback(lambda task: task.cancelled() or task.exception())
            answer.cancel()

    async def _heartbeat(self) -> None:
        generation = self.generation
        self._check(await self._beat(generation.member_id, generation.number), "heartbeat", generation)

    async def _beat(self, member: str, number: int) -> int:
        """Send a heartbeat; return the coordinator's error code."""
        asked_at = lease_clock()
        request = HeartbeatRequest(
            group_id=self.group, generation_id=number, member_id=member, group_instance_id=self.instance_id
        )
        answer = await self._ask(request, timeout=self.settings.session_timeout_ms / 3000)
        if answer.error_code in (0, REBALANCE_IN_PROGRESS):
            self._confirmed_at = max(asked_at, self._confirmed_at)
        return int(answer.error_code)

    # -- offsets

    async def commit(
        self, rows: Mapping[str, Sequence[Row]], generation: Generation
    ) -> dict[TopicPartition, BrokerError]:
        """Commit rows per topic as a member of that generation; return the partitions that the coordinator refused.

        An error about this member or its coordinator, such as a generation that has passed, is raised. The coordinator
        answers every partition with such an error.
        """
        request = commit_request(self.group, self.instance_id, generation.member_id, generation.number, rows)
        answer = await self._ask(request, newest=8)
        codes = {(t.name, p.partition_index): int(p.error_code) for t in answer.topics for p in t.partitions}
        wanted = {(name, row[0]) for name, partitions in rows.items() for row in partitions}
        if codes.keys() != wanted:
            raise BadFrame(f"the answer to a commit of group {self.group} is about other partitions")
        common = {error_code(code) for code in codes.values()}
        code = common.pop() if len(common) == 1 else None
        if code and code.scope >= Scope.SOURCE and (code.code in _ABOUT_MEMBER or code.retriable):
            self._check(code.code, "commit", generation)
        return {key: BrokerError(code) for key, code in codes.items() if code}

    async def committed(self) -> tuple[dict[TopicPartition, tuple[int, str]], dict[TopicPartition, BrokerError]]:
        """Return what the group has committed, offset and metadata, and the errors of partitions that cannot be read."""
        try:
            return await self._coordinator.committed(self._partitions_to_name)
        except BrokerError as error:
            self._check_group(error.code, "reading committed offsets")
            raise

    def _partitions_to_name(self) -> set[TopicPartition]:
        known = self.cluster.topics
        chosen = {(name, p) for name in self.topics if name in known for p in known[name].partitions}
        return chosen | {key for key in self.generation.assigned if key[0] in known}

    # -- the coordinator

    async def _ask(
        self, request: ApiMessage, *, purpose: str = "control", timeout: float | None = None, newest: int | None = None
    ) -> Any:
        try:
            return await self._coordinator.ask(request, purpose=purpose, timeout=timeout, newest=newest)
        except BrokerError as error:
            self._check_group(error.code, error.detail)
            raise

    def _check(self, code: int, what: str, generation: Generation | None) -> None:
        """Raise what an error code means. An answer to a generation that was replaced says nothing of the present one.

        A member that has joined anew fences itself as it was before: only its present id can have been taken by others.
        """
        if code not in _ABOUT_MEMBER:
            self._check_group(code, what)
        elif code == FENCED_INSTANCE_ID and generation is None and self._member_id != self.generation.member_id:
            # A coordinator that restarts between join and sync comes back with the member that we were.
            self._member_id = ""
            raise NotMember
        elif code == FENCED_INSTANCE_ID and (generation is None or generation.member_id == self._member_id):
            self._confirmed_at = _NEVER
            raise FencedError(
                f"another process has joined group {self.group} as group.instance.id={self.instance_id}:"
                " give each process its own, or leave it out"
            )
        else:
            if generation is None or (self.joined and generation is self.generation):
                if code == UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                if code != REBALANCE_IN_PROGRESS:
                    self._confirmed_at = _NEVER
                self._rejoin.set()
            raise NotMember

    def _check_group(self, code: int, what: str) -> None:
        """Raise what an error code means that says nothing of this member."""
        if code == 0:
            return
        error = BrokerError(code, what)
        if code in MOVING:
            self._coordinator.forget()
        if error.retriable:
            raise error
        if code == GROUP_AUTHORIZATION_FAILED:
            raise ClusterError(denied(self.cluster.endpoint, "Read", "group", self.group))
        raise ClusterError(f"group {self.group} on {self.cluster.endpoint}: {error}")


def _subscriptions(rows: Sequence[Any]) -> tuple[dict[str, Member], dict[str, BadFrame]]:
    """Return what the members ask for. One that cannot be understood gets nothing, and the others get everything."""
    found = decode_subscriptions([bytes(row.metadata or b"") for row in rows])
    named = dict(zip((row.member_id for row in rows), found, strict=True))
    strange = {name: member for name, member in named.items() if isinstance(member, BadFrame)}
    return {
        name: Member(frozenset()) if isinstance(member, BadFrame) else member for name, member in named.items()
    }, strange


def _assignments(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[str, bytes]:
    return {name: encode_assignment(keys) for name, keys in assign(members, counts).items()}
