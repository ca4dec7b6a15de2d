"""The source and the target cluster of the benchmarks."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.topics import create_topic, delete_all_topics

from bench.workloads import PARTITIONS
from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.embedded.certificates import Authority

_PASSWORD = "test1234"


class BenchClusters:
    """A source and a target of one broker each. The brokers run as in production: all compilers, a heap of 1 GB."""

    def __init__(self) -> None:
        # After Kafka's default of a minute, pages of deleted logs would be written to disk during later runs.
        settings = {"auto.create.topics.enable": "true", "log.segment.delete.delay.ms": "1000"}
        self.directory = child_processes.new_directory("bench")  # for property files and the mirrors' output
        self._authority = Authority(self.directory)
        settings |= self._authority.listener("TLS", self._authority.issue("broker"))
        tls = {"TLS": "SSL"}
        self.source = Cluster(name="bench-source", settings=settings, heap="1g", quick=False, listeners=tls)
        self.target = Cluster(name="bench-target", settings=settings, heap="1g", quick=False, listeners=tls)

    def __enter__(self) -> BenchClusters:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.target.stop()
        self.source.stop()
        child_processes.remove_directory(self.directory)

    @property
    def brokers(self) -> list[int]:
        """The process ids of both brokers."""
        return [broker.pid for cluster in (self.source, self.target) for broker in cluster.brokers if broker.pid]

    def security(self) -> dict[str, str]:
        """Return a client's settings for the TLS listeners, with JKS stores."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self._authority.truststore(_PASSWORD)),
            "ssl.truststore.password": _PASSWORD,
            "ssl.keystore.location": str(self._authority.issue("mirror").jks(_PASSWORD, _PASSWORD)),
            "ssl.keystore.password": _PASSWORD,
            "ssl.key.password": _PASSWORD,
        }

    def empty_target(self, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> None:
        """Delete all topics of the target and create this one."""
        delete_all_topics(self.target)
        create_topic(self.target, topic, partitions, config)
