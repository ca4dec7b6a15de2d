"""The mirrors that are compared, and how each is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench import ROOT
from bench.stage import Stage
from mirrormaker.embedded import KafkaTools, child_processes, jars, java
from mirrormaker.embedded.kafka_tools import command

STREAMS = "2"

_MM1_VERSION = "3.9.2"
_HANDLER = ROOT / "bench" / "UpperCase.java"

_PATIENCE = 15.0
"""Seconds for a mirror to stop in order before it is killed."""

# What Kafka's own start scripts give the JVM: kafka-mirror-maker.sh and connect-mirror-maker.sh of 3.9 and 4.3.
_PERFORMANCE = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
_MM1_HEAP = ("-Xmx256M",)
_MM2_HEAP = ("-Xms256M", "-Xmx2G")

# Large requests both ways. Five under way keep their order, since the producer is made idempotent.
_LARGE_FETCHES = {
    "fetch.min.bytes": "100000",
    "fetch.max.wait.ms": "100",
    "max.partition.fetch.bytes": "8388608",
    "max.poll.records": "10000",
    "receive.buffer.bytes": "1048576",
}
_LARGE_BATCHES = {
    "batch.size": "1000000",
    "linger.ms": "50",
    "buffer.memory": "134217728",
    "max.request.size": "8388608",
    "send.buffer.bytes": "1048576",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
}


@dataclass(frozen=True)
class Job:
    """One copy: what, from where, to where, and under a name that nobody has used before."""

    topic: str
    codec: str
    """Of the source's batches."""
    target_codec: str | None
    """What the mirror must compress with, if it is told."""
    source: str
    target: str
    directory: Path
    name: str
    security: Mapping[str, str] = field(default_factory=dict)
    """What a client's file needs for TLS, if it is to be used."""

    @classmethod
    def on(
        cls, stage: Stage, topic: str, codec: str = "none", target_codec: str | None = None, *, tls: bool = False
    ) -> Job:
        name = f"bench{uuid.uuid4().hex[:8]}"
        addresses = (stage.source.bootstrap, stage.target.bootstrap)
        if tls:
            addresses = (stage.source.address("TLS"), stage.target.address("TLS"))
        return cls(topic, codec, target_codec, *addresses, stage.directory, name, stage.security() if tls else {})

    @property
    def classes(self) -> Path:
        """Where compiled Java is put for this copy."""
        return self.directory / f"{self.name}-classes"

    def properties(self, kind: str, settings: Mapping[str, str]) -> str:
        """Write a property file and return its path."""
        file = self.directory / f"{self.name}-{kind}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(file)


@dataclass(frozen=True)
class Tool:
    """A mirror to measure."""

    name: str
    title: str
    start: Callable[[Job, IO[bytes]], subprocess.Popen[bytes]]
    prepare: Callable[[Job], None] = lambda job: None
    """Done before the clock starts."""
    like: str = ""
    """Whoever chooses that tool chooses this one too."""


class NotHere(Exception):
    """This machine lacks what a mirror needs."""


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the mirror to stop, as an administrator would; then kill what is left of its session."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    child_processes.end(process, signal.SIGKILL)


