"""A whole Kafka on this machine."""

from __future__ import annotations

import atexit
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from mirrormaker.embedded import child_processes, layout, metadata
from mirrormaker.embedded.broker import Broker
from mirrormaker.embedded.java_runtime import QUICK
from mirrormaker.embedded.kafka_tools import KafkaTools, command
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.releases import parse, uses_zookeeper
from mirrormaker.embedded.server_process import Server
from mirrormaker.errors import EmbeddedError

NEWEST = "4.3.1"

_LEADERS = 30.0
"""Seconds for every partition of a new topic to have a leader; usually a fraction of one."""


class Cluster:
    """Kafka brokers with the controller or ZooKeeper they need, from `start` to `stop` or inside `with`."""

    def __init__(
        self,
        version: str = NEWEST,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        name: str = "kafka",
        directory: Path | str | None = None,
        heap: str = "512m",
        quick: bool = True,
        detour: bool = False,
        chroot: str = "",
        listeners: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
    ) -> None:
        """Describe a cluster; nothing runs before `start`.

        `settings` go to every server on top of ours. Without a `directory` the data is temporary. `quick` starts
        sooner and computes slower: turn it off to measure. With `detour` each broker has a second listener, whose
        clients are told to come through the ports in `detours`, where a proxy is to listen. `chroot` is where in
        ZooKeeper the cluster lives, for versions that have one. `listeners` are further ones at localhost, each with its
        security protocol; what it needs (`listener.name.<name>.…`) is for `settings`.
        `java` are further options of the brokers' Java.
        """
        if not 1 <= brokers <= 3:
            raise EmbeddedError(f"a cluster has 1 to 3 brokers, not {brokers}")
        parse(version)
        self.version = version
        self.name = name
        self.brokers: list[Broker] = []
        self.detours: dict[int, int] = {}  # the port that clients are told, and the one that the broker listens on
        self.zookeeper: str | None = None
        self._count, self._detour, self._chroot = brokers, detour, chroot
        self._listeners = dict(listeners or {})
        self._ports: dict[str, list[int]] = {}  # of the listeners, broker by broker
        self._settings = dict(settings or {})
        self._kept = Path(directory) if directory is not None else None
        self._directory: Path | None = None
        self._jvm = [f"-Xmx{heap}", *(QUICK if quick else ()), *java]
        self._others: list[Server] = []  # controller or ZooKeeper
        self._owner = os.getpid()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as clients take them."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def address(self, listener: str) -> str:
        """The brokers' addresses at one of `listeners`."""
        return ",".join(f"localhost:{port}" for port in self._ports[listener])

    @property
    def directory(self) -> Path:
        """Where data, logs and settings of the servers are."""
        if self._directory is None:
            raise EmbeddedError(f"cluster {self.name} does not run")
        return self._directory

    def start(self) -> Cluster:
        """Start all servers and wait until every broker knows all of them."""
        if self._directory is not None:
            return self
        self._make_directory()
        atexit.register(self._stop_at_exit)
        try:
            if uses_zookeeper(self.version):
                self._prepare_zookeeper()
            else:
                self._prepare_kraft()
            for server in [*self._others, *self.brokers]:
                server.launch()
            everyone = {broker.id for broker in self.brokers}
            for broker in self.brokers:
                broker.join(everyone)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers and remove the temporary directory."""
        # Brokers together, so that they take the time of one; then what they need to leave in order.
        for broker in self.brokers:
            broker.ask_to_stop()
        for server in [*self.brokers, *self._others]:
            server.stop()
        self.brokers, self._others, self.zookeeper, self.detours = [], [], None, {}
        self._ports = {}
        if self._directory is not None and self._kept is None:
            child_processes.remove_directory(self._directory)
        self._directory = None
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every broker that runs knows a leader of each partition."""
        if parse(self.version) < (0, 10, 2):
            self._create_through_zookeeper(name, partitions, replication, config or {})
        else:
            self._create_through_broker(name, partitions, replication, config or {})
        deadline = time.monotonic() + _LEADERS
        while not all(_leads(broker, name, partitions) for broker in self._running()):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"topic {name} has partitions without a leader after {_LEADERS:g} s")
            time.sleep(0.02)

    def run_tool(
        self,
        main_class: str,
        *args: str,
        stdin: bytes = b"",
        timeout: float = 60,
        jvm: Sequence[str] = (),
        version: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's Java tools to its end."""
        return KafkaTools(version or self.version).run(main_class, *args, stdin=stdin, timeout=timeout, jvm=jvm)

    def start_tool(
        self,
        main_class: str,
        *args: str,
        stdin: child_processes.Stream = subprocess.DEVNULL,
        stdout: child_processes.Stream = subprocess.DEVNULL,
        stderr: child_processes.Stream = subprocess.DEVNULL,
        jvm: Sequence[str] = (),
        version: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start one of Kafka's Java tools, also of another Kafka version; it is killed when this process is gone."""
        tools = KafkaTools(version or self.version)
        return tools.start(main_class, *args, stdin=stdin, stdout=stdout, stderr=stderr, jvm=jvm)

    def _running(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.pid is not None and not broker.paused]

    def _make_directory(self) -> None:
        if self._kept is None:
            self._directory = child_processes.new_directory(self.name)
        else:
            self._kept.mkdir(parents=True, exist_ok=True)
            self._directory = self._kept.resolve()

    def _prepare_zookeeper(self) -> None:
        port = free_port()
        self.zookeeper = f"127.0.0.1:{port}{self._chroot}"
        file = layout.write(self.directory / "zookeeper.properties", layout.zookeeper(self.directory, port))
        self._others = [self._server("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)]
        common = layout.broker(self.version, self._count)
        for number in range(1, self._count + 1):
            port = free_port()
            own = layout.zookeeper_broker(self.version, self.directory, number, port, self.zookeeper)
            self._add_broker(number, port, common | own)

    def _prepare_kraft(self) -> None:
        cluster = layout.identifier()
        common = layout.broker(self.version, self._count)
        controller = free_port()
        if self._count > 1:
            # The controller is a process of its own, so that no broker's death takes the quorum along.
            settings = layout.controller(self.directory, controller) | self._settings
            file = layout.write(self.directory / "controller.properties", settings)
            self._others = [self._server("controller", "kafka.Kafka", file)]
            layout.format_storage(self.version, self.directory / "controller", cluster, layout.CONTROLLER)
        for number in range(1, self._count + 1):
            port = free_port()
            if self._count > 1:
                own = layout.kraft_broker(self.directory, number, port, controller)
            else:
                own = layout.combined(self.directory, port, controller)
            self._add_broker(number, port, common | own)
            layout.format_storage(self.version, self.directory / f"broker-{number}", cluster, number)

    def _add_broker(self, number: int, port: int, settings: dict[str, str]) -> None:
        if self._detour:
            told, listener = free_port(), free_port()
            self.detours[told] = listener
            settings = layout.detour(settings, told, listener)
        for name, protocol in self._listeners.items():
            at = free_port()
            self._ports.setdefault(name, []).append(at)
            settings = layout.listener(settings, name, protocol, at, f"localhost:{at}")
        file = layout.write(self.directory / f"broker-{number}.properties", settings | self._settings)
        line = command(self.version, "kafka.Kafka", str(file), jvm=self._jvm)
        self.brokers.append(Broker(parse(self.version), number, port, line, self.directory))

    def _server(self, name: str, main_class: str, file: Path) -> Server:
        line = command(self.version, main_class, str(file), jvm=["-Xmx256m", *QUICK])
        return Server(name, line, self.directory)

    def _create_through_broker(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        from kafka import KafkaAdminClient  # slow to import, and not every user of a cluster needs it

        admin = KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{broker.port}" for broker in self._running()])
        try:
            wanted = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(config)}
            admin.create_topics({name: wanted})
        finally:
            admin.close()

    def _create_through_zookeeper(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str]
    ) -> None:
        counts = ["--partitions", str(partitions), "--replication-factor", str(replication)]
        details = [part for key, value in config.items() for part in ("--config", f"{key}={value}")]
        where = ["--zookeeper", str(self.zookeeper), "--topic", name]
        done = self.run_tool("kafka.admin.TopicCommand", "--create", *where, *counts, *details)
        if done.returncode or "Created topic" not in done.stdout:
            raise EmbeddedError(f"topic {name} could not be created: {done.stdout}{done.stderr}")

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:  # a fork inherits the exit handlers, but not the cluster
            self.stop()


def _leads(broker: Broker, topic: str, partitions: int) -> bool:
    answer = metadata.ask(broker.port)
    known = answer.topics.get(topic, {}) if answer is not None else {}
    return len(known) == partitions and all(partition.leader >= 0 for partition in known.values())
