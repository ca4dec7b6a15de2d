"""The mirrors that the benchmarks compare: our own, the Java MirrorMaker and MirrorMaker 2, with defaults and tuned."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from tests.support.java_mirrors import MM1_VERSION, MM2_HEAP, Job, start_mm1, start_mm2, start_ours

from bench import ROOT
from bench.clusters import BenchClusters
from mirrormaker.embedded import jars, java

_HANDLER = ROOT / "bench" / "UpperCase.java"

# Large requests in both directions. Five requests in flight keep their order, because the producer is idempotent.
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


class NotAvailable(Exception):
    """This machine lacks something that a mirror needs."""


@dataclass(frozen=True)
class Tool:
    """A mirror to measure."""

    name: str
    title: str
    start: Callable[[Job, IO[bytes]], subprocess.Popen[bytes]]
    prepare: Callable[[Job], None] = lambda job: None  # runs before the measurement
    variant_of: str = ""  # the tool that chooses this one too, on the command line


def new_job(
    clusters: BenchClusters,
    topic: str,
    codec: str = "none",
    target_codec: str | None = None,
    *,
    tls: bool = False,
    streams: int = 2,
) -> Job:
    """Return a job with a new name, so that every mirror starts at the beginning of the topic."""
    name = f"bench{uuid.uuid4().hex[:8]}"
    source, target = clusters.source, clusters.target
    addresses = (source.address("TLS"), target.address("TLS")) if tls else (source.bootstrap, target.bootstrap)
    security = clusters.security() if tls else {}
    return Job(topic, *addresses, clusters.directory, name, codec, target_codec, security, streams)


def _ours_without_map(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return start_ours(job, log, producer={"offset.map": "false"})


def _ours_with_handler(job: Job, log: IO[bytes], name: str) -> subprocess.Popen[bytes]:
    # Spark's Python workers import the handler too.
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return start_ours(job, log, "--message.handler", f"bench.handlers:{name}", env=env)


def _ours_with_records(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _ours_with_handler(job, log, "upper_case")


def _ours_with_tables(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return _ours_with_handler(job, log, "upper_case_table")


def _mm1_tuned(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    # The default heap of 256 MB is too small for these buffers.
    return start_mm1(job, log, consumer=_LARGE_FETCHES, producer=_large_batches(job), heap=MM2_HEAP)


def _mm1_with_handler(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return start_mm1(job, log, "--message.handler", _HANDLER.stem, classes=job.classes)


def _compile_handler(job: Job) -> None:
    """Compile the Java handler with Java's compiler module: many Java runtimes have it, but no javac command."""
    path = os.pathsep.join(str(jar) for jar in sorted(jars(MM1_VERSION).glob("*.jar")))
    compiler = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    done = subprocess.run(
        [*compiler, "-nowarn", "-cp", path, "-d", str(job.classes), str(_HANDLER)], capture_output=True, text=True
    )
    if done.returncode:
        raise NotAvailable(f"{_HANDLER.name} does not compile: {' '.join((done.stdout + done.stderr).split())}")


def _mm2_tuned(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    consumer = {f"{job.name}.consumer.{key}": value for key, value in _LARGE_FETCHES.items()}
    producer = {f"target.producer.{key}": value for key, value in _large_batches(job).items()}
    return start_mm2(job, log, consumer | producer)


def _large_batches(job: Job) -> dict[str, str]:
    return _LARGE_BATCHES | {"compression.type": job.target_codec or job.source_codec}


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("ours", "ours", start_ours),
        Tool("mm1", "Java MirrorMaker 3.9.2", start_mm1),
        Tool("mm2", "MirrorMaker 2 (4.3.1)", start_mm2),
        Tool("mm1-tuned", "Java MirrorMaker 3.9.2, tuned", _mm1_tuned),
        Tool("mm2-tuned", "MirrorMaker 2 (4.3.1), tuned", _mm2_tuned),
        Tool("ours-no-map", "ours, without the offset map", _ours_without_map, variant_of="ours"),
        Tool("ours-records", "ours, handler of records", _ours_with_records, variant_of="ours"),
        Tool("ours-tables", "ours, handler of tables", _ours_with_tables, variant_of="ours"),
        Tool("mm1-handler", "Java MirrorMaker 3.9.2", _mm1_with_handler, _compile_handler, variant_of="mm1"),
    )
}

# The tools that run if nobody chooses, with their variants: as shipped. Tuned ones only explain something.
USUAL = ("ours", "mm1", "mm2")
