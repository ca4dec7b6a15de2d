"""Which artifacts a Kafka version needs to run on today's Java."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.errors import EmbeddedError

Version = tuple[int, ...]


@dataclass(frozen=True)
class Artifact:
    """One published artifact; `forced` beats the version that others ask for."""

    organisation: str
    name: str
    version: str
    forced: bool = False

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}" + ("!" if self.forced else "")


def parse(version: str) -> Version:
    """The numbers of a version, for comparison."""
    try:
        return tuple(int(number) for number in version.split("."))
    except ValueError:
        raise EmbeddedError(f"{version!r} is not a Kafka version: write it like 4.3.1") from None


def uses_zookeeper(version: str) -> bool:
    """Whether the brokers of this version are run with ZooKeeper."""
    return parse(version) < (4,)


def artifacts(version: str) -> tuple[Artifact, ...]:
    """Server, tools and log binding of a version, with what Java 17 makes it miss."""
    number = parse(version)
    kafka = "org.apache.kafka"
    wanted = [Artifact(kafka, f"kafka_{_scala(number)}", version)]
    if number >= (3,):
        wanted += [Artifact(kafka, "kafka-tools", version), Artifact(kafka, "connect-mirror", version)]
    if number >= (4,):
        wanted.append(Artifact("org.slf4j", "slf4j-simple", "1.7.36"))
    else:
        # Servers below 4 call log4j 1 itself, which reload4j replaces class by class.
        wanted.append(Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"))
    if (0, 10) <= number < (1,):
        wanted.append(Artifact("javax.xml.bind", "jaxb-api", "2.3.1"))  # left the JDK with Java 11
    if (2,) <= number < (2, 4):
        # ZooKeeper 3.4.13 takes an address apart by its text, which Java 14 changed.
        wanted.append(Artifact("org.apache.zookeeper", "zookeeper", "3.4.10", forced=True))
    return tuple(wanted)


def _scala(number: Version) -> str:
    if number >= (2, 5):
        return "2.13"
    return "2.11" if number >= (0, 9) else "2.10"
