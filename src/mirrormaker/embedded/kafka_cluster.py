"""A Kafka cluster on this machine."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mirrormaker.embedded import child_processes, layout, metadata
from mirrormaker.embedded.broker import Broker
from mirrormaker.embedded.java_runtime import QUICK
from mirrormaker.embedded.kafka_server import KAFKA, ZOOKEEPER, KafkaServer
from mirrormaker.embedded.kafka_tools import KafkaTools
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.releases import parse, uses_zookeeper
from mirrormaker.errors import EmbeddedError

NEWEST = "4.3.1"

_LEADERS = 30.0  # seconds for every partition of a new topic to have a leader; a fraction of one is usual


class Cluster:
    """Kafka brokers and their controller or ZooKeeper. They run from `start` to `stop`, or inside `with`."""

    def __init__(
        self,
        version: str = NEWEST,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        name: str = "kafka",
        directory: Path | str | None = None,
        heap: str = "512m",
        quick: bool = True,
        proxied: bool = False,
        chroot: str = "",
        listeners: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
    ) -> None:
        """Describe a cluster. Nothing runs before `start`.

        `settings` override the settings of every server. Without a `directory` the data is temporary. `quick` makes
        brokers start sooner and run slower: turn it off to measure. `proxied` gives each broker a second listener,
        which advertises a port on which a proxy must listen (`proxy_routes`). `chroot` is the cluster's path in
        ZooKeeper, for versions that use it. `listeners` maps the name of each further listener at localhost to its
        security protocol; its other settings (`listener.name.<name>.…`) belong into `settings`. `java` holds further
        options of the brokers' JVM.
        """
        if not 1 <= brokers <= 3:
            raise EmbeddedError(f"a cluster has 1 to 3 brokers, not {brokers}")
        parse(version)
        self.version = version
        self.name = name
        self.brokers: list[Broker] = []
        self.proxy_routes: dict[int, int] = {}  # the advertised port -> the port of the broker's second listener
        self.zookeeper: str | None = None
        self.support: list[KafkaServer] = []  # the controller or ZooKeeper
        self._count, self._proxied, self._chroot = brokers, proxied, chroot
        self._listeners = dict(listeners or {})
        self._listener_ports: dict[str, list[int]] = {}  # the name of a listener -> its port on each broker
        self._settings = dict(settings or {})
        self._own_directory = Path(directory) if directory is not None else None
        self._directory: Path | None = None
        self._jvm = [f"-Xmx{heap}", *(QUICK if quick else ()), *java]
        self._owner = os.getpid()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as the value of bootstrap.servers."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def address(self, listener: str) -> str:
        """Return the brokers' addresses at one of the further listeners."""
        return ",".join(f"localhost:{port}" for port in self._listener_ports[listener])

    @property
    def directory(self) -> Path:
        """The directory with the data, logs and settings of the servers."""
        if self._directory is None:
            raise EmbeddedError(f"the cluster {self.name} does not run")
        return self._directory

    def start(self) -> Cluster:
        """Start all servers and wait until every broker knows every other broker."""
        if self._directory is not None:
            return self
        self._make_directory()
        atexit.register(self._stop_at_exit)
        try:
            if uses_zookeeper(self.version):
                self._prepare_zookeeper()
            else:
                self._prepare_kraft()
            for server in [*self.support, *self.brokers]:
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
        # The brokers stop at the same time, and before the controller or ZooKeeper: they need it for an orderly stop.
        for broker in self.brokers:
            broker.ask_to_stop()
        for server in [*self.brokers, *self.support]:
            server.stop()
        self.brokers, self.support, self.zookeeper, self.proxy_routes = [], [], None, {}
        self._listener_ports = {}
        if self._directory is not None and self._own_directory is None:
            child_processes.remove_directory(self._directory)
        self._directory = None
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every running broker knows the leader of each partition."""
        if parse(self.version) < (0, 10, 2):
            self._create_through_zookeeper(name, partitions, replication, config or {})
        else:
            self._create_through_broker(name, partitions, replication, config or {})
        deadline = time.monotonic() + _LEADERS
        while not all(_has_leaders(broker, name, partitions) for broker in self._running()):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"the topic {name} still has partitions without a leader after {_LEADERS:g} s")
            time.sleep(0.02)

    @property
    def tools(self) -> KafkaTools:
        """Kafka's Java tools of this cluster's version."""
        return KafkaTools(self.version)

    def _running(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.pid is not None and not broker.paused]

    def _make_directory(self) -> None:
        if self._own_directory is None:
            self._directory = child_processes.new_directory(self.name)
        else:
            self._own_directory.mkdir(parents=True, exist_ok=True)
            self._directory = self._own_directory.resolve()

    def _prepare_zookeeper(self) -> None:
        port = free_port()
        self.zookeeper = f"127.0.0.1:{port}{self._chroot}"
        settings = layout.zookeeper(self.directory, port)
        self.support = [KafkaServer("zookeeper", ZOOKEEPER, self.directory, self.version, settings)]
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
            # The controller is a process of its own, so that the death of a broker does not end the quorum.
            settings = layout.controller(self.directory, controller) | self._settings
            self.support = [KafkaServer("controller", KAFKA, self.directory, self.version, settings)]
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
        if self._proxied:
            advertised, listener = free_port(), free_port()
            self.proxy_routes[advertised] = listener
            settings = layout.proxied_listener(settings, advertised, listener)
        for name, protocol in self._listeners.items():
            listener_port = free_port()
            self._listener_ports.setdefault(name, []).append(listener_port)
            settings = layout.listener(settings, name, protocol, listener_port, f"localhost:{listener_port}")
        self.brokers.append(Broker(number, port, self.directory, self.version, settings | self._settings, self._jvm))

    def _create_through_broker(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        from kafka import KafkaAdminClient  # slow to import, and not needed by every user of a cluster

        admin = KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{broker.port}" for broker in self._running()])
        try:
            topic = {"num_partitions": partitions, "replication_factor": replication, "configs": dict(config)}
            admin.create_topics({name: topic})
        finally:
            admin.close()

    def _create_through_zookeeper(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str]
    ) -> None:
        counts = ["--partitions", str(partitions), "--replication-factor", str(replication)]
        configs = [part for key, value in config.items() for part in ("--config", f"{key}={value}")]
        target = ["--zookeeper", str(self.zookeeper), "--topic", name]
        done = self.tools.run("kafka.admin.TopicCommand", "--create", *target, *counts, *configs)
        if done.returncode or "Created topic" not in done.stdout:
            raise EmbeddedError(f"the topic {name} could not be created: {done.stdout}{done.stderr}")

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:  # a fork inherits the exit handler, but must not stop the cluster
            self.stop()


def _has_leaders(broker: Broker, topic: str, partitions: int) -> bool:
    answer = metadata.ask(broker.port)
    known = answer.topics.get(topic, {}) if answer is not None else {}
    return len(known) == partitions and all(partition.leader >= 0 for partition in known.values())
