"""A Kafka cluster as a client sees it: its brokers, the leaders of its partitions, and connections to the brokers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mirrormaker.errors import (
    AuthenticationFailed,
    BadFrame,
    ClusterError,
    ConnectionLost,
    HungUp,
    LoginFailed,
    UnsupportedRequest,
    describe,
    raise_for,
)
from mirrormaker.wire.auth.sasl import LOGIN_PAUSE, LONGEST_LOGIN_PAUSE, authenticate, stay_logged_in
from mirrormaker.wire.client.cluster_description import Description, DescriptionReader, Partition, Topic
from mirrormaker.wire.credentials import PLAINTEXT, Sasl, Security
from mirrormaker.wire.protocol import fetch, old_brokers, produce
from mirrormaker.wire.protocol.messages import ApiMessage, MetadataRequest
from mirrormaker.wire.transport.connection import Connection, Lease
from mirrormaker.wire.transport.host_port import join_host_port

# Versions of Metadata that can ask for a topic without creating it (Kafka 0.11), and for permissions (Kafka 2.3).
_METADATA_WITHOUT_CREATION, _METADATA_WITH_PERMISSIONS = 4, 8
_LONGEST_DOUBLING = 10  # failures after which the pause no longer grows
_SECOND_LOOK = 0.5  # seconds after which another broker is asked for topics that one broker no longer has
# Every broker knows these; the controllers of a cluster do not.
_ALWAYS_KNOWN = (produce.API_KEY, fetch.API_KEY, MetadataRequest.API_KEY)


@dataclass(frozen=True)
class Endpoint:
    """The addresses of a cluster, and the settings of connections to it; times are in seconds."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "mirrormaker"
    request_timeout: float = 30.0
    connect_timeout: float = 10.0
    backoff: float = 0.05
    max_backoff: float = 1.0
    # The user's word for the version of brokers before 0.10, which cannot be asked for it.
    broker_version: tuple[int, ...] | None = None
    security: Security = PLAINTEXT

    def __str__(self) -> str:
        return ",".join(join_host_port(*pair) for pair in self.bootstrap)


