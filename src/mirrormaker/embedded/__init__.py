"""Real Kafka and Spark clusters on this machine, for the demo, the tests, the benchmarks and the fault cases."""

from mirrormaker.embedded.broker import Broker
from mirrormaker.embedded.downloads import jars
from mirrormaker.embedded.java_runtime import java
from mirrormaker.embedded.kafka_cluster import Cluster
from mirrormaker.embedded.kafka_tools import KafkaTools
from mirrormaker.errors import EmbeddedError

__all__ = ["Broker", "Cluster", "EmbeddedError", "KafkaTools", "jars", "java"]
