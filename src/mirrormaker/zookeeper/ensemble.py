"""What Kafka keeps in ZooKeeper: who the brokers are, and how far the consumers of 0.8 got.

Everything here blocks: beside an event loop it belongs into a thread. What the znodes hold was written by others, and is checked
before it is used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from mirrormaker.errors import ClusterError, SettingError, ZooKeeperError
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port
from mirrormaker.zookeeper.registrations import Registration, registration

Key = tuple[str, int]

_PORT = 2181
_PATIENCE = 6.0  # seconds for a connection or an answer: what the old consumer took for a ZooKeeper session
# kazoo tells of every attempt; the user is told once, by the error that is raised.
_SILENT = logging.getLogger("mirrormaker.kazoo")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def parse_connect(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """The servers and the chroot in `host:2181,host2:2181/chroot`."""
    servers, slash, chroot = text.strip().partition("/")
    found = []
    for part in filter(None, (p.strip() for p in servers.split(","))):
        server = split_host_port(part, _PORT)
        if server is None:
            raise SettingError(
                f"ZooKeeper address {text}: '{part}' is not host:port; write host:2181,host2:2181/chroot"
            )
        found.append(server)
    names = [name for name in chroot.split("/") if name]
    if not found or any(name in (".", "..") for name in names):
        raise SettingError(f"ZooKeeper address {text}: write host:2181,host2:2181/chroot")
    return tuple(dict.fromkeys(found)), slash + "/".join(names) if names else ""


class ZooKeeper:
    """A session with one of the servers, inside `with`."""

    def __init__(self, connect: str, timeout: float = _PATIENCE) -> None:
        """`timeout` bounds the connection, and each answer after it."""
        self.connect, self.timeout = connect, timeout
        self._servers, self._chroot = parse_connect(connect)
        self._client: Any = None

    def __enter__(self) -> ZooKeeper:
        hosts = ",".join(join_host_port(*server) for server in self._servers)
        retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
        client = KazooClient(hosts + self._chroot, self.timeout, connection_retry=retry, logger=_SILENT)
        started = time.monotonic()
        try:
            connected = _has_address(self._servers) and client.start_async().wait(self.timeout)
            if not connected:
                raise self._unreachable(time.monotonic() - started)
        except BaseException:
            # Its end waits for attempts that are under way: nobody else should.
            threading.Thread(target=_end, args=[client], daemon=True).start()
            raise
        self._client = client
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        ending = threading.Thread(target=_end, args=[client], daemon=True)
        ending.start()
        ending.join(self.timeout)

    # -- brokers and topics

    def brokers(self) -> dict[int, Registration]:
        """Every broker that is there at the moment."""
        names = [name for name in self._children("/brokers/ids") if name.isdecimal()]
        found = self._read_all(f"/brokers/ids/{name}" for name in names)
        return {
            int(name): registration(int(name), data, f"ZooKeeper {self.connect}: /brokers/ids/{name}")
            for name in names
            if (data := found.get(f"/brokers/ids/{name}")) is not None
        }

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        path = f"/brokers/topics/{topic}"
        found = self._json(path).get("partitions", {})
        if not isinstance(found, dict) or not all(str(number).isdecimal() for number in found):
            raise self._strange(path, found)
        return sorted(map(int, found))

    def leader(self, topic: str, partition: int) -> int | None:
        """The id of the broker that leads a partition, if one does."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        leader = self._json(path).get("leader", -1)
        if not isinstance(leader, int):
            raise self._strange(path, leader)
        return leader if leader >= 0 else None

    def topic_settings(self, topic: str) -> dict[str, str]:
        """What a topic has of its own, apart from the brokers' defaults."""
        path = f"/config/topics/{topic}"
        found = self._json(path).get("config", {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise self._strange(path, found)
        return found

    # -- groups of consumers that keep themselves in ZooKeeper

    def has_group(self, group: str) -> bool:
        """Has any consumer of this group owned or committed something?"""
        return any(self._exists(f"/consumers/{group}/{part}") for part in ("owners", "offsets"))

    def group_topics(self, group: str) -> set[str]:
        """The topics of which the group has owned or committed something."""
        return {topic for part in ("owners", "offsets") for topic in self._children(f"/consumers/{group}/{part}")}

    def owners(self, group: str) -> dict[Key, str]:
        """Which consumer thread has which partition at the moment."""
        return self._of_partitions(f"/consumers/{group}/owners")

    def offsets(self, group: str) -> dict[Key, int]:
        """How far the group has come."""
        found = self._of_partitions(f"/consumers/{group}/offsets")
        for (topic, partition), text in found.items():
            if not re.fullmatch(r"-?\d{1,19}", text):
                raise self._strange(f"/consumers/{group}/offsets/{topic}/{partition}", text)
        return {key: int(text) for key, text in found.items()}

    def offsets_of_today(self, group: str) -> dict[Key, int]:
        """As `offsets`, without what was written before its topic was created: that belongs to another one of the same name."""
        found = self.offsets(group)
        made = {topic: self._client.exists_async(f"/brokers/topics/{topic}") for topic, _ in found}
        said = {key: self._client.exists_async(f"/consumers/{group}/offsets/{key[0]}/{key[1]}") for key in found}
        created = {topic: self._answer(asked, f"/brokers/topics/{topic}") for topic, asked in made.items()}
        written = {key: self._answer(asked, f"/consumers/{group}/offsets") for key, asked in said.items()}
        return {
            key: offset
            for key, offset in found.items()
            if (since := created[key[0]]) is None or (stat := written[key]) is None or stat.mtime >= since.ctime
        }

    def commit_offsets(self, group: str, offsets: Mapping[Key, int]) -> None:
        """Write down how far the group has come, where the old consumer would look for it."""
        writes = {
            f"/consumers/{_name(group)}/offsets/{_name(topic)}/{partition}": b"%d" % offset
            for (topic, partition), offset in offsets.items()
        }
        attempts = {path: self._client.set_async(path, data) for path, data in writes.items()}
        for path, attempt in attempts.items():
            if self._answer(attempt, path, NoNodeError) is not None:
                continue
            made = self._answer(
                self._client.create_async(path, writes[path], makepath=True), path, NodeExistsError, NoNodeError
            )
            if made is None:  # someone else was quicker
                self._answer(self._client.set_async(path, writes[path]), path)

    # -- znodes

    def _of_partitions(self, above: str) -> dict[Key, str]:
        """The texts of `above`/topic/partition."""
        topics = self._children(above)
        listings = {topic: self._client.get_children_async(f"{above}/{topic}") for topic in topics}
        keys = {
            f"{above}/{topic}/{name}": (topic, int(name))
            for topic, listing in listings.items()
            for name in self._answer(listing, f"{above}/{topic}", NoNodeError) or ()
            if name.isdecimal()
        }
        return {keys[path]: _text(data) for path, data in self._read_all(keys).items()}

    def _read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """What the znodes hold; asked all at once, for a round trip each would add up."""
        asked = {path: self._client.get_async(path) for path in paths}
        answers = {path: self._answer(result, path, NoNodeError) for path, result in asked.items()}
        return {path: answer[0] for path, answer in answers.items() if answer is not None}

    def _json(self, path: str) -> dict[str, Any]:
        """A znode's object; an empty one if there is no such znode."""
        if not _is_path(path) or not (data := self._read_all([path]).get(path)):
            return {}
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._strange(path, _text(data))
        return found

    def _children(self, path: str) -> list[str]:
        if not _is_path(path):
            return []
        return sorted(self._answer(self._client.get_children_async(path), path, NoNodeError) or ())

    def _exists(self, path: str) -> bool:
        return _is_path(path) and self._answer(self._client.exists_async(path), path) is not None

    def _answer(self, asked: Any, path: str, *none: type[KazooException]) -> Any:
        """Wait for an answer; None instead of the errors in `none`."""
        try:
            return asked.get(timeout=self.timeout)
        except none:
            return None
        except self._client.handler.timeout_exception as error:
            raise ZooKeeperError(f"ZooKeeper {self.connect} did not answer within {self.timeout:g} s") from error
        except KazooException as error:
            why = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).lower()
            raise ClusterError(f"ZooKeeper {self.connect}: {path}: {why}") from error

    def _strange(self, path: str, value: object) -> ClusterError:
        return ClusterError(
            f"ZooKeeper {self.connect}: {path} holds {str(value)[:80]!r}, which Kafka does not write there"
        )

    def _unreachable(self, waited: float) -> ZooKeeperError:
        reasons = "; ".join(f"{join_host_port(*server)}: {_reason(*server)}" for server in self._servers)
        error = ZooKeeperError(f"ZooKeeper {self.connect} cannot be reached within {waited:.1f} s: {reasons}")
        error.unknown_host = not _has_address(self._servers)
        return error


# -- small things


def _has_address(servers: Iterable[tuple[str, int]]) -> bool:
    for host, port in servers:
        with contextlib.suppress(OSError, UnicodeError):
            if socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                return True
    return False


def _reason(host: str, port: int) -> str:
    """Why a server is of no use, after it was: a short look."""
    try:
        socket.create_connection((host, port), 0.5).close()
    except socket.gaierror:
        return "the name has no address"
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        return os.strerror(number).lower() if number else "no answer"
    return "it answers, but not as a ZooKeeper that is in service"


def _end(client: KazooClient) -> None:
    with contextlib.suppress(Exception):
        client.stop()
        client.close()


def _is_path(path: str) -> bool:
    """Can there be such a znode? Groups may have names that none can have."""
    return all(name and name not in (".", "..") for name in path[1:].split("/")) and "\0" not in path


def _name(text: str) -> str:
    if "/" in text or not _is_path(f"/{text}"):
        raise ClusterError(f"'{text}' cannot be a name in ZooKeeper: its offsets must be kept in Kafka")
    return text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
