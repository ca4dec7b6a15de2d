"""One broker of an embedded cluster. It keeps its port and its data when it is started again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirrormaker.embedded import layout, metadata
from mirrormaker.embedded.kafka_server import KAFKA, KafkaServer
from mirrormaker.embedded.releases import parse

# Seconds for a broker to answer. It takes four on idle cores; a killed broker first waits for its old session.
_START = 60.0

# Brokers of 0.8 list no brokers in their metadata before the first topic exists, but they log this line.
_STARTED = " started (kafka.server.KafkaServer"

# A broker logs one of these before it exits because ZooKeeper still holds the session of its killed predecessor.
_OLD_SESSION = ("NodeExists", "already registered")


class Broker(KafkaServer):
    """A Kafka broker on 127.0.0.1."""

    def __init__(
        self, number: int, port: int, directory: Path, version: str, settings: layout.Settings, jvm: Sequence[str]
    ) -> None:
        super().__init__(f"broker {number}", KAFKA, directory, version, settings, jvm)
        self.id = number
        self.port = port

    def start(self) -> None:
        """Start the broker (again) and wait until it is part of the cluster."""
        self.launch()
        self.join({self.id})

    def join(self, brokers: set[int]) -> None:
        """Wait until the broker lists these brokers as part of the cluster."""
        self.wait_until(lambda: self.knows(brokers), _START)

    def knows(self, brokers: set[int]) -> bool:
        """Return True if the broker answers and lists these brokers."""
        answer = metadata.ask(self.port)
        if answer is None:
            return False
        if parse(self.version) < (0, 9) and not answer.topics:
            return _STARTED in self.logged()
        return brokers <= answer.brokers

    def _ended_at_start(self) -> None:
        if any(text in self.logged() for text in _OLD_SESSION):
            self.launch()
        else:
            super()._ended_at_start()