def _ours(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _start_ours(job, log)


def _ours_with_records(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _start_ours(job, log, "--message.handler", "bench.handlers:upper_case")


def _ours_with_tables(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _start_ours(job, log, "--message.handler", "bench.handlers:upper_case_table")


def _start_ours(job: Job, log: IO[bytes], *handler: str) -> subprocess.Popen[bytes]:
    line = [str(Path(sysconfig.get_path("scripts")) / "mirrormaker"), "run"]
    line += ["--consumer.config", job.properties("consumer", _source(job)), "--whitelist", job.topic]
    line += ["--producer.config", job.properties("producer", _target(job)), "--num.streams", STREAMS]
    # Spark's workers look for the handler there too.
    env = os.environ | {"PYTHONPATH": str(ROOT)} if handler else None
    return child_processes.spawn([*line, *handler], stdout=log, stderr=log, cwd=job.directory, env=env)


def _mm1(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _start_mm1(job, log, _source(job), _target(job), _MM1_HEAP)


def _mm1_tuned(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    # 256 MB of heap are too little for these buffers.
    return _start_mm1(job, log, _source(job) | _LARGE_FETCHES, _target(job) | _large_batches(job), _MM2_HEAP)


def _mm1_with_handler(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _start_mm1(job, log, _source(job), _target(job), _MM1_HEAP, "--message.handler", _HANDLER.stem)


def _start_mm1(
    job: Job,
    log: IO[bytes],
    consumer: Mapping[str, str],
    producer: Mapping[str, str],
    heap: Sequence[str],
    *handler: str,
) -> subprocess.Popen[bytes]:
    line = command(
        _MM1_VERSION,
        "kafka.tools.MirrorMaker",
        *("--consumer.config", job.properties("consumer", consumer)),
        *("--producer.config", job.properties("producer", producer)),
        *("--include", job.topic, "--num.streams", STREAMS, *handler),
        jvm=[*heap, *_PERFORMANCE],
        log_level="WARN",
    )
    if handler:
        line[line.index("-cp") + 1] += f"{os.pathsep}{job.classes}"
    return child_processes.spawn(line, stdout=log, stderr=log)


def _compile_handler(job: Job) -> None:
    """Not with javac, which a Java runtime lacks: many have its module all the same."""
    path = os.pathsep.join(str(jar) for jar in sorted(jars(_MM1_VERSION).glob("*.jar")))
    compiler = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    done = subprocess.run(
        [*compiler, "-nowarn", "-cp", path, "-d", str(job.classes), str(_HANDLER)], capture_output=True, text=True
    )
    if done.returncode:
        raise NotHere(f"{_HANDLER.name} does not compile: {' '.join((done.stdout + done.stderr).split())}")


def _mm2(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return start_mm2(job, log, {})


def _mm2_tuned(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    consumer = {f"{job.name}.consumer.{key}": value for key, value in _LARGE_FETCHES.items()}
    return start_mm2(
        job, log, consumer | {f"target.producer.{key}": value for key, value in _large_batches(job).items()}
    )


def start_mm2(job: Job, log: IO[bytes], tuning: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """MirrorMaker 2 with these settings on top of those that every copy needs."""
    # Its positions are kept under the source's alias: a new one for each copy makes it start from the beginning.
    source = job.name
    settings = {
        "clusters": f"{source},target",
        f"{source}.bootstrap.servers": job.source,
        "target.bootstrap.servers": job.target,
        f"{source}->target.enabled": "true",
        f"{source}->target.topics": job.topic,
        f"target->{source}.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "tasks.max": STREAMS,
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",  # it refuses to run if any other setting of offset syncs is given
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
        **{f"target.producer.{key}": value for key, value in _compression(job).items()},
    }
    return KafkaTools("4.3.1").start(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        job.properties("mm2", {**settings, **tuning}),
        stdout=log,
        stderr=log,
        jvm=[*_MM2_HEAP, *_PERFORMANCE],
    )


def _source(job: Job) -> dict[str, str]:
    return {"bootstrap.servers": job.source, "group.id": job.name, "auto.offset.reset": "earliest", **job.security}


def _target(job: Job) -> dict[str, str]:
    return {"bootstrap.servers": job.target, **job.security} | _compression(job)


def _compression(job: Job) -> dict[str, str]:
    return {"compression.type": job.target_codec} if job.target_codec else {}


def _large_batches(job: Job) -> dict[str, str]:
    return _LARGE_BATCHES | {"compression.type": job.target_codec or job.codec}


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("ours", "ours", _ours),
        Tool("mm1", "Java MirrorMaker 3.9.2", _mm1),
        Tool("mm2", "MirrorMaker 2 (4.3.1)", _mm2),
        Tool("mm1-tuned", "Java MirrorMaker 3.9.2, tuned", _mm1_tuned),
        Tool("mm2-tuned", "MirrorMaker 2 (4.3.1), tuned", _mm2_tuned),
        Tool("ours-records", "ours, handler of records", _ours_with_records, like="ours"),
        Tool("ours-tables", "ours, handler of tables", _ours_with_tables, like="ours"),
        Tool("mm1-handler", "Java MirrorMaker 3.9.2", _mm1_with_handler, _compile_handler, like="mm1"),
    )
}
