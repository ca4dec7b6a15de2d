"""`mirrormaker demo`: start two Kafka clusters on this machine, mirror one to the other, and compare both."""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import SettingError
from mirrormaker.settings.command_line import Option
from mirrormaker.status.figures import duration

if TYPE_CHECKING:
    from mirrormaker.embedded.spark_cluster import SparkCluster
    from mirrormaker.embedded.yarn_cluster import YarnCluster

_PARTITIONS = 8
_OPTIONS = (
    Option(("--seconds",), "Time in seconds during which records are written to the source.", "N", 60, type=int),
    Option(("--streams",), "Number of streams of the mirror.", "N", 2, type=int),
    Option(
        ("--on",), "Where the streams run: local, or a cluster that is started on this machine: standalone or yarn.",
        "PLACE", "local",
    ),
    Option(("--keep",), "Leave both clusters running until Ctrl+C after the comparison."),
)  # fmt: skip
_PLACES = ("local", "standalone", "yarn")


def run(args: argparse.Namespace) -> int:
    """Return 0 if both sides have the same records at the end, else 1."""
    if args.on not in _PLACES:
        raise SettingError(f"--on {args.on}: this must be one of {', '.join(_PLACES)}", option=True)
    for option, value in (("--seconds", args.seconds), ("--streams", args.streams)):
        if value < 1:
            raise SettingError(f"{option} {value}: this must be at least 1", option=True)
    from mirrormaker.embedded import Cluster

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    settings = {"auto.create.topics.enable": "false"}
    with console.status("starting two Kafka clusters ..."):
        source = Cluster(name="source", settings=settings)
        target = Cluster(name="target", settings=settings)
        source.start()
        target.start()
    spark = None
    try:
        spark = spark_cluster(args.on, args.streams)
        if spark is not None:
            with console.status(f"starting a cluster for Spark ({args.on}) ..."):
                spark.start()
        console.print(f"source cluster: {source.bootstrap}   target cluster: {target.bootstrap}")
        with console.status("creating topics ..."):
            for topic in TOPICS:
                source.create_topic(topic, partitions=_PARTITIONS)
        same = _mirror(console, source.bootstrap, target.bootstrap, args.seconds, args.streams, spark)
        if args.keep:
            _keep(console, source.bootstrap, target.bootstrap)
        return 0 if same else 1
    finally:
        with console.status("stopping the clusters ..."):
            if spark is not None:
                spark.stop()
            source.stop()
            target.stop()


def spark_cluster(place: str, streams: int) -> SparkCluster | YarnCluster | None:
    """Return the cluster that runs the streams, not started yet; None for this machine."""
    from mirrormaker.embedded.spark_cluster import SparkCluster
    from mirrormaker.embedded.yarn_cluster import YarnCluster

    if place == "yarn":
        return YarnCluster(memory=4096 + 1024 * streams)
    return SparkCluster(cores=streams) if place == "standalone" else None


def _mirror(
    console: Console, source: str, target: str, seconds: int, streams: int, spark: SparkCluster | YarnCluster | None
) -> bool:
    """Write, mirror and compare; return True if both sides have the same records."""
    from mirrormaker.console.compare import compare

    writers = [Writer(source, topic, make) for topic, make in TOPICS.items()]
    for writer in writers:
        writer.start()
    with tempfile.TemporaryDirectory(prefix="mirrormaker-demo-") as scratch:
        mirror = _start_mirror(Path(scratch), source, target, streams, spark)
        try:
            _wait(mirror, seconds)
            for writer in writers:
                writer.stop_event.set()
            for writer in writers:
                writer.join()
            written = sum(writer.count for writer in writers)
            console.print(f"the writers have stopped after {written:,} records; waiting for the mirror to catch up")
            _wait_until_equal(mirror, source, target)
        finally:
            if mirror.poll() is None:
                mirror.send_signal(signal.SIGTERM)
        if mirror.wait(30) != 0:
            console.print("the mirror has failed; its error is above")
            return False
    started = time.monotonic()
    with console.status("comparing both sides, record by record ...") as status:
        verdict = compare(
            source, target, list(TOPICS), lambda n: status.update(f"comparing both sides: {n:,} records ...")
        )
    console.print(
        f"compared {verdict.records:,} records in {verdict.partitions} partitions of {len(TOPICS)} topics"
        f" in {duration(time.monotonic() - started)}: key, value, headers, timestamp, order"
    )
    for difference in verdict.differences:
        console.print(f"  different: {difference}", markup=False)
    same = verdict.same and verdict.records == written
    console.print("[bold green]both sides hold the same records[/]" if same else "[bold red]the two sides differ[/]")
    return same


