"""`python -m bench wide`: how a mirror starts, idles and wakes up with thousands of partitions, beside the Java MirrorMaker."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from tests.support.command_line import names_from
from tests.support.java_mirrors import Job, start_ours
from tests.support.raw_requests import RawConnection, check_produced, produce_request, record_batch
from tests.support.topics import EndOffsets, create_topic

from bench import store, wide_page
from bench.mirror_run import MirrorRun, running
from bench.progress import step
from bench.results import Figures
from bench.tools import TOOLS, Tool
from bench.wide_page import COLUMNS, FEW, MANY, Row, number
from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.embedded.ports import free_port

_TOPICS = 50
_START, _WAKE_UP = 300.0, 120.0  # seconds for a record of every partition, after the start and later
_SETTLE, _IDLE = 5.0, 20.0  # seconds between the last record and the measurement of an idle mirror, and its length
_POLL = 0.05  # seconds between two looks at the target's end offsets
_LOOP = {"blocked_s": "mirrormaker_loop_blocked_seconds_max", "busy_s": "mirrormaker_loop_busy_seconds_max"}

# Index files are created in full size; brokers with thousands of partitions would map gigabytes.
_BROKER = {"log.index.size.max.bytes": "65536", "auto.create.topics.enable": "false"}


@dataclass
class Wide:
    """Two clusters of one broker each, with the same topics, and the records that were written to each partition."""

    partitions: int
    topics: int
    # True if the mirror writes a record to the partition of the same number.
    keeps_partitions: bool = True
    written: int = 0
    source: Cluster = field(default_factory=lambda: _cluster("wide-source"))
    target: Cluster = field(default_factory=lambda: _cluster("wide-target"))
    ends: list[EndOffsets] = field(default_factory=list)
    directory: Path = field(default_factory=lambda: child_processes.new_directory("wide"))

    @property
    def names(self) -> dict[str, int]:
        """The topics, and how many partitions each of them has."""
        return {f"wide-{number}": len(range(number, self.partitions, self.topics)) for number in range(self.topics)}

    def __enter__(self) -> Wide:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._start, (self.source, self.target)))
        self.ends = [EndOffsets(self.target, name, count) for name, count in self.names.items()]
        return self

    def _start(self, cluster: Cluster) -> None:
        cluster.start()
        for name, count in self.names.items():
            create_topic(cluster, name, count)

    def __exit__(self, *_: object) -> None:
        for ends in self.ends:
            ends.close()
        self.target.stop()
        self.source.stop()
        child_processes.remove_directory(self.directory)

    def write(self) -> None:
        """Write one record to every partition of the source."""
        self.written += 1
        connection = RawConnection(self.source.brokers[0].port)
        batch = record_batch([b"a record of the wide benchmark"])
        for name, count in self.names.items():
            check_produced(connection.ask(produce_request(name, dict.fromkeys(range(count), batch))))
        connection.close()

    def wait(
        self, began: float, limit: float, is_alive: Callable[[], bool], progress: Callable[[int], None]
    ) -> Figures:
        """Return the seconds until the target's first record, and until it holds all records of every partition."""
        figures: Figures = {}
        waiting, arrived = list(self.ends), 0
        while waiting and time.monotonic() - began < limit and is_alive():
            left = []
            for ends in waiting:
                found = ends.by_partition()
                least, most = min(found), max(found)
                if not self.keeps_partitions:
                    # The Java MirrorMaker chooses a partition for each record, so only their number can be compared.
                    least, most = sum(found) // len(found), math.ceil(sum(found) / len(found))
                if most == self.written:
                    figures.setdefault("first_s", time.monotonic() - began)
                if least < self.written:
                    left.append(ends)
                else:
                    arrived += len(found)
            waiting = left
            progress(arrived)
            time.sleep(_POLL)
        if not waiting:
            figures["all_s"] = time.monotonic() - began
        return figures


def _cluster(name: str) -> Cluster:
    return Cluster(name=name, settings=_BROKER, heap="1g", quick=False)


