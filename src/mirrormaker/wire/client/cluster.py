"""A Kafka cluster as a client sees it: its brokers, who leads what, and one connection per broker and purpose."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest

from mirrormaker.errors import AuthenticationFailed, ConnectionLost, LoginFailed, NoTicket
from mirrormaker.wire.auth.sasl import authenticate
from mirrormaker.wire.credentials import PLAINTEXT, Sasl, Security
from mirrormaker.wire.protocol import old_brokers
from mirrormaker.wire.transport.connection import CLOSED, Connection, Lease

NO_ID = bytes(16)
_METADATA_WITHOUT_CREATING, _METADATA_WITH_RIGHTS = 4, 8  # the request's versions, since 0.11 and 2.3
# Seconds between logins that fail, at first and at most: accounts are locked for less, and nothing gets right within one.
_LOGIN_PAUSE, _LONGEST_LOGIN_PAUSE = 1.0, 10.0
# Of a login's life: there must be time for a poll that is under way, and for a KDC that is away for a moment.
_LONGEST_QUEUE = 60.0  # seconds
_LOGS_IN_AFTER = (0.75, 0.85)


@dataclass(frozen=True)
class Endpoint:
    """How to reach a cluster."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "mirrormaker"
    request_timeout: float = 30.0
    connect_timeout: float = 10.0
    backoff: float = 0.05
    max_backoff: float = 1.0
    broker_version: tuple[int, ...] | None = None  # as told by the user; only versions that cannot be asked matter
    security: Security = PLAINTEXT

    def __str__(self) -> str:
        return ",".join(address(*pair) for pair in self.bootstrap)


@dataclass(frozen=True)
class Partition:
    leader: int
    leader_epoch: int
    replicas: int


@dataclass(frozen=True)
class Topic:
    name: str
    id: bytes
    internal: bool
    partitions: dict[int, Partition] = field(default_factory=dict)