def _start_mirror(
    directory: Path, source: str, target: str, streams: int, spark: SparkCluster | YarnCluster | None
) -> subprocess.Popen[bytes]:
    """Start the mirror with the command that a user would type, and print that command."""
    consumer, producer = directory / "source.properties", directory / "target.properties"
    consumer.write_text(f"bootstrap.servers={source}\ngroup.id=demo\n")
    producer.write_text(f"bootstrap.servers={target}\n")
    names = ", ".join(TOPICS)
    options = ["--whitelist", names, "--num.streams", str(streams), "--status.address", "127.0.0.1:0"]
    options += spark.options if spark is not None else []
    shown = f" \\\n      --spark.master {spark.master}" if spark is not None else ""
    variables = spark.environment if spark is not None else {}
    found = f"HADOOP_CONF_DIR={variables['HADOOP_CONF_DIR']} " if "HADOOP_CONF_DIR" in variables else ""
    print(
        f"\n$ {found}mirrormaker run --consumer.config source.properties --producer.config target.properties \\\n"
        f'      --whitelist "{names}" --num.streams {streams} --status.address 127.0.0.1:0{shown}\n',
        file=sys.stderr,
        flush=True,
    )
    command = [sys.executable, "-m", "mirrormaker.cli", "run"]
    command += ["--consumer.config", str(consumer), "--producer.config", str(producer), *options]
    return subprocess.Popen(command, env={**os.environ, **variables})


def _wait(mirror: subprocess.Popen[bytes], seconds: int) -> None:
    """Wait for some seconds, or until the mirror ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and mirror.poll() is None:
        time.sleep(0.2)


def _wait_until_equal(mirror: subprocess.Popen[bytes], source: str, target: str) -> None:
    """Wait until the target's logs end where the source's do; the mirror shows its own progress meanwhile."""
    from kafka import KafkaConsumer, TopicPartition

    sides = [KafkaConsumer(bootstrap_servers=side.split(",")) for side in (source, target)]
    partitions = [TopicPartition(topic, p) for topic in TOPICS for p in range(_PARTITIONS)]
    deadline = time.monotonic() + 120
    try:
        while mirror.poll() is None and time.monotonic() < deadline:
            ends = [side.end_offsets(partitions) for side in sides]
            if ends[0] == ends[1]:
                return
            time.sleep(0.3)
    finally:
        for side in sides:
            side.close()


def _keep(console: Console, source: str, target: str) -> None:
    console.print(f"\nboth clusters keep running until Ctrl+C: source {source}, target {target}")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("stopping")


# -- the records of the demo


def _orders(number: int) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return a record with a key and headers; its topic is compressed."""
    body = b'{"order": %d, "items": [%s]}' % (number, b",".join(b"%d" % random.randrange(1000) for _ in range(30)))
    return b"customer-%d" % (number % 500), body, {"headers": [("source", b"shop"), ("n", b"%d" % number)]}


def _clicks(number: int) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return a small record with a key."""
    return b"session-%d" % (number % 5000), b'{"page": "/p/%d", "ms": %d}' % (number % 97, number % 1000), {}


def _blobs(_number: int) -> tuple[None, bytes, dict[str, Any]]:
    """Return a record without a key that cannot be compressed."""
    return None, os.urandom(2000), {}


TOPICS: dict[str, Callable[[int], tuple[bytes | None, bytes, dict[str, Any]]]] = {
    "orders": _orders,
    "clicks": _clicks,
    "blobs": _blobs,
}
_PRODUCER_SETTINGS: dict[str, dict[str, Any]] = {
    "orders": {"compression_type": "lz4", "linger_ms": 20},
    "clicks": {"linger_ms": 0, "batch_size": 512},  # tiny batches
    "blobs": {"linger_ms": 10},
}


class Writer(threading.Thread):
    """Writes to one topic at a steady rate until `stop_event` is set."""

    def __init__(self, bootstrap: str, topic: str, make: Callable[[int], Any], per_second: int = 500) -> None:
        super().__init__(daemon=True)
        from kafka import KafkaProducer

        self.producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks=1, **_PRODUCER_SETTINGS[topic])
        self.topic, self.make, self.per_second = topic, make, per_second
        self.stop_event = threading.Event()
        self.count = 0

    def run(self) -> None:
        """Write a tenth of a second's records ten times a second."""
        while not self.stop_event.wait(0.1):
            for _ in range(self.per_second // 10):
                key, value, more = self.make(self.count)
                self.producer.send(self.topic, value, key, **more)
                self.count += 1
        self.producer.flush()
        self.producer.close()


COMMAND = Command(
    name="demo",
    purpose="mirror between two Kafka clusters that are started on this machine",
    usage="[--seconds N] [--streams N] [--on PLACE] [--keep]",
    description="Start two real Kafka clusters on loopback, write to one, mirror it to the other, and compare both.",
    options=_OPTIONS,
    examples=(
        Example("Write for a minute, then compare:", "%(prog)s"),
        Example("Write for 20 seconds only:", "%(prog)s --seconds 20"),
        Example("Run the streams on a YARN that is started for it:", "%(prog)s --on yarn"),
        Example("Leave the clusters running afterwards, to try things:", "%(prog)s --keep"),
    ),
    exit_codes={0: "both sides have the same records", 1: "the sides differ, or the mirror failed"},
    run=run,
)