def measure(
    tool: str, partitions: int, topics: int, processes: int, kill: bool, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    """Return a mirror's figures with so many partitions, and notes on everything unusual."""
    with Wide(partitions, topics, keeps_partitions=tool == "ours") as wide, contextlib.ExitStack() as stack:
        wide.write()
        ports = [free_port() for _ in range(processes)]
        mirrors = [stack.enter_context(_running(tool, wide, number, port)) for number, port in enumerate(ports)]

        def is_alive() -> bool:
            return any(mirror.is_alive() for mirror in mirrors)

        figures = wide.wait(mirrors[0].started, _START, is_alive, progress)
        if "all_s" not in figures:
            mirrors[0].failed(f"a record of every partition did not arrive within {_START:g} s")
            return figures, _notes(mirrors)
        figures["start_cpu_s"] = _cpu(mirrors)
        time.sleep(_SETTLE)
        before = _cpu(mirrors)
        time.sleep(_IDLE)
        figures["idle_cpu"] = 100 * (_cpu(mirrors) - before) / _IDLE
        began = time.monotonic()
        wide.write()
        figures["again_s"] = wide.wait(began, _WAKE_UP, is_alive, progress).get("all_s", float("nan"))
        for mirror in mirrors:
            mirror.tree.measure_memory()
        figures["pss_mb"] = sum(mirror.tree.peak_memory for mirror in mirrors) / 1e6
        if tool == "ours":
            figures |= _loop_figures(ports)
        if kill:
            os.killpg(mirrors[0].process.pid, signal.SIGKILL)
            began = time.monotonic()
            wide.write()
            figures["killed_s"] = wide.wait(began, _WAKE_UP, is_alive, progress).get("all_s", float("nan"))
            # The others have taken over what the killed one had.
            after = _loop_figures(ports[1:])
            figures |= {name: max(seconds, figures.get(name, 0.0)) for name, seconds in after.items()}
        time.sleep(1)
        extra = sum(end - wide.written for ends in wide.ends for end in ends.by_partition())
        if extra:
            mirrors[0].notes.append(f"the target holds {extra:,} records more than the source")
    return figures, _notes(mirrors, killed=kill)


def _running(tool: str, wide: Wide, number: int, port: int) -> contextlib.AbstractContextManager[MirrorRun]:
    directory = wide.directory / f"process-{number}"
    directory.mkdir()
    job = Job("wide-.*", wide.source.bootstrap, wide.target.bootstrap, directory, "wide")
    if tool != "ours":
        return running(TOOLS[tool], job)

    def start(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_ours(job, log, "--status.address", f"127.0.0.1:{port}")

    return running(Tool("ours-wide", "ours", start), job)


def _cpu(mirrors: Sequence[MirrorRun]) -> float:
    for mirror in mirrors:
        mirror.tree.update()
    return sum(mirror.tree.cpu_seconds() for mirror in mirrors)


def _notes(mirrors: Sequence[MirrorRun], killed: bool = False) -> list[str]:
    return [note for mirror in mirrors[killed:] for note in mirror.notes]


def _loop_figures(ports: Sequence[int]) -> Figures:
    """Return the longest times for which a driver's event loop stood still, and was busy, as far as the mirrors tell."""
    figures: Figures = {}
    for port in ports:
        with contextlib.suppress(OSError):
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            for line in text.splitlines():
                for name, series in _LOOP.items():
                    if line.startswith(series):
                        figures[name] = max(figures.get(name, 0.0), float(line.split()[-1]))
    return figures


def main(arguments: Sequence[str]) -> int:
    """Measure each chosen mirror with few and with many partitions. Store each row as soon as it is measured."""
    args = _arguments(arguments)
    console = Console(width=160)
    if args.draw:
        wide_page.write()
        return 0
    version = store.version()
    for_page = (args.partitions, args.topics) == (MANY, _TOPICS)
    rows: list[Row] = []
    for tool in args.tools:
        processes = args.processes if tool == "ours" else 1
        for partitions, topics in ((FEW, 1), (args.partitions, args.topics)):
            with step(console, f"{TOOLS[tool].title}, {partitions:,} partitions in {topics} topics") as progress:
                wide = partitions == args.partitions
                kill = args.kill and wide and processes > 1
                figures, notes = measure(tool, partitions, topics, processes, kill, progress)
            if wide and {"pss_mb"} <= figures.keys() & rows[-1].figures.keys():
                # The smaller mirror has as many processes.
                more = figures["pss_mb"] - rows[-1].figures["pss_mb"]
                figures["kb_per_partition"] = more * 1000 / (partitions - FEW)
            rows.append(Row(tool, partitions, processes, figures, tuple(notes)))
            if for_page:
                wide_page.keep(rows[-1:], version)
    table = Table("", *COLUMNS.values(), box=box.SIMPLE)
    for row in rows:
        table.add_row(row.title, *(number(row.figures[name]) if name in row.figures else "" for name in COLUMNS))
    console.print(table)
    for row in rows:
        for note in row.notes:
            console.print(f"{row.title}: {note}", highlight=False)
        for verdict in wide_page.goals(rows, row):
            console.print(verdict, highlight=False)
    if for_page:
        wide_page.write()
        console.print("Wrote bench/wide.json and docs/benchmarks.md", highlight=False)
    return 0


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench wide", description=__doc__)
    parser.add_argument(
        "--partitions", type=int, default=MANY, help=f"partitions of all topics together (default: {MANY})"
    )
    parser.add_argument("--topics", type=int, default=_TOPICS, help=f"number of topics (default: {_TOPICS})")
    parser.add_argument(
        "--quick", action="store_true", help="200 partitions in 10 topics: about 4 minutes, and nothing is stored"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes of ours (default: 1)")
    parser.add_argument("--kill", action="store_true", help="kill one of several processes in the end")
    tools = ("ours", "mm1")
    parser.add_argument("--tools", type=names_from(tools), default=tools, help="mirrors: ours,mm1")
    parser.add_argument("--draw", action="store_true", help="write the page again from the stored rows")
    args = parser.parse_args(arguments)
    if args.quick:
        args.partitions, args.topics = 200, 10
    if args.kill and args.processes < 2:
        parser.error("--kill needs --processes 2 or more")
    return args