class Cluster:
    """Connections are opened when asked for, shared by purpose ("lane"), and opened again after a pause when they break."""

    def __init__(self, endpoint: Endpoint, lease: Lease | None = None) -> None:
        self.endpoint = endpoint
        self.id: str = ""
        self.controller = -1
        self.brokers: dict[int, tuple[str, int]] = {}
        self.topics: dict[str, Topic] = {}
        self._lease = lease
        self._connections: dict[tuple[tuple[str, int], str], asyncio.Task[Connection]] = {}
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        # Once one broker could be asked, the others are of that time too: one that does not answer is in trouble.
        self._can_be_asked = (
            endpoint.broker_version is not None and endpoint.broker_version >= old_brokers.FIRST_WITH_API_VERSIONS
        )
        self._old: dict[tuple[str, int], old_brokers.ApiVersions] = {}  # brokers that cannot be asked what they know
        self._logins: dict[tuple[tuple[str, int], str], asyncio.Task[None]] = {}  # kept alive, of connections

    # -- connections

    async def connection(self, node: int, lane: str = "control") -> Connection:
        """The connection to a broker for one purpose; requests of different purposes do not wait for each other."""
        if node not in self.brokers:
            raise ConnectionLost(f"broker {node} of {self.endpoint} is not there")
        return await self._connect(self.brokers[node], lane)

    async def _connect(self, address: tuple[str, int], lane: str) -> Connection:
        key = (address, lane)
        task = self._connections.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().is_open)):
            if task is not None:
                self._old.pop(address, None)  # it may come back as another version
            task = asyncio.create_task(self._open(address, lane))
            self._connections[key] = task
        return await asyncio.shield(task)

    async def _open(self, address: tuple[str, int], lane: str) -> Connection:
        failures, not_before = self._failures.get(address, (0, 0.0))
        await asyncio.sleep(max(0.0, not_before - time.monotonic()))
        try:
            connection = await self._open_known(address, lane)
        except ConnectionError as error:
            first, longest = self.endpoint.backoff, self.endpoint.max_backoff
            if isinstance(error, AuthenticationFailed):
                first, longest = _LOGIN_PAUSE, _LONGEST_LOGIN_PAUSE
            pause = min(longest, first * 2**failures)
            self._failures[address] = (min(failures + 1, 10), time.monotonic() + pause * random.uniform(0.8, 1.2))
            self._old.pop(address, None)
            raise
        self._failures.pop(address, None)
        return connection

    async def _open_known(self, address: tuple[str, int], lane: str) -> Connection:
        """A connection on which it is known what the broker knows, and the broker knows who we are."""
        connection = await self._open_plain(address, lane)
        another = partial(self._open_plain, address, "probe")
        sasl = self.endpoint.security.sasl
        try:
            versions = self._old.get(address) or await self._told(another)
            if versions is None and sasl is not None:
                versions = await old_brokers.ask_before_login(connection, self.endpoint.connect_timeout)
            elif versions is None:
                patience = self.endpoint.request_timeout
                versions = await old_brokers.ask(connection, another, patience, may_be_old=not self._can_be_asked)
            if versions in (old_brokers.KAFKA_0_8_2, old_brokers.KAFKA_0_9):
                self._old[address] = versions
            else:
                self._can_be_asked = True
            if not connection.is_open:  # the question was too much for it
                connection = await self._open_plain(address, lane)
            connection.versions = versions
            if sasl is not None:
                await self._log_in(connection, sasl, (address, lane))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _told(self, another: old_brokers.OpenConnection) -> old_brokers.ApiVersions | None:
        """What the user says that the brokers are, unless that is no longer so."""
        versions = old_brokers.versions_before_0_10(self.endpoint.broker_version)
        return None if versions is None or await old_brokers.answers_api_versions(another) else versions

    @property
    def found_version(self) -> tuple[int, ...]:
        """Of those that cannot be asked; for all others, that they can."""
        if self._can_be_asked or not self._old:
            return old_brokers.FIRST_WITH_API_VERSIONS
        return (0, 8, 2) if old_brokers.KAFKA_0_8_2 in self._old.values() else (0, 9)

    async def _log_in(self, connection: Connection, sasl: Sasl, key: tuple[tuple[str, int], str]) -> None:
        lifetime = await authenticate(connection, sasl, self.endpoint.connect_timeout)
        if (former := self._logins.pop(key, None)) is not None:
            former.cancel()  # of a connection that has gone
        if lifetime is not None:
            self._logins[key] = asyncio.create_task(self._stay_logged_in(connection, sasl, lifetime))

    async def _stay_logged_in(self, connection: Connection, sasl: Sasl, lifetime: float | None) -> None:
        """Log in again in good time, on the same connection: what is under way there is not disturbed (KIP-368)."""
        while lifetime is not None:
            ends = time.monotonic() + lifetime
            await asyncio.sleep(lifetime * random.uniform(*_LOGS_IN_AFTER))
            lifetime = await self._log_in_again(connection, sasl, ends)

    async def _log_in_again(self, connection: Connection, sasl: Sasl, ends: float) -> float | None:
        """A login that takes over from one; without a ticket that one is used to its end. None: the connection is gone."""
        failures = 0
        while connection.is_open:
            try:
                # It waits behind what is under way: a long poll, or others who take their time to join the group.
                return await authenticate(connection, sasl, max(_LONGEST_QUEUE, self.endpoint.request_timeout))
            except NoTicket as error:
                if time.monotonic() > ends:
                    connection.close(error)
                pause, failures = min(_LONGEST_LOGIN_PAUSE, _LOGIN_PAUSE * 2**failures), failures + 1
                await asyncio.sleep(min(pause, max(0.1, ends - time.monotonic() + 0.1)))
            except ConnectionError as error:
                connection.close(error)
        return None

    async def _open_plain(self, address: tuple[str, int], lane: str) -> Connection:
        lease = self._lease if lane.startswith("produce") else None
        security = self.endpoint.security
        connection = Connection(*address, client_id=self.endpoint.client_id, lease=lease, tls=security.tls)
        try:
            await connection.open(self.endpoint.connect_timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self, *, abort: bool = False) -> None:
        for task in self._connections.values():
            task.cancel()
            if task.done() and not task.cancelled() and not task.exception():
                task.result().close(abort=abort)
        self._connections.clear()
        for login in self._logins.values():
            login.cancel()
        self._logins.clear()

    # -- questions

    async def ask(
        self,
        request: ApiMessage,
        node: int | None = None,
        *,
        timeout: float | None = None,
        newest: int | None = None,
        lane: str = "control",
    ) -> Any:
        """One question to one broker, or to whichever answers; `newest` caps the request's version."""
        connection = await (self._any() if node is None else self.connection(node, lane))
        version = None if newest is None else min(newest, connection.best_version(type(request)))
        return await connection.ask(request, timeout or self.endpoint.request_timeout, version)

    async def _any(self) -> Connection:
        """A connection to any broker: one that is open, else the first that lets us in, the bootstrap list last."""
        for (_, lane), task in self._connections.items():
            usable = lane == "control" and task.done() and not task.cancelled() and not task.exception()
            if usable and task.result().is_open:
                return task.result()
        known = list(self.brokers.values())
        random.shuffle(known)
        reasons, kind = [], ConnectionLost
        for address in dict.fromkeys([*known, *self.endpoint.bootstrap]):
            try:
                return await self._connect(address, "control")
            except LoginFailed:
                raise  # the others would say the same, and count it as one more attempt to break in
            except ConnectionError as error:
                reasons.append(str(error))
                kind = AuthenticationFailed if isinstance(error, AuthenticationFailed) else kind
        raise kind("; ".join(dict.fromkeys(reasons)))

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Read who leads what: for the named topics, or for all of the cluster. A topic that is gone leaves the picture."""
        names = None if topics is None else list(topics)
        if names is not None and not create and await self._creates_what_is_named():
            answer = await self._describe(None, create)
        else:
            answer = await self._describe(names, create)
        self.id = answer.cluster_id or ""
        self.controller = -1 if answer.controller_id is None else answer.controller_id
        self.brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        found = {t.name: _topic(t) for t in answer.topics if t.error_code in (0, 5) and t.partitions}
        if names is None:
            self.topics = found
        else:
            for name in names:
                self.topics.pop(name, None)
            self.topics.update({name: found[name] for name in names if name in found})

    async def _describe(self, names: list[str] | None, create: bool) -> Any:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        try:
            return await self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        except ConnectionLost as error:
            if self.brokers or self.endpoint.security.sasl or not str(error).endswith(CLOSED):
                raise
            hint = "if it asks for a login, security.protocol must be SASL_PLAINTEXT or SASL_SSL"
            raise ConnectionLost(f"{error}; {hint}") from error

    async def _creates_what_is_named(self) -> bool:
        """Before 0.11 to ask for a topic is to create it, where that is not switched off: then all are asked for."""
        return (await self._any()).best_version(MetadataRequest) < _METADATA_WITHOUT_CREATING

    async def tells_rights(self) -> bool:
        """Can brokers be asked what this client may do? Since Kafka 2.3."""
        return (await self._any()).best_version(MetadataRequest) >= _METADATA_WITH_RIGHTS

    async def knows(self, message: type[ApiMessage]) -> bool:
        """Do the cluster's brokers, as far as any one of them tells, know a request?"""
        return message.API_KEY in (await self._any()).versions

    def leader(self, topic: str, partition: int) -> Partition | None:
        """Who leads a partition, if anyone does."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known else None
        return found if found and found.leader in self.brokers else None


def _topic(answer: Any) -> Topic:
    partitions = {
        p.partition_index: Partition(p.leader_id, _or(p.leader_epoch, -1), len(p.replica_nodes))
        for p in answer.partitions
    }
    topic_id = answer.topic_id.bytes if answer.topic_id is not None else NO_ID
    return Topic(answer.name, topic_id, bool(answer.is_internal), partitions)


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def topic_id(cluster: Cluster, name: str) -> str:
    """Return a topic's id in hexadecimal; empty if the cluster has none (before Kafka 2.8)."""
    topic = cluster.topics.get(name)
    return topic.id.hex() if topic and any(topic.id) else ""
