"""The topic, the group, the mirrors and the load of a fault case, and the actions that cases use."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.counting import Count, count, count_in_any_partition
from tests.support.java_mirrors import Job
from tests.support.load import PARTITIONS, RATE, Load
from tests.support.mirror_process import MirrorProcess, send_signal
from tests.support.offset_watch import OffsetWatch
from tests.support.waiting import wait_until

from faults import BUILD, ROOT
from faults.clusters import FaultClusters, revive
from mirrormaker.embedded import Cluster

_STREAMS = 2  # of each mirror process

# Seconds for mirrors to start and share the partitions. Two of them take 8 on two cores that are otherwise idle.
_START = 180.0

# Seconds after which a case fails if partitions do not flow again. Much more than any promise, because it is useful to
# know how late they are.
_FLOW = 90.0

# Seconds after which no record that was fetched before a fault can be in flight: a stream's lease lasts for 4.
_LEASE_OVER = 5.0

_ZERO_LAG = 30.0  # seconds for the committed lag to become 0 after the load has stopped


@dataclass
class Scenario:
    """The state that one or more cases share."""

    clusters: FaultClusters
    name: str
    target: Cluster
    quick: bool = False
    age: float = 0.0  # of the records, in seconds
    master: str | None = None  # the Spark master, if the streams run on a cluster
    rate: int = RATE  # records per second
    generator: random.Random = field(default_factory=random.Random)  # for moments and victims
    mirrors: list[MirrorProcess] = field(default_factory=list)  # those that should run now
    first_record: float = 0.0  # seconds from the start of the first process to the first record on the target
    pauses: list[float] = field(default_factory=list)  # the longest pause of each fault, in seconds
    counted: Count = field(default_factory=Count)  # at the end of the last case
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.group = f"{self.name}-{uuid.uuid4().hex[:6]}"
        self.directory = self.clusters.directory / self.topic
        self.directory.mkdir(parents=True)
        self.clusters.create_topic(self.topic, self.target)
        self.load = Load(self.clusters.source.bootstrap, self.topic, self.rate, self.age)
        self.watch = OffsetWatch(self.clusters.source.bootstrap, self.target.bootstrap, self.topic)
        self._longest: dict[str, float] = {}
        self._kills: Counter[str] = Counter()

    # -- mirrors

    def begin(self, processes: int) -> None:
        """Start the load and the mirrors, and wait until every partition flows."""
        self.load.start()
        self.watch.start()
        if not processes:
            return
        for _ in range(processes):
            self.start_another()
        self.first_record = wait_until("first record on the target", lambda: sum(self.watch.target) > 0, _START)
        self.wait_until_shared(processes)
        self.wait_until_flowing()

    def start_another(self) -> MirrorProcess:
        """Start one more mirror process in the group."""
        directory = self.directory / f"mirror-{len(list(self.directory.glob('mirror-*'))) + 1}"
        directory.mkdir()
        options: tuple[str, ...] = ("--whitelist", self.topic, "--num.streams", str(_STREAMS))
        options += ("--progress.interval.ms", "1000")
        if self.master is not None:
            # Executors would otherwise connect to the driver by its host name.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            options += ("--spark.master", self.master)
        addresses = (self.clusters.source.bootstrap, self.target.bootstrap)
        mirror = MirrorProcess(directory, *addresses, *options, group=self.group)
        self.mirrors.append(mirror.start())
        return mirror

    def has_streams(self, mirror: MirrorProcess) -> bool:
        """Return True while a mirror's streams run, here or on the Spark cluster."""
        on_cluster = "--spark.master" in mirror.options
        return bool(self.clusters.spark.executors()) if on_cluster else len(mirror.python_workers()) >= _STREAMS

    def java_job(self) -> Job:
        """Return the job for a Java MirrorMaker in the same group."""
        addresses = (self.clusters.source.bootstrap, self.target.bootstrap)
        return Job(self.topic, *addresses, self.directory, self.group)

    def stop(self, mirror: MirrorProcess) -> None:
        """Stop a mirror in an orderly way."""
        code = mirror.stop()
        self.mirrors.remove(mirror)
        if code:
            self.problems.append(f"a mirror that was asked to stop ended with exit code {code}")

    def kill(self, mirror: MirrorProcess) -> None:
        """Kill a mirror process, but not its JVM and its Python workers."""
        self.mirrors.remove(mirror)
        mirror.kill()

    def start_again(self, mirror: MirrorProcess) -> None:
        """Start a killed mirror again."""
        self.mirrors.append(mirror.start())

    def stop_all(self) -> None:
        """Stop the load and all mirrors."""
        self.load.stop()
        for mirror in list(self.mirrors):
            self.stop(mirror)

    def wait_until_shared(self, members: int) -> float:
        """Wait until the group has this many members and each has partitions. Return the seconds that it took."""

        def is_shared() -> bool:
            self.check_mirrors()
            partitions = self.clusters.assigned_partitions(self.group)
            return len(partitions) == members and min(partitions) > 0 and sum(partitions) == PARTITIONS

        return wait_until(f"partitions shared by {members} members", is_shared, _START)

    def check_mirrors(self) -> None:
        """Raise an error if a mirror has ended."""
        for mirror in self.mirrors:
            if mirror.has_ended:
                raise AssertionError(f"a mirror ended with exit code {mirror.wait()}: {mirror.text[-500:]}")

    # -- faults

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """Wait for a random moment, run the block, wait until every partition flows, and note the longest pause."""
        time.sleep(self.generator.uniform(0.5, 2.5))
        began = time.monotonic()
        yield
        time.sleep(max(0.0, began + _LEASE_OVER - time.monotonic()))
        self.wait_until_flowing()
        self.pauses.append(self.watch.longest_pause(began))

    def wait_until_flowing(self) -> float:
        """Wait until every partition has mirrored a record that is written after now. Return the seconds it took."""
        ends = list(self.watch.source)

        def flows() -> bool:
            self.check_mirrors()
            return all(target > source for target, source in zip(self.watch.target, ends, strict=True))

        return wait_until("every partition flows", flows, _FLOW)

    # -- the end of a case

    def wait_for_zero_lag(self) -> float:
        """Pause the load and wait until all records are mirrored and committed. Return the seconds that it took."""
        self.load.pause()
        revive(self.clusters.source, self.topic)
        revive(self.target, self.topic)
        return wait_until("committed lag 0", self._has_zero_lag, _ZERO_LAG)

    def _has_zero_lag(self) -> bool:
        self.check_mirrors()
        committed = self.clusters.committed(self.group)
        return sum(self.watch.source) >= self.load.acknowledged and self.watch.source == [
            committed.get(partition) for partition in range(PARTITIONS)
        ]

    def count(self, *, any_partition: bool = False) -> Count:
        """Count the records on both clusters. `any_partition`: a Java mirror may have chosen the partitions by key."""
        counter = count_in_any_partition if any_partition else count
        self.counted = counter(self.clusters.source, self.target, self.topic)
        if self.load.failures or self.counted.records != self.load.acknowledged:
            self.problems.append(
                f"the source holds {self.counted.records} records, but {self.load.acknowledged} were acknowledged"
                f" ({len(self.load.failures)} failed)"
            )
        return self.counted

    def note_longest(self, text: str, seconds: float) -> None:
        """Note a time. Of several notes with the same text, which has {} for the seconds, the longest time remains."""
        self._longest[text] = max(seconds, self._longest.get(text, 0.0))

    def note_kill(self, what: str) -> None:
        """Count a kill of this kind."""
        self._kills[what] += 1

    def notes(self) -> list[str]:
        """Return the notes of the current case."""
        kills = [f"{what}: {count} times" for what, count in sorted(self._kills.items())]
        return [text.format(f"{seconds:.1f}") for text, seconds in self._longest.items()] + kills

    def clear_notes(self) -> None:
        """Forget pauses and notes before the next case."""
        self.pauses, self._longest = [], {}
        self._kills.clear()

    def close(self) -> None:
        """Stop everything that still runs, and repair the clusters."""
        self.load.stop_without_waiting()
        if self.watch.is_alive():
            self.watch.stop()
        for mirror in self.mirrors:
            family = mirror.descendants()
            send_signal(family, signal.SIGCONT)
            mirror.kill()
            send_signal(family, signal.SIGKILL)
        for cluster in (self.clusters.source, self.target):
            with contextlib.suppress(Exception):
                revive(cluster, self.topic)


def keep_logs(directory: Path, name: str) -> str:
    """Copy the logs of a case's mirrors, and return the path of the copy."""
    copy = BUILD / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    return str(copy.relative_to(ROOT))
