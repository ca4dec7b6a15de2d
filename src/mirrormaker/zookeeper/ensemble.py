"""A session with ZooKeeper, and Kafka's data there: brokers, topics, and the consumer groups of Kafka 0.8.

Everything here blocks: beside an event loop it belongs into a thread. Other programs have written the znodes, so their
content is checked before it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from mirrormaker.errors import ClusterError, SettingError, ZooKeeperError
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port
from mirrormaker.zookeeper.quiet_client import UNREADABLE, close, new_client
from mirrormaker.zookeeper.registrations import Registration, registration

_PORT = 2181
_TIMEOUT = 6.0  # seconds for a connection or a response: the old consumer's default for a ZooKeeper session


def parse_connect(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return the servers and the chroot of an address like `host:2181,host2:2181/chroot`."""
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

    def __init__(self, connect: str, timeout: float = _TIMEOUT) -> None:
        """`timeout` in seconds limits the connection, and each response after it."""
        self.connect, self.timeout = connect, timeout
        self._servers, self._chroot = parse_connect(connect)
        self._client: Any = None

    def __enter__(self) -> ZooKeeper:
        hosts = ",".join(join_host_port(*server) for server in self._servers)
        client = new_client(hosts + self._chroot, self.timeout)
        started = time.monotonic()
        try:
            connected = _has_address(self._servers) and client.start_async().wait(self.timeout)
            if not connected:
                raise self._unreachable(time.monotonic() - started)
        except BaseException:
            # Closing waits for attempts that are under way. The caller should not.
            threading.Thread(target=close, args=[client], daemon=True).start()
            raise
        self._client = client
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        closing = threading.Thread(target=close, args=[client], daemon=True)
        closing.start()
        closing.join(self.timeout)

    # -- brokers and topics

    def brokers(self) -> dict[int, Registration]:
        """Return every broker that runs at the moment."""
        paths = {name: f"/brokers/ids/{name}" for name in self._children("/brokers/ids") if _is_number(name)}
        znodes = self._read_all(paths.values())
        return {
            int(name): registration(int(name), znodes[path], f"ZooKeeper {self.connect}: {path}")
            for name, path in paths.items()
            if path in znodes
        }

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; none if there is no such topic."""
        path = f"/brokers/topics/{topic}"
        partitions = self._read_json(path).get("partitions", {})
        if not isinstance(partitions, dict) or not all(map(_is_number, partitions)):
            raise self._malformed(path, partitions)
        return sorted(map(int, partitions))

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the id of the broker that leads a partition; None if no broker does."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        leader = self._read_json(path).get("leader", -1)
        if not isinstance(leader, int):
            raise self._malformed(path, leader)
        return leader if leader >= 0 else None

    def topic_settings(self, topic: str) -> dict[str, str]:
        """Return the topic's own settings, without the brokers' defaults."""
        path = f"/config/topics/{topic}"
        settings = self._read_json(path).get("config", {})
        if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
            raise self._malformed(path, settings)
        return settings

    # -- consumer groups that keep their state in ZooKeeper

    def has_group(self, group: str) -> bool:
        """Return True if a consumer of this group has ever owned or committed something."""
        return any(self._exists(f"/consumers/{group}/{part}") for part in ("owners", "offsets"))

    def group_topics(self, group: str) -> set[str]:
        """Return the topics of which the group has owned or committed something."""
        return {topic for part in ("owners", "offsets") for topic in self._children(f"/consumers/{group}/{part}")}

    def owners(self, group: str) -> dict[TopicPartition, str]:
        """Return which consumer thread has which partition at the moment."""
        return self._read_by_partition(f"/consumers/{group}/owners")

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's committed offsets."""
        texts = self._read_by_partition(f"/consumers/{group}/offsets")
        for (topic, partition), text in texts.items():
            if not re.fullmatch(r"-?\d{1,19}", text):
                raise self._malformed(f"/consumers/{group}/offsets/{topic}/{partition}", text)
        return {key: int(text) for key, text in texts.items()}

    def current_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, without those that are older than their topic.

        They were committed for a deleted topic of the same name.
        """
        offsets = self.offsets(group)
        topic_requests = {topic: self._client.exists_async(f"/brokers/topics/{topic}") for topic, _ in offsets}
        offset_requests = {
            (topic, partition): self._client.exists_async(f"/consumers/{group}/offsets/{topic}/{partition}")
            for topic, partition in offsets
        }
        topics = {topic: self._wait(request, f"/brokers/topics/{topic}") for topic, request in topic_requests.items()}
        commits = {key: self._wait(request, f"/consumers/{group}/offsets") for key, request in offset_requests.items()}
        return {
            key: offset
            for key, offset in offsets.items()
            if (topic := topics[key[0]]) is None or (commit := commits[key]) is None or commit.mtime >= topic.ctime
        }

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets where the consumers of Kafka 0.8 read them."""
        writes = {
            f"/consumers/{_checked_name(group)}/offsets/{_checked_name(topic)}/{partition}": b"%d" % offset
            for (topic, partition), offset in offsets.items()
        }
        requests = {path: self._client.set_async(path, data) for path, data in writes.items()}
        for path, request in requests.items():
            if self._wait(request, path, NoNodeError) is not None:
                continue
            creation = self._client.create_async(path, writes[path], makepath=True)
            if self._wait(creation, path, NodeExistsError, NoNodeError) is None:
                # Another program has created the znode meanwhile.
                self._wait(self._client.set_async(path, writes[path]), path)

    # -- znodes

    def _read_by_partition(self, parent: str) -> dict[TopicPartition, str]:
        """Return the texts of the znodes `parent`/topic/partition."""
        requests = {topic: self._client.get_children_async(f"{parent}/{topic}") for topic in self._children(parent)}
        keys = {
            f"{parent}/{topic}/{name}": (topic, int(name))
            for topic, request in requests.items()
            for name in self._names(request, f"{parent}/{topic}")
            if _is_number(name)
        }
        return {keys[path]: _text(data) for path, data in self._read_all(keys).items()}

    def _read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of the znodes that exist. All requests are sent at once, to save round trips."""
        requests = {path: self._client.get_async(path) for path in paths}
        responses = {path: self._wait(request, path, NoNodeError) for path, request in requests.items()}
        return {path: response[0] or b"" for path, response in responses.items() if response is not None}

    def _read_json(self, path: str) -> dict[str, Any]:
        """Return a znode's JSON object; an empty one if there is no such znode."""
        if not _is_path(path) or not (data := self._read_all([path]).get(path)):
            return {}
        try:
            content = json.loads(data)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise self._malformed(path, _text(data))
        return content

    def _children(self, path: str) -> list[str]:
        if not _is_path(path):
            return []
        return sorted(self._names(self._client.get_children_async(path), path))

    def _names(self, request: Any, path: str) -> list[str]:
        """Return the names below a znode; none if there is no such znode. Names that no znode can have are left out."""
        names = self._wait(request, path, NoNodeError) or ()
        return [name for name in names if name and "/" not in name and _is_path(f"/{name}")]

    def _exists(self, path: str) -> bool:
        return _is_path(path) and self._wait(self._client.exists_async(path), path) is not None

    def _wait(self, request: Any, path: str, *expected: type[KazooException]) -> Any:
        """Wait for the response to a request; return None if it is one of the `expected` errors."""
        try:
            return request.get(timeout=self.timeout)
        except expected:
            return None
        except self._client.handler.timeout_exception as error:
            raise ZooKeeperError(f"ZooKeeper {self.connect} did not answer within {self.timeout:g} s") from error
        except KazooException as error:
            # For example, NoAuthError becomes "no auth".
            reason = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).lower()
            raise ClusterError(f"ZooKeeper {self.connect}: {path}: {reason}") from error
        except UNREADABLE as error:
            raise ZooKeeperError(
                f"ZooKeeper {self.connect} sent a response about {path} that cannot be read"
            ) from error

    def _malformed(self, path: str, value: object) -> ClusterError:
        return ClusterError(
            f"ZooKeeper {self.connect}: {path} holds {str(value)[:80]!r}, which Kafka does not write there"
        )

    def _unreachable(self, waited: float) -> ZooKeeperError:
        reasons = "; ".join(f"{join_host_port(*server)}: {_failure(*server)}" for server in self._servers)
        error = ZooKeeperError(f"ZooKeeper {self.connect} cannot be reached within {waited:.1f} s: {reasons}")
        error.unknown_host = not _has_address(self._servers)
        return error


def _has_address(servers: Iterable[tuple[str, int]]) -> bool:
    """Return True if at least one of the host names can be resolved."""
    for host, port in servers:
        with contextlib.suppress(OSError, UnicodeError):
            if socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                return True
    return False


def _failure(host: str, port: int) -> str:
    """Return why a server could not be used, by connecting once more for half a second at most."""
    try:
        socket.create_connection((host, port), 0.5).close()
    except socket.gaierror:
        return "the name has no address"
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        return os.strerror(number).lower() if number else "no answer"
    return "it answers, but not as a ZooKeeper that is in service"


def _is_path(path: str) -> bool:
    """Return True if a znode can have this path: some names of groups are not allowed in ZooKeeper."""
    return all(name and name not in (".", "..") for name in path[1:].split("/")) and "\0" not in path


def _is_number(name: str) -> bool:
    return re.fullmatch("[0-9]{1,10}", name) is not None


def _checked_name(text: str) -> str:
    """Return the name of a group or topic. Raise ClusterError if no znode can have it."""
    if "/" in text or not _is_path(f"/{text}"):
        raise ClusterError(f"'{text}' cannot be a name in ZooKeeper: its offsets must be kept in Kafka")
    return text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
