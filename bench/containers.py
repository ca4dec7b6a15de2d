"""`python -m bench.containers`: the memory of a mirror's containers on YARN while it copies W1.

PSS counts a page that several processes share once. YARN adds up the resident pages of every process, and kills a
container by that figure.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tests.support.mirror_process import MirrorProcess
from tests.support.topics import EndOffsets
from tests.support.waiting import wait_until

from bench.backlog import write
from bench.clusters import BenchClusters
from bench.workloads import PARTITIONS, W1
from mirrormaker.embedded import child_processes
from mirrormaker.embedded.process_tree import parents
from mirrormaker.embedded.yarn_cluster import YarnCluster
from mirrormaker.spark.masters import hadoop_settings

_EVERY = 0.1  # seconds between samples
_START = 180.0  # seconds until the first record
_LIMIT = 300.0  # seconds for the whole copy


class Sampler(threading.Thread):
    """Samples the memory of every container until `stop`."""

    def __init__(self, yarn: YarnCluster) -> None:
        super().__init__(daemon=True)
        self._yarn, self._stopping = yarn, threading.Event()
        self.peaks: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])  # PSS, RSS, samples

    def run(self) -> None:
        """Remember the largest sums of PSS and of RSS, in MB."""
        while not self._stopping.wait(_EVERY):
            parent_of = parents()
            heads = {pid: f"executor {pid}" for pid in self._yarn.executors()}
            heads |= {pid: f"ApplicationMaster {pid}" for pid in self._yarn.application_masters()}
            for head, name in heads.items():
                family = {head}
                while new := {pid for pid, parent in parent_of.items() if parent in family} - family:
                    family |= new
                peak = self.peaks[name]
                peak[:] = [*map(max, peak, map(sum, zip(*map(_memory, family), strict=True))), peak[2] + 1]

    def stop(self) -> None:
        """Stop, and wait for the last sample."""
        self._stopping.set()
        self.join()


class SubmittedMirror(MirrorProcess):
    """A mirror whose driver runs in a container. It ends when it has caught up."""

    def start(self) -> MirrorProcess:
        """Submit the mirror, and do not wait for it."""
        command = [sys.executable, "-m", "mirrormaker.cli", "submit", "--wait", "--exit.when.caught.up", *self.options]
        command += ["--consumer.config", str(self.source_file), "--producer.config", str(self.target_file)]
        with self.output.open("ab") as log:
            self.process = child_processes.spawn(command, stdout=log, stderr=log, env=os.environ)
        return self


def _memory(pid: int) -> tuple[float, float]:
    """Return PSS and RSS of a process in MB; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return sizes.get("Pss", 0.0), sizes.get("Rss", 0.0)


def _figures_of_yarn() -> dict[str, float]:
    """Return all figures on the physical memory of containers that the NodeManager has, in MB."""
    address = hadoop_settings(os.environ)["yarn.nodemanager.webapp.address"]
    query = urllib.parse.urlencode({"qry": "Hadoop:service=NodeManager,name=ContainerResource_*"})
    with urllib.request.urlopen(f"http://{address}/jmx?{query}", timeout=10) as answer:
        beans = json.loads(answer.read())["beans"]
    return {
        f"{bean['name'].rpartition('_container_')[2]}, {key}": value
        for bean in beans
        for key, value in bean.items()
        if key.startswith("PMem") and isinstance(value, int | float)
    }


def main() -> None:
    """Copy W1 on YARN, and print the peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=W1.records)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--submit", action="store_true", help="run the driver in a container too")
    parser.add_argument("conf", nargs="*", help="settings of Spark, as KEY=VALUE")
    args = parser.parse_args()
    work = replace(W1, records=args.records)
    os.environ["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    with BenchClusters() as clusters, YarnCluster() as yarn:
        os.environ.update(yarn.environment)
        write(work, clusters, lambda _: None)
        clusters.empty_target(work.topic)
        conf = [word for pair in args.conf for word in ("--spark.conf", pair)]
        options = ("--whitelist", work.topic, "--num.streams", str(args.streams), *yarn.options, *conf)
        kind = SubmittedMirror if args.submit else MirrorProcess
        mirror = kind(clusters.directory, clusters.source.bootstrap, clusters.target.bootstrap, *options)
        ends, sampler = EndOffsets(clusters.target, work.topic, PARTITIONS), Sampler(yarn)
        sampler.start()
        with mirror:
            wait_until("records flow", lambda: ends.records() > 0, _START, lambda: mirror.text)
            took = wait_until("all is copied", lambda: ends.records() == work.records, _LIMIT, lambda: mirror.text)
            print(f"{work.records:,} records of W1 in {took:.1f} s, {args.streams} streams")
            yarns = _figures_of_yarn()
            sampler.stop()
            # A submitted mirror ends when it has caught up. The lines of its driver are in the container.
            code = mirror.wait() if args.submit else mirror.stop()
            print(f"exit code {code}; streams lost: {'?' if args.submit else mirror.text.count('is gone')}")
        for name, (pss, rss, samples) in sorted(sampler.peaks.items()):
            print(f"{name}: peak PSS {pss:.0f} MB, peak RSS {rss:.0f} MB ({samples} samples)")
        for name, figure in sorted(yarns.items()):
            print(f"YARN's own figures: {name}: {figure:.0f}")


if __name__ == "__main__":
    main()
