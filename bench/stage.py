"""Two clusters, and an empty target for every mirror."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from kafka import KafkaAdminClient

from bench import raw
from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.embedded.certificates import Authority

PARTITIONS = 8
"""Of every topic, unless a workload says otherwise for its target."""

_PASSWORD = "test1234"

_GONE = 20.0
"""Seconds for deleted topics to leave the metadata; usually a tenth of one."""


class Stage:
    """A source and a target of one broker each, run as a production broker is: all compilers, a heap of 1 GB."""

    def __init__(self) -> None:
        # Deleted data goes at once: left for Kafka's minute, its pages would be written to disk during later runs.
        settings = {"auto.create.topics.enable": "true", "log.segment.delete.delay.ms": "1000"}
        self.directory = child_processes.new_directory("bench")  # for property files and the mirrors' own output
        self._authority = Authority(self.directory)
        settings |= self._authority.listener("TLS", self._authority.issue("broker"))
        tls = {"TLS": "SSL"}
        self.source = Cluster(name="bench-source", settings=settings, heap="1g", quick=False, listeners=tls)
        self.target = Cluster(name="bench-target", settings=settings, heap="1g", quick=False, listeners=tls)

    def __enter__(self) -> Stage:
        self.source.start()
        self.target.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.target.stop()
        self.source.stop()
        child_processes.remove_directory(self.directory)

    @property
    def brokers(self) -> list[int]:
        """The process ids of both brokers."""
        return [broker.pid for cluster in (self.source, self.target) for broker in cluster.brokers if broker.pid]

    def security(self) -> dict[str, str]:
        """Key stores as Java's tools have them, for the clusters' TLS listeners."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self._authority.truststore(_PASSWORD)),
            "ssl.truststore.password": _PASSWORD,
            "ssl.keystore.location": str(self._authority.issue("mirror").jks(_PASSWORD, _PASSWORD)),
            "ssl.keystore.password": _PASSWORD,
            "ssl.key.password": _PASSWORD,
        }

    def empty_target(self, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> None:
        """Leave nothing on the target but this topic, empty."""
        clear(self.target)
        create(self.target, topic, partitions, config)


class Ends:
    """How many records a topic that never lost any holds."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
        self._line = raw.Line(cluster.brokers[0].port)
        self._request = raw.list_end_offsets(topic, partitions)

    def __call__(self) -> int:
        return sum(max(0, end) for end in self.of_partitions())

    def of_partitions(self) -> list[int]:
        """-1 for a partition that the broker does not lead (yet)."""
        return raw.end_offsets(self._line.ask(self._request))

    def close(self) -> None:
        self._line.close()


def create(cluster: Cluster, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until its partitions can be used: the broker names their leader a moment before."""
    cluster.create_topic(topic, partitions, config=config)
    ends = Ends(cluster, topic, partitions)
    while -1 in ends.of_partitions():
        time.sleep(0.02)
    ends.close()


def clear(cluster: Cluster, keep: frozenset[str] = frozenset()) -> None:
    """Delete all topics but Kafka's own, and wait until they are gone."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        deadline = time.monotonic() + _GONE
        names = _ours(admin) - keep
        if names:
            admin.delete_topics(sorted(names))
        while _ours(admin) & names:
            if time.monotonic() > deadline:
                raise raw.BrokerError(f"topics are still there {_GONE:g} s after their deletion: {sorted(names)}")
            time.sleep(0.05)
    finally:
        admin.close()


def _ours(admin: KafkaAdminClient) -> set[str]:
    return {name for name in admin.list_topics() if not name.startswith("__")}
