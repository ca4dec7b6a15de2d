"""One case on the stage: its topic, its group, its mirrors, its load."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.tools import Job
from tests.mirror_process import MirrorProcess, command

from faults import BUILD
from faults.judge import Count, count
from faults.load import PARTITIONS, Load
from faults.stage import Stage, revive, wait_until
from faults.watch import Watch
from mirrormaker.embedded import Cluster

_START = 60.0
"""Seconds for mirrors to start and share the partitions: 8 for two of them on two cores that are otherwise idle."""

_FLOW = 90.0
"""Seconds after which partitions that do not flow again are given up. Much more than any limit: how late is worth knowing."""

_NOTICED = 5.0
"""Seconds after which nothing is under way any more that was fetched before a fault: a stream's lease lasts for 4."""

_LAG = 30.0
"""Seconds for the committed lag to become 0 after the load has stopped."""


@dataclass
class Play:
    """What a case works with while it runs."""

    stage: Stage
    name: str
    target: Cluster
    chance: random.Random
    quick: bool = False
    age: float = 0.0
    master: str | None = None
    mirrors: list[MirrorProcess] = field(default_factory=list)
    first_record: float = 0.0
    """Seconds from the first process's start to the first record on the target."""
    pauses: list[float] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.group = f"{self.name}-{uuid.uuid4().hex[:6]}"
        self.directory = self.stage.directory / self.topic
        self.stage.create(self.topic, self.target)
        self.load = Load(self.stage.source.bootstrap, self.topic, age=self.age)
        self.watch = Watch(self.stage.source.bootstrap, self.target.bootstrap, self.topic)

    # -- mirrors

    def begin(self, processes: int) -> None:
        """Start load and mirrors; return when every partition flows. A case without processes starts its own."""
        self.load.start()
        self.watch.start()
        self.directory.mkdir(parents=True, exist_ok=True)
        if not processes:
            return
        for _ in range(processes):
            self.start_another()
        self.first_record = wait_until("the first record", lambda: sum(self.watch.target) > 0, _START)
        self.wait_until_shared(processes)
        self.wait_until_flowing()

    def start_another(self) -> MirrorProcess:
        """One more mirror process in the group."""
        directory = self.directory / f"mirror-{len(list(self.directory.glob('mirror-*'))) + 1}"
        directory.mkdir(parents=True)
        options: tuple[str, ...] = ("--whitelist", self.topic, "--num.streams", "2", "--progress.interval.ms", "1000")
        if self.master is not None:
            options += ("--spark.master", self.master)
        ends = (self.stage.source.bootstrap, self.target.bootstrap)
        mirror = MirrorProcess(directory, *ends, *options, group=self.group)
        self.mirrors.append(mirror.start())
        return mirror

    def job(self) -> Job:
        """What a Java MirrorMaker needs to know to take part."""
        ends = (self.stage.source.bootstrap, self.target.bootstrap)
        return Job(self.topic, "none", None, *ends, self.directory, self.group)

    def stop(self, mirror: MirrorProcess) -> None:
        """Stop a mirror as an administrator would."""
        self.mirrors.remove(mirror)
        code = mirror.stop()
        if code:
            self.troubles.append(f"a mirror that was asked to stop ended with exit code {code}")

    def kill(self, mirror: MirrorProcess) -> None:
        """As the kernel does when memory is short."""
        self.mirrors.remove(mirror)
        mirror.kill()

    def start_again(self, mirror: MirrorProcess) -> None:
        self.mirrors.append(mirror.start())

    def wait_until_shared(self, processes: int) -> float:
        """Until so many processes are in the group, each with partitions of its own; the seconds that it took."""

        def shared() -> bool:
            self.check_alive()
            shares = self.stage.shares(self.group)
            return len(shares) == processes and min(shares) > 0 and sum(shares) == PARTITIONS

        return wait_until(f"{processes} processes share the partitions", shared, _START)

    def check_alive(self) -> None:
        for mirror in self.mirrors:
            code = mirror.process.poll() if mirror.process is not None else None
            if code is not None:
                raise AssertionError(f"a mirror ended with exit code {code}: {mirror.text[-500:]}")

    # -- faults

    def wait_a_moment(self) -> None:
        """Faults come at any time: also while positions are committed, or a fetch is under way."""
        time.sleep(self.chance.uniform(0.5, 2.5))

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """Do harm inside; when it is left, every partition has flowed again, and the pause was taken down."""
        self.wait_a_moment()
        began = time.monotonic()
        yield
        time.sleep(max(0.0, began + _NOTICED - time.monotonic()))
        self.wait_until_flowing()
        self.pauses.append(self.watch.pause(began))

    def wait_until_flowing(self) -> float:
        """Until every partition has mirrored something that was written after now."""
        marks = list(self.watch.source)

        def flows() -> bool:
            self.check_alive()
            return all(end > mark for end, mark in zip(self.watch.target, marks, strict=True))

        return wait_until("every partition flows", flows, _FLOW)

    def remember(self, text: str, seconds: float) -> None:
        """Note the longest time of its kind."""
        self.longest[text] = max(seconds, self.longest.get(text, 0.0))

    # -- the end

    def finish(self) -> Count:
        """Stop the load, wait until all of it is mirrored and committed, stop the mirrors, and count."""
        self.load.stop()
        revive(self.stage.source, self.topic)
        revive(self.target, self.topic)
        took = wait_until("committed lag 0", self._is_done, _LAG)
        self.notes.append(f"committed lag 0 after {took:.1f} s")
        for mirror in list(self.mirrors):
            self.stop(mirror)
        return self.count()

    def count(self) -> Count:
        found = count(self.stage.source, self.target, self.topic)
        if self.load.failures or found.records != self.load.acknowledged:
            self.troubles.append(
                f"the source holds {found.records} records, {self.load.acknowledged} were acknowledged"
                f" ({len(self.load.failures)} failed)"
            )
        return found

    def _is_done(self) -> bool:
        self.check_alive()
        committed = self.stage.committed(self.group)
        return sum(self.watch.source) >= self.load.acknowledged and self.watch.source == [
            committed.get(partition) for partition in range(PARTITIONS)
        ]

    def close(self) -> None:
        """Leave nothing behind, whatever has happened; the logs of a case in trouble are kept."""
        self.notes += [text.format(f"{seconds:.1f}") for text, seconds in self.longest.items()]
        self.load.stop_without_waiting()
        if self.watch.is_alive():
            self.watch.stop()
        for mirror in self.mirrors:
            family = mirror.descendants()
            _signal(family, signal.SIGCONT)
            mirror.kill()
            _signal(family, signal.SIGKILL)
        for cluster in (self.stage.source, self.target):
            with contextlib.suppress(Exception):
                revive(cluster, self.topic)
        if self.troubles:
            kept = BUILD / self.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.directory, kept)
            self.notes.append(f"logs kept in {os.path.relpath(kept, BUILD.parent.parent)}")


def workers(mirror: MirrorProcess) -> list[int]:
    """The streams' Python workers: forks of the daemon that Spark's JVM starts."""
    family = mirror.descendants()
    parents = {pid: _parent(pid) for pid in family}
    return [pid for pid, text in family.items() if "daemon" in text and "daemon" in family.get(parents[pid], "")]


def jvm(mirror: MirrorProcess) -> int:
    """Spark's JVM."""
    return next(pid for pid, text in mirror.descendants().items() if re.match(r"\S*java\s", text))


def freeze(mirror: MirrorProcess, seconds: float) -> None:
    """Stop the process and all that it has started; somebody else wakes them, even if we are killed meanwhile."""
    assert mirror.process is not None
    pids = " ".join(map(str, [mirror.process.pid, *mirror.descendants()]))
    script = f"kill -STOP {pids}; sleep {seconds}; kill -CONT {pids}"
    subprocess.run(["/bin/sh", "-c", script], check=False, start_new_session=True)


def _signal(family: dict[int, str], number: signal.Signals) -> None:
    for pid, text in family.items():
        if text and command(pid) == text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _parent(pid: int) -> int:
    try:
        return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
