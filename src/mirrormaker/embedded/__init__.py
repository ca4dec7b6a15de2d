"""A real Apache Kafka on this machine, for the demo, the tests and the bench."""

from mirrormaker.embedded.broker import Broker
from mirrormaker.embedded.cluster import Cluster
from mirrormaker.embedded.errors import EmbeddedError
from mirrormaker.embedded.fetch import jars
from mirrormaker.embedded.jvm import java
from mirrormaker.embedded.tools import KafkaTools

__all__ = ["Broker", "Cluster", "EmbeddedError", "KafkaTools", "jars", "java"]
