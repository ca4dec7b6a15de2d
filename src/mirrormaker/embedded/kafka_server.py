"""A Java server of a Kafka release, described by a settings file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirrormaker.embedded import layout
from mirrormaker.embedded.java_runtime import QUICK
from mirrormaker.embedded.kafka_tools import command
from mirrormaker.embedded.server_process import Server

KAFKA = "kafka.Kafka"
ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class KafkaServer(Server):
    """A broker, a controller or ZooKeeper. It may be started again with another Kafka version or other settings."""

    def __init__(
        self,
        name: str,
        main_class: str,
        directory: Path,
        version: str,
        settings: layout.Settings,
        jvm: Sequence[str] = ("-Xmx256m", *QUICK),
    ) -> None:
        super().__init__(name, (), directory)
        self._main_class, self._jvm = main_class, jvm
        self.configure(version, settings)

    def configure(self, version: str, settings: layout.Settings) -> None:
        """Write the settings file, and choose the Kafka version of the next start."""
        self.version, self.settings = version, settings
        file = layout.write(self.log.with_suffix(".properties"), settings)
        self.command = command(version, self._main_class, str(file), jvm=self._jvm)