class Cluster:
    """A cluster's metadata as last read by `refresh`, and its connections.

    There is one connection for each broker and purpose, so that requests of different purposes do not wait for each
    other. It is opened by the first request for it, and after a failure again by the next request, following a pause.
    """

    def __init__(self, endpoint: Endpoint, lease: Lease | None = None) -> None:
        self.endpoint = endpoint
        self.id: str = ""
        self.controller = -1
        self.brokers: dict[int, tuple[str, int]] = {}
        self.topics: dict[str, Topic] = {}
        # Topics that exist, but that brokers do not describe at the moment, and the error code. Known ones stay in `topics`.
        self.refused: dict[str, int] = {}
        # Only connections for Produce requests need it.
        self._lease = lease
        self._connections: dict[tuple[tuple[str, int], str], asyncio.Task[Connection]] = {}
        # By address: the failures in a row, and the time before which nothing is tried.
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        # Once one broker has answered ApiVersions, the others must know it too: one that does not answer is in trouble.
        self._can_be_asked = (
            endpoint.broker_version is not None and endpoint.broker_version >= old_brokers.FIRST_WITH_API_VERSIONS
        )
        # Brokers from before ApiVersions.
        self._old: dict[tuple[str, int], old_brokers.ApiVersions] = {}
        # The tasks that renew the logins of connections.
        self._logins: dict[tuple[tuple[str, int], str], asyncio.Task[None]] = {}
        self._read_all = DescriptionReader()

    # -- connections

    async def connection(self, node: int, purpose: str = "control") -> Connection:
        """Return the connection to a broker for one purpose; open it if necessary."""
        if node not in self.brokers:
            raise ConnectionLost(f"broker {node} is not among the brokers of {self.endpoint}")
        return await self._connect(self.brokers[node], purpose)

    async def _connect(self, address: tuple[str, int], purpose: str) -> Connection:
        key = (address, purpose)
        task = self._connections.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().is_open)):
            if task is not None:
                # The broker may come back as another version.
                self._old.pop(address, None)
            task = asyncio.create_task(self._open(address, purpose))
            self._connections[key] = task
        return await asyncio.shield(task)

    async def _open(self, address: tuple[str, int], purpose: str) -> Connection:
        """Open a connection; wait first if the last attempt at this address failed."""
        failures, not_before = self._failures.get(address, (0, 0.0))
        await asyncio.sleep(max(0.0, not_before - time.monotonic()))
        try:
            connection = await self._open_for_requests(address, purpose)
        except (ConnectionError, BadFrame, UnsupportedRequest) as error:
            first, longest = self.endpoint.backoff, self.endpoint.max_backoff
            if isinstance(error, AuthenticationFailed):
                first, longest = LOGIN_PAUSE, LONGEST_LOGIN_PAUSE
            pause = min(longest, first * 2**failures)
            not_before = time.monotonic() + pause * random.uniform(0.8, 1.2)
            self._failures[address] = (min(failures + 1, _LONGEST_DOUBLING), not_before)
            self._old.pop(address, None)
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionLost(str(error)) from error
        self._failures.pop(address, None)
        return connection

    async def _open_for_requests(self, address: tuple[str, int], purpose: str) -> Connection:
        """Open a connection, find out which requests the broker knows, and log in."""
        connection = await self._open_plain(address, purpose)
        another = partial(self._open_plain, address, "probe")
        sasl = self.endpoint.security.sasl
        try:
            versions = self._old.get(address) or await self._versions_named_by_user(another)
            if versions is None and sasl is not None:
                versions = await old_brokers.ask_before_login(connection, self.endpoint.connect_timeout)
            elif versions is None:
                patience = self.endpoint.request_timeout
                versions = await old_brokers.ask(connection, another, patience, may_be_old=not self._can_be_asked)
            if versions in (old_brokers.KAFKA_0_8_2, old_brokers.KAFKA_0_9):
                self._old[address] = versions
            else:
                self._can_be_asked = True
            if not versions.keys() >= set(_ALWAYS_KNOWN):
                raise BadFrame(
                    f"{connection} does not know the requests of a broker: is that the port of a controller?"
                )
            # Asking a broker from before ApiVersions costs the connection: the broker closes it, or stays silent on it.
            if not connection.is_open:
                connection = await self._open_plain(address, purpose)
            connection.versions = versions
            if sasl is not None:
                await self._log_in(connection, sasl, (address, purpose))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _versions_named_by_user(self, another: old_brokers.OpenConnection) -> old_brokers.ApiVersions | None:
        """Return the requests of the broker version that the user named; None if the brokers are newer by now."""
        versions = old_brokers.versions_before_0_10(self.endpoint.broker_version)
        return None if versions is None or await old_brokers.answers_api_versions(another) else versions

    @property
    def found_version(self) -> tuple[int, ...]:
        """Return the brokers' version if it is before 0.10; otherwise 0.10, which stands for all later ones."""
        if self._can_be_asked or not self._old:
            return old_brokers.FIRST_WITH_API_VERSIONS
        return (0, 8, 2) if old_brokers.KAFKA_0_8_2 in self._old.values() else (0, 9)

    async def _log_in(self, connection: Connection, sasl: Sasl, key: tuple[tuple[str, int], str]) -> None:
        lifetime = await authenticate(connection, sasl, self.endpoint.connect_timeout)
        if (former := self._logins.pop(key, None)) is not None:
            former.cancel()
        if lifetime is not None:
            renewal = stay_logged_in(connection, sasl, lifetime, self.endpoint.request_timeout)
            self._logins[key] = asyncio.create_task(renewal)

    async def _open_plain(self, address: tuple[str, int], purpose: str) -> Connection:
        lease = self._lease if purpose.startswith("produce") else None
        security = self.endpoint.security
        connection = Connection(*address, client_id=self.endpoint.client_id, lease=lease, tls=security.tls)
        try:
            await connection.open(self.endpoint.connect_timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self, *, abort: bool = False) -> None:
        """Close all connections; `abort` resets them, so that brokers drop requests that they have not read yet."""
        for task in self._connections.values():
            task.cancel()
            if task.done() and not task.cancelled() and not task.exception():
                task.result().close(abort=abort)
        self._connections.clear()
        for login in self._logins.values():
            login.cancel()
        self._logins.clear()

    # -- requests

    async def ask(
        self,
        request: ApiMessage,
        node: int | None = None,
        *,
        timeout: float | None = None,
        newest: int | None = None,
        purpose: str = "control",
    ) -> Any:
        """Send a request to one broker, by default to any; return the answer. `newest` caps the request's version."""
        connection = await (self._any() if node is None else self.connection(node, purpose))
        version = None if newest is None else min(newest, connection.best_version(type(request)))
        return await connection.ask(request, timeout or self.endpoint.request_timeout, version)

    async def ask_times(self, request: ApiMessage, times: int) -> list[Any]:
        """Send the same request so many times to any broker, without waiting in between; return the answers."""
        connection = await self._any()
        return await connection.ask_times(request, times, self.endpoint.request_timeout)

    async def _any(self, but: tuple[str, int] | None = None) -> Connection:
        """Return a control connection to any broker: an open one, else the first that opens, bootstrap servers last.

        The broker at the address `but` is taken only if there is no other.
        """
        for (address, purpose), task in self._connections.items():
            usable = purpose == "control" and task.done() and not task.cancelled() and not task.exception()
            if usable and address != but and task.result().is_open:
                return task.result()
        known = list(self.brokers.values())
        random.shuffle(known)
        errors: list[Exception] = []
        for address in sorted(dict.fromkeys([*known, *self.endpoint.bootstrap]), key=lambda address: address == but):
            try:
                return await self._connect(address, "control")
            except LoginFailed:
                # Another broker would refuse the login too, and count it as one more failed attempt.
                raise
            except ConnectionError as error:
                errors.append(error)
        kinds = (kind for kind in (AuthenticationFailed, HungUp) if any(isinstance(error, kind) for error in errors))
        raise next(kinds, ConnectionLost)("; ".join(dict.fromkeys(map(str, errors))))

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Read brokers and leaders: of the named topics, or of all. A topic that no longer exists is removed.

        A topic that is answered with another error stays as it was: its partitions may work as before.

        A broker that has just started may know no brokers, topics or partitions yet. An answer without brokers is an
        error. Topics and partitions that were there before are removed only if half a second later another broker has
        none of them either, or the same broker if it is the only one. The same holds for another id of a topic or of the
        cluster: nothing in an answer has a checksum, and a topic with another id is mirrored from its start.

        `create` lets the brokers create a named topic that does not exist, if they are configured to.
        """
        names = None if topics is None else list(topics)
        asks_all = names is None or (not create and await self._creates_named_topics())
        connection = await self._any()
        answer = await self._describe(connection, None if asks_all else names, create)
        found = self._with_refused(answer)
        other_ids = self._other_ids(answer.id, found)
        if other_ids or self._is_anything_gone(found, names):
            await asyncio.sleep(_SECOND_LOOK)
            another = await self._any(but=(connection.host, connection.port))
            answer = await self._describe(another, None if asks_all else names, create)
            found = self._with_refused(answer)
            if self._other_ids(answer.id, found) not in ({}, other_ids):
                raise ConnectionLost(f"{connection} and {another} do not name the same ids of topics or of the cluster")
        refused = answer.refused
        self.id, self.controller, self.brokers = answer.id, answer.controller, dict(answer.brokers)
        if names is None:
            self.topics, self.refused = found, dict(refused)
        else:
            for name in names:
                self.topics.pop(name, None)
                self.refused.pop(name, None)
            self.topics.update({name: found[name] for name in names if name in found})
            self.refused.update({name: refused[name] for name in names if name in refused})

    async def _describe(self, connection: Connection, names: list[str] | None, create: bool) -> Description:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        try:
            read = self._read_all if names is None else DescriptionReader()
            answer: Description = await connection.ask(request, self.endpoint.request_timeout, read=read)
        except HungUp as error:
            # A broker that requires a login hangs up on the first request without one.
            if self.brokers or self.endpoint.security.sasl:
                raise
            hint = "if it asks for a login, security.protocol must be SASL_PLAINTEXT or SASL_SSL"
            raise ConnectionLost(f"{error}; {hint}") from error
        raise_for(answer.error, "reading the metadata of the cluster")
        if not answer.brokers:
            lost = ConnectionLost(f"{connection} knows no brokers of its cluster yet")
            # The next request goes to another broker.
            connection.close(lost)
            raise lost
        return answer

    def _with_refused(self, answer: Description) -> dict[str, Topic]:
        """Return the topics of an answer; those that it does not describe as they were, if they are known."""
        return answer.topics | {name: self.topics[name] for name in answer.refused if name in self.topics}

    def _is_anything_gone(self, found: dict[str, Topic], names: list[str] | None) -> bool:
        """Return True if a known topic that was asked for is not found, or has fewer partitions than before."""
        known = [topic for name, topic in self.topics.items() if names is None or name in names]
        return any(
            topic.name not in found or len(found[topic.name].partitions) < len(topic.partitions) for topic in known
        )

    def _other_ids(self, cluster_id: str, found: Mapping[str, Topic]) -> dict[str, bytes | str]:
        """Return the ids that differ from those before, by topic; that of the cluster under the empty name."""
        known = {name: self.topics[name].id for name in found if name in self.topics}
        others: dict[str, bytes | str] = {
            name: found[name].id for name, before in known.items() if any(before) and found[name].id != before
        }
        if self.id and cluster_id != self.id:
            others[""] = cluster_id
        return others

    async def _creates_named_topics(self) -> bool:
        """Return True before Kafka 0.11: there a request that names a topic creates it, so all topics are requested."""
        return (await self._any()).best_version(MetadataRequest) < _METADATA_WITHOUT_CREATION

    async def lists_permissions(self) -> bool:
        """Return True if brokers tell the operations that this client may do (Kafka 2.3 and later)."""
        return (await self._any()).best_version(MetadataRequest) >= _METADATA_WITH_PERMISSIONS

    async def knows(self, message: type[ApiMessage]) -> bool:
        """Return True if the brokers know a request; one of them answers for all."""
        return message.API_KEY in (await self._any()).versions

    def leader(self, topic: str, partition: int) -> Partition | None:
        """Return a partition with its leader; None if it has no leader among the known brokers."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known else None
        return found if found and found.leader in self.brokers else None


def topic_id(cluster: Cluster, name: str) -> str:
    """Return a topic's id in hexadecimal; empty if the cluster has none (before Kafka 2.8)."""
    topic = cluster.topics.get(name)
    return topic.id.hex() if topic and any(topic.id) else ""


async def reach(side: str, cluster: Cluster) -> None:
    """Read the brokers and topics of a cluster. Raise ClusterError that names the side, source or target, if that fails."""
    try:
        await cluster.refresh()
    except LoginFailed as error:
        raise ClusterError(f"the {side} cluster does not let us in: {error}") from error
    except OSError as error:
        place = f"bootstrap.servers={cluster.endpoint}"
        raise ClusterError(f"the {side} cluster cannot be reached: {describe(error)} ({place})") from error
