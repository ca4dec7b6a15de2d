"""The stage of the error table: two clusters behind rewriting proxies, one mirror, and many topics under a light load."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaAdminClient, TopicPartition

from mirrormaker.embedded import Cluster, metadata
from mirrormaker.embedded.ports import free_port
from mirrormaker.mapping.map_topic import TOPIC as MAP
from tests.support.counting import read_log, steps_back
from tests.support.mirror_process import MirrorProcess, send_signal
from tests.support.rewriting_proxy import RewritingProxy
from tests.support.secure_cluster import PASSWORD, PLAIN, password_login
from tests.support.table_groups import TableGroups
from tests.support.topic_flow import TopicLoad, TopicWatch
from tests.support.topics import EndOffsets
from tests.support.waiting import NotInTime, wait_until

_START = 240.0  # seconds until a new mirror has mirrored a record of every topic: a dozen, or minutes on a busy machine
_ASK_EVERY = 0.3  # seconds between two looks at the status page


class Stage:
    """Everything that a cell of the table needs. Each act has a mirror, a group and topics of its own."""

    def __init__(
        self, directory: Path, source: Cluster, target: Cluster, slack: float = 1.0, login: str = "", *, groups: bool = False
    ) -> None:  # fmt: skip
        """`slack` multiplies every limit: on a busy machine everything takes longer. `login`: lines of both property files.

        `groups`: the mirrors keep groups in step.
        """
        self._login, self._keeps_groups = login, groups
        self.directory, self.source, self.target, self.slack = directory, source, target, slack
        self.source_proxy, self.target_proxy = RewritingProxy(source.proxy_routes), RewritingProxy(target.proxy_routes)
        self.load, self.watch = TopicLoad(source.bootstrap), TopicWatch(source.bootstrap, target.bootstrap)
        self.mirror: MirrorProcess | None = None
        self.status: StatusWatch | None = None
        self.groups: TableGroups | None = None  # those of this act, if mirrors keep groups in step
        self.topics: list[str] = []  # those that the load writes to now
        # By topic: records that the target holds beyond those of the source; negative if some were lost.
        self.surplus: Counter[str] = Counter()
        self._acts, self._new = itertools.count(1), itertools.count(1)
        self.act = self.alias = ""  # `alias` is that of the source, under which the mirror keeps checkpoints

    def proxy(self, side: str) -> RewritingProxy:
        """Return the proxy of source or target."""
        return self.source_proxy if side == "source" else self.target_proxy

    # -- acts

    def begin_act(self, topics: int) -> None:
        """End the act before, and start a new mirror on so many new topics; wait until all of them flow."""
        self.end_act()
        self.act = f"act{next(self._acts)}"
        self.create_on_source(f"{self.act}-t{number:03}" for number in range(topics))
        self.load.resume()
        self.start_mirror()
        self.wait_until_flowing(_START)

    def start_mirror(self) -> None:
        """Start the mirror of this act, or start it again."""
        if self.mirror is None:
            port = free_port()
            where = self.directory / self.act
            where.mkdir()
            more, lines = self._begin_groups() if self._keeps_groups else ((), "")
            self.mirror = MirrorProcess(
                where, self.source_proxy.bootstrap, self.target_proxy.bootstrap,
                "--whitelist", f"{self.act}-.*", "--num.streams", "2", "--abort.on.send.failure", "false",
                "--undelivered.file", str(where / "undelivered"), "--status.address", f"127.0.0.1:{port}", *more,
                group=self.act, consumer=f"metadata.max.age.ms=500\n{lines}{self._login}", producer=self._login,
            )  # fmt: skip
            self.status = StatusWatch(port)
            self.status.start()
        self.mirror.start()

    def _begin_groups(self) -> tuple[tuple[str, ...], str]:
        """Return the options for groups, and the lines of the consumer file."""
        self.groups = TableGroups(self.source, self.target, self.act, lambda topic: self.watch.ends(topic)[0])
        self.alias = self.act
        lines = f"source.cluster.alias={self.alias}\nsync.group.offsets.interval.seconds=1\n"
        return ("--groups", f"{self.act}-.*"), lines

    def new_alias(self) -> None:
        """Choose another alias of the source for the next start of the mirror; for groups it is a new beginning."""
        assert self.mirror is not None and self.groups is not None
        self.groups.forget()
        old, self.alias = self.alias, f"{self.act}-{next(self._new)}"
        file = self.mirror.source_file
        file.write_text(file.read_text().replace(f"alias={old}\n", f"alias={self.alias}\n"))

    def start_again(self) -> None:
        """Kill the mirror, start it again, and wait until all topics flow."""
        self._kill_mirror()
        self.start_mirror()
        self.wait_until_flowing(_START)

    def _kill_mirror(self) -> None:
        assert self.mirror is not None
        family = self.mirror.descendants()
        if not self.mirror.has_ended:
            self.mirror.kill()
        send_signal(family, 9)  # type: ignore[arg-type]

    def end_act(self) -> None:
        """Kill the mirror and all its processes, and forget its topics."""
        for proxy in (self.source_proxy, self.target_proxy):
            proxy.allow()
        self.load.remove(self.topics)
        self.watch.watch(())
        self.topics = []
        self.surplus.clear()
        if self.status is not None:
            self.status.stop()
            self.status = None
        if self.mirror is not None:
            self._kill_mirror()
            self.mirror = None

    # -- topics

    def new_names(self, count: int) -> list[str]:
        """Return names for topics that the mirror of this act will mirror once they exist."""
        return [f"{self.act}-n{next(self._new):04}" for _ in range(count)]

    def create_on_source(self, names: Iterable[str]) -> None:
        """Create topics on the source, and write to them from now on."""
        new = list(names)
        with admin(self.source) as client:
            client.create_topics({name: {"num_partitions": 1, "replication_factor": 1} for name in new})
        wait_until("the new topics", lambda: self.watched(new), 20 * self.slack)
        self.load.add(new)

    def watched(self, new: Iterable[str]) -> bool:
        """Follow these topics too; return True once the source shows all of them."""
        self.topics += [name for name in new if name not in self.topics]
        self.watch.watch(self.topics)
        return all(self.watch.ends(name)[0] >= 0 for name in self.topics)

    def remove(self, names: Iterable[str]) -> None:
        """Delete topics on both sides."""
        gone = set(names)
        self.load.remove(gone)
        self.topics = [topic for topic in self.topics if topic not in gone]
        self.watch.watch(self.topics)
        for cluster in (self.source, self.target):
            with admin(cluster) as client:
                there = set(client.list_topics()) & gone
                if there:
                    client.delete_topics(sorted(there))

    def delete_records(self, cluster: Cluster, topics: Iterable[str]) -> None:
        """Delete all records that the topics have now."""
        with admin(cluster) as client:
            client.delete_records({TopicPartition(topic, 0): -1 for topic in topics})

    # -- what the mirror keeps beside the records

    def map_end(self) -> int:
        """Return the end offset of the offset map; 0 while there is none."""
        ends = EndOffsets(self.target, MAP, 1)
        try:
            return ends.records()
        finally:
            ends.close()

    def groups_behind(self) -> list[str]:
        """Return the groups whose offsets on the target are not those on the source."""
        return self.groups.behind() if self.groups is not None else []

    # -- what flows

    def is_caught_up(self, topic: str) -> bool:
        """Return True if the target has what the source has, apart from known differences."""
        return min(self.watch.ends(topic)) >= 0 and self.behind(topic) <= 0

    def behind(self, topic: str) -> int:
        """Return how many records the target lacks, apart from known differences and from those that were given up."""
        source, target = self.watch.ends(topic)
        return source + self.surplus[topic] - self.undelivered()[topic] - target

    def misplaced(self, topic: str) -> list[str]:
        """Return what is wrong with the order of the target's records: numbers of one source partition must ascend."""
        parts, origins = (self._numbers(cluster, topic) for cluster in (self.target, self.source))
        numbers = np.concatenate(parts)
        twice, back = len(numbers) - len(np.unique(numbers)), steps_back(parts, origins)
        return [f"{twice} records are there twice"] * bool(twice) + [f"{back} records are out of order"] * bool(back)

    def _numbers(self, cluster: Cluster, topic: str) -> list[npt.NDArray[np.int64]]:
        """Return the numbers of the records in each partition of a topic."""
        known = metadata.ask(cluster.brokers[0].port)
        assert known is not None, f"{cluster.bootstrap} does not answer"
        return [read_log(cluster, topic, partition)["number"] for partition in range(len(known.topics[topic]))]

    def wait_until_flowing(self, within: float, topics: Iterable[str] | None = None) -> float:
        """Wait until every topic has mirrored a record that is written after now; return the seconds that it took."""
        chosen = self.topics if topics is None else list(topics)
        ends = {topic: self.watch.ends(topic)[0] for topic in chosen}

        def flows() -> bool:
            self.check_mirror()
            given_up = self.undelivered()
            return all(
                self.watch.ends(topic)[1] - self.surplus[topic] + given_up[topic] > ends[topic] for topic in chosen
            )

        return wait_until(f"{', '.join(self.waiting(chosen))} flow", flows, within)

    def waiting(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the target does not have completely."""
        return [topic for topic in topics if not self.is_caught_up(topic)]

    def check_mirror(self) -> None:
        """Raise an error if the mirror has ended, or a proxy has made a mistake."""
        mistakes = self.source_proxy.mistakes + self.target_proxy.mistakes
        assert not mistakes, mistakes
        if self.mirror is not None and self.mirror.has_ended:
            raise NotInTime(f"the mirror ended with exit code {self.mirror.wait()}")

    def undelivered(self) -> Counter[str]:
        """Return how many records of each topic the mirror has given up."""
        file = self.directory / self.act / "undelivered"
        rows = file.read_text().splitlines() if file.exists() else []
        return Counter(json.loads(row)["topic"] for row in rows)

    # -- the whole

    def __enter__(self) -> Stage:
        self.source_proxy.start()
        self.target_proxy.start()
        self.load.start()
        self.watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_act()
        self.load.stop()
        self.watch.stop()
        self.source_proxy.stop()
        self.target_proxy.stop()


class StatusWatch(threading.Thread):
    """Asks the status page why partitions wait, and remembers every answer."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{port}/api/partitions"
        self._stopping = threading.Event()
        self.reasons: dict[str, set[str]] = {}

    def run(self) -> None:
        """Ask until `stop`."""
        while not self._stopping.wait(_ASK_EVERY):
            with contextlib.suppress(OSError, ValueError):
                with urllib.request.urlopen(self._address, timeout=2) as answer:
                    rows = json.load(answer)["partitions"]
                for row in rows:
                    if row["why"]:
                        self.reasons.setdefault(row["topic"], set()).add(row["why"])

    def stop(self) -> None:
        """Stop, and wait for the last answer."""
        self._stopping.set()
        self.join()


@contextlib.contextmanager
def admin(cluster: Cluster) -> Iterator[Any]:
    """Yield kafka-python's admin client, without the proxy."""
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        yield client
    finally:
        client.close()


# The proxied listener asks for a login with PLAIN.
_LOGIN = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT",
    "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.proxied.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
}


@contextlib.contextmanager
def table_stage(directory: Path, slack: float = 1.0, *, login: bool = False, groups: bool = False) -> Iterator[Stage]:
    """Start both clusters, of one broker each, and everything around them.

    `login`: the mirror has to log in to both. `groups`: it keeps groups in step.
    """
    settings = {"auto.create.topics.enable": "false", **(_LOGIN if login else {})}
    with (
        Cluster(name="table-source", settings=settings, proxied=True) as source,
        Cluster(name="table-target", settings=settings, proxied=True) as target,
        Stage(directory, source, target, slack, password_login("PLAIN") if login else "", groups=groups) as stage,
    ):
        yield stage


def now() -> float:
    """Return the time on the watch's clock."""
    return time.monotonic()
