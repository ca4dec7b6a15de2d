"""The artifacts that a Kafka version and Hadoop's YARN need to run on a current Java."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.errors import EmbeddedError

Version = tuple[int, ...]


@dataclass(frozen=True)
class Artifact:
    """One published artifact. If it is `forced`, its version wins over the versions that other artifacts depend on."""

    organisation: str
    name: str
    version: str
    forced: bool = False

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}" + ("!" if self.forced else "")


HADOOP_VERSION = "3.5.0"
# Without the last one a ResourceManager does not start. hadoop-common brings the log binding.
HADOOP = tuple(
    Artifact("org.apache.hadoop", f"hadoop-{name}", HADOOP_VERSION)
    for name in ("yarn-server-resourcemanager", "yarn-server-nodemanager", "common", "yarn-server-timelineservice")
)


def parse(version: str) -> Version:
    """Return the numbers of a version, for comparisons."""
    try:
        return tuple(int(number) for number in version.split("."))
    except ValueError:
        raise EmbeddedError(f"{version!r} is not a Kafka version: write it like 4.3.1") from None


def uses_zookeeper(version: str) -> bool:
    """Return True if embedded brokers of this version use ZooKeeper."""
    return parse(version) < (4,)


def artifacts(version: str) -> tuple[Artifact, ...]:
    """Return the artifacts of a version: server, tools, a log binding, and libraries that Java 17 no longer has."""
    number = parse(version)
    kafka = "org.apache.kafka"
    wanted = [Artifact(kafka, f"kafka_{_scala(number)}", version)]
    if number >= (3,):
        wanted += [Artifact(kafka, "kafka-tools", version), Artifact(kafka, "connect-mirror", version)]
    if number >= (4,):
        wanted.append(Artifact("org.slf4j", "slf4j-simple", "1.7.36"))
    else:
        # Servers before 4 use the classes of log4j 1, which reload4j replaces.
        wanted.append(Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"))
    if (0, 10) <= number < (1,):
        wanted.append(Artifact("javax.xml.bind", "jaxb-api", "2.3.1"))  # part of the JDK before Java 11
    if (2,) <= number < (2, 4):
        # ZooKeeper 3.4.13 parses the text form of an address, which Java 14 changed.
        wanted.append(Artifact("org.apache.zookeeper", "zookeeper", "3.4.10", forced=True))
    return tuple(wanted)


def _scala(number: Version) -> str:
    if number >= (2, 5):
        return "2.13"
    return "2.11" if number >= (0, 9) else "2.10"
