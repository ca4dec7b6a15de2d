"""Start the Java MirrorMaker, MirrorMaker 2, or ours with their defaults, to compare them on the same job."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from mirrormaker.embedded import KafkaTools, child_processes
from mirrormaker.embedded.kafka_tools import command

MM1_VERSION = "3.9.2"  # the last Kafka with the Java MirrorMaker
MM2_VERSION = "4.3.1"

_STOP = 15.0  # seconds for a mirror to stop before it is killed

# The JVM options of Kafka's start scripts: kafka-mirror-maker.sh of 3.9 and connect-mirror-maker.sh of 4.3.
_PERFORMANCE = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
MM1_HEAP = ("-Xmx256M",)
MM2_HEAP = ("-Xms256M", "-Xmx2G")


@dataclass(frozen=True)
class Job:
    """One topic to copy from one cluster to the other."""

    topic: str
    source: str  # bootstrap servers
    target: str
    directory: Path  # for property files and compiled Java
    name: str  # the consumer group, and MirrorMaker 2's alias of the source; positions are kept under it
    source_codec: str = "none"
    target_codec: str | None = None  # the value of compression.type, if the mirror gets one
    security: Mapping[str, str] = field(default_factory=dict)  # settings of both clients for TLS
    streams: int = 2  # or tasks of MirrorMaker 2

    @property
    def classes(self) -> Path:
        """The directory for Java classes that are compiled for this job."""
        return self.directory / f"{self.name}-classes"

    @property
    def consumer(self) -> dict[str, str]:
        """The settings of the consumer."""
        return {
            "bootstrap.servers": self.source,
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            **self.security,
        }

    @property
    def producer(self) -> dict[str, str]:
        """The settings of the producer."""
        return {"bootstrap.servers": self.target, **self.security} | self.compression

    @property
    def compression(self) -> dict[str, str]:
        """The producer's setting for compression, if there is one."""
        return {"compression.type": self.target_codec} if self.target_codec else {}

    def write_properties(self, kind: str, settings: Mapping[str, str]) -> str:
        """Write a property file and return its path."""
        file = self.directory / f"{self.name}-{kind}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(file)


def start_ours(
    job: Job,
    log: IO[bytes],
    *options: str,
    producer: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `mirrormaker run`. `producer` are further settings."""
    line = [str(Path(sysconfig.get_path("scripts")) / "mirrormaker"), "run"]
    line += ["--consumer.config", job.write_properties("consumer", job.consumer), "--whitelist", job.topic]
    settings = job.producer | dict(producer or {})
    line += ["--producer.config", job.write_properties("producer", settings), "--num.streams", str(job.streams)]
    return child_processes.spawn([*line, *options], stdout=log, stderr=log, cwd=job.directory, env=env)


def start_mm1(
    job: Job,
    log: IO[bytes],
    *options: str,
    consumer: Mapping[str, str] | None = None,
    producer: Mapping[str, str] | None = None,
    heap: Sequence[str] = MM1_HEAP,
    classes: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start the Java MirrorMaker. `consumer` and `producer` are further settings, `classes` a further class path."""
    line = command(
        MM1_VERSION,
        "kafka.tools.MirrorMaker",
        *("--consumer.config", job.write_properties("consumer", job.consumer | dict(consumer or {}))),
        *("--producer.config", job.write_properties("producer", job.producer | dict(producer or {}))),
        *("--include", job.topic, "--num.streams", str(job.streams), *options),
        jvm=[*heap, *_PERFORMANCE],
        log_level="WARN",
    )
    if classes is not None:
        line[line.index("-cp") + 1] += f"{os.pathsep}{classes}"
    return child_processes.spawn(line, stdout=log, stderr=log)


def start_mm2(job: Job, log: IO[bytes], settings: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start MirrorMaker 2 without heartbeats, checkpoints and syncs of offsets and configs."""
    # Positions are kept under the source's alias: a new alias for each job makes MirrorMaker 2 start at the beginning.
    source = job.name
    defaults = {
        "clusters": f"{source},target",
        f"{source}.bootstrap.servers": job.source,
        "target.bootstrap.servers": job.target,
        f"{source}->target.enabled": "true",
        f"{source}->target.topics": job.topic,
        f"target->{source}.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "tasks.max": str(job.streams),
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",  # it does not start if any other setting of offset syncs is given
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "refresh.topics.interval.seconds": "5",
        "refresh.groups.enabled": "false",
        "replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        **{f"target.producer.{key}": value for key, value in job.compression.items()},
    }
    return KafkaTools(MM2_VERSION).start(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        job.write_properties("mm2", {**defaults, **(settings or {})}),
        stdout=log,
        stderr=log,
        jvm=[*MM2_HEAP, *_PERFORMANCE],
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a mirror to stop, as an administrator does; then kill the rest of its session."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    child_processes.end(process, signal.SIGKILL)
