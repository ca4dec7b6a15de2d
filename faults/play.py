"""One case on the stage: its topic, its group, its mirrors, its load."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.tools import Job
from tests.support.mirror_process import MirrorProcess

from faults import BUILD, ROOT
from faults.family import send
from faults.judge import Count, count, count_anywhere
from faults.load import PARTITIONS, RATE, Load
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
    quick: bool = False
    age: float = 0.0
    master: str | None = None
    rate: int = RATE
    chance: random.Random = field(default_factory=random.Random)
    mirrors: list[MirrorProcess] = field(default_factory=list)
    first_record: float = 0.0
    """Seconds from the first process's start to the first record on the target."""
    pauses: list[float] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    counted: Count = field(default_factory=Count)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.group = f"{self.name}-{uuid.uuid4().hex[:6]}"
        self.directory = self.stage.directory / self.topic
        self.directory.mkdir(parents=True)
        self.stage.create(self.topic, self.target)
        self.load = Load(self.stage.source.bootstrap, self.topic, self.rate, self.age)
        self.watch = Watch(self.stage.source.bootstrap, self.target.bootstrap, self.topic)

    # -- mirrors

    def begin(self, processes: int) -> None:
        """Start load and mirrors; return when every partition flows. A case without processes starts its own."""
        self.load.start()
        self.watch.start()
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
        directory.mkdir()
        options: tuple[str, ...] = ("--whitelist", self.topic, "--num.streams", "2", "--progress.interval.ms", "1000")
        if self.master is not None:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or the driver would be looked for by its host name
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
        code = mirror.stop()
        self.mirrors.remove(mirror)
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

    def settle(self, *, anywhere: bool = False) -> Count:
        """Hold the load, wait until all of it is mirrored and committed, and count; then the load goes on."""
        self.load.hold()
        revive(self.stage.source, self.topic)
        revive(self.target, self.topic)
        took = wait_until("committed lag 0", self._is_done, _LAG)
        self.notes.append(f"committed lag 0 after {took:.1f} s")
        self.counted = self.count(anywhere=anywhere)
        self.load.go_on()
        return self.counted

    def stop_all(self) -> None:
        self.load.stop()
        for mirror in list(self.mirrors):
            self.stop(mirror)

    def count(self, *, anywhere: bool = False) -> Count:
        """What is on the target; `anywhere` if a mirror took part that sends records to other partitions."""
        found = (count_anywhere if anywhere else count)(self.stage.source, self.target, self.topic)
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

    def remarks(self) -> list[str]:
        return [*self.notes, *(text.format(f"{seconds:.1f}") for text, seconds in self.longest.items())]

    def clear(self) -> None:
        """Another case follows."""
        self.pauses, self.notes, self.longest = [], [], {}

    def keep_logs(self, name: str) -> str:
        """What the mirrors of a case in trouble have said."""
        kept = BUILD / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.directory, kept)
        return str(kept.relative_to(ROOT))

    def close(self) -> None:
        """Leave nothing behind, whatever has happened."""
        self.load.stop_without_waiting()
        if self.watch.is_alive():
            self.watch.stop()
        for mirror in self.mirrors:
            family = mirror.descendants()
            send(family, signal.SIGCONT)
            mirror.kill()
            send(family, signal.SIGKILL)
        for cluster in (self.stage.source, self.target):
            with contextlib.suppress(Exception):
                revive(cluster, self.topic)
