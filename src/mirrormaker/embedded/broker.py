"""One broker: the same port and the same data from start to start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mirrormaker.embedded import metadata
from mirrormaker.embedded.releases import Version
from mirrormaker.embedded.server_process import Server

_START = 60.0
"""Seconds for a broker to answer. Four on idle cores; a killed one first waits for its old session to run out."""

# 0.8 names no brokers before the first topic, but it logs this.
_STARTED = " started (kafka.server.KafkaServer"

# What a broker says before it ends because ZooKeeper still holds its killed predecessor's session.
_PREDECESSOR = ("NodeExists", "already registered")


class Broker(Server):
    """A Kafka broker on 127.0.0.1."""

    def __init__(self, version: Version, number: int, port: int, command: Sequence[str], directory: Path) -> None:
        super().__init__(f"broker {number}", command, directory)
        self.id = number
        self.port = port
        self._version = version

    def start(self) -> None:
        """Start (again) and wait until the broker is part of the cluster."""
        self.launch()
        self.join({self.id})

    def join(self, brokers: set[int]) -> None:
        """Wait until the broker counts these brokers as part of the cluster."""
        self.wait_until(lambda: self.knows(brokers), _START)

    def knows(self, brokers: set[int]) -> bool:
        """Whether the broker answers and counts these brokers in."""
        answer = metadata.ask(self.port)
        if answer is None:
            return False
        if self._version < (0, 9) and not answer.topics:
            return _STARTED in self.logged()
        return brokers <= answer.brokers

    def _died(self) -> None:
        if any(words in self.logged() for words in _PREDECESSOR):
            self.launch()
        else:
            super()._died()
