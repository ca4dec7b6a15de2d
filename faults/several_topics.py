"""A mirror of several topics under a light load: one of them gets into trouble, and the others must not notice."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from tests.support.mirror_process import MirrorProcess, send_signal
from tests.support.topic_flow import TopicLoad, TopicWatch, count_topic
from tests.support.waiting import NotInTime, wait_until

from faults.case import Result
from mirrormaker.embedded import Broker, Cluster, metadata

LIMIT = 2.0  # seconds for which a topic that is not in trouble may stand still
GROUP = "several-topics"
_START = 60.0  # seconds until a new mirror has mirrored a record of every topic
_LEADER = 60.0  # seconds until a new topic has a leader
_CAUGHT_UP = 30.0  # seconds after the load has stopped until every record is on the target


class SeveralTopics:
    """Calm topics, whose pauses are measured all the while, and the mirror. It runs inside `with`."""

    def __init__(
        self,
        result: Result,
        directory: Path,
        source: Cluster,
        target: Cluster,
        calm: Sequence[str] = ("calm-0", "calm-1", "calm-2"),
        *options: str,
        addresses: tuple[str, str] | None = None,
        consumer: str = "",
        producer: str = "",
        create: bool = True,
    ) -> None:
        """`addresses` are those for the mirror, if it does not use the plain listeners.

        Without `create` the case creates the calm topics itself, and adds them.
        """
        self._create = create
        self.result, self.source, self.target, self.calm = result, source, target, list(calm)
        options = ("--num.streams", "2", "--whitelist", ".*", *options)
        self.mirror = MirrorProcess(
            directory, *(addresses or (source.bootstrap, target.bootstrap)), *options, group=GROUP, consumer=consumer,
            producer=producer,
        )  # fmt: skip
        self.load, self.watch = TopicLoad(source.bootstrap), TopicWatch(source.bootstrap, target.bootstrap)
        self._watched: list[str] = []

    def __enter__(self) -> SeveralTopics:
        self.load.start()
        self.watch.start()
        if self._create:
            self.add(self.calm)
        return self

    def __exit__(self, *_: object) -> None:
        self.load.stop_without_waiting()
        self.watch.stop()
        if self.mirror.process is not None:
            family = self.mirror.descendants()
            send_signal(family, signal.SIGCONT)
            if not self.mirror.has_ended:
                self.mirror.kill()
            send_signal(family, signal.SIGKILL)

    # -- topics

    def add(self, topics: Iterable[str], partitions: int = 1, create: bool = True) -> None:
        """Create topics on the source, write to them, and follow them."""
        new = list(topics)
        for topic in new if create else ():
            self.source.create_topic(topic, partitions)
        self.load.add(new, partitions)
        self.follow(new)

    def follow(self, topics: Iterable[str]) -> None:
        """Follow the end offsets of these topics too."""
        self._watched = list(dict.fromkeys([*self._watched, *topics]))
        self.watch.watch(self._watched)

    def start(self, topics: Iterable[str] | None = None) -> None:
        """Start the mirror, and wait until the topics flow: the calm ones by default."""
        self.mirror.start()
        self.wait_until_flowing(self.calm if topics is None else topics, _START)

    # -- troubles

    @contextlib.contextmanager
    def trouble(self, name: str) -> Iterator[None]:
        """Run the block, and check that no calm topic stood still meanwhile."""
        began = time.monotonic()
        try:
            yield
        except AssertionError as error:
            self.result.problems.append(f"{name}: {str(error).splitlines()[0]}")
        if self.mirror.has_ended:
            self.result.problems.append(f"{name}: the mirror ended with exit code {self.mirror.wait()}")
            self.mirror.start()
            with contextlib.suppress(NotInTime):
                self.wait_until_flowing(self.calm, _START)
        pause = max(self.watch.longest_pause(topic, began) for topic in self.calm)
        self.result.longest_pause = max(self.result.longest_pause, pause)
        self.result.rounds += 1
        if pause > LIMIT:
            self.result.problems.append(f"{name}: another topic stood still for {pause:.1f} s; {LIMIT:g} s are allowed")

    def wait_until_flowing(self, topics: Iterable[str], within: float) -> float:
        """Wait until each topic has mirrored a record that is written after now. Return the seconds that it took."""
        chosen = list(topics)
        ends = {topic: self.watch.ends(topic) for topic in chosen}

        def flows() -> bool:
            self.check_mirror()
            return all(self.watch.ends(t)[1] > max(0, ends[t][1]) and self._has_passed(t, ends[t]) for t in chosen)

        return wait_until(f"{', '.join(chosen)} flow", flows, within)

    def _has_passed(self, topic: str, before: tuple[int, int]) -> bool:
        """Return True if the target has got as many records as the source had more than the target."""
        return self.watch.ends(topic)[1] - before[1] > before[0] - before[1] or before[0] < before[1]

    def check_mirror(self) -> None:
        """Raise an error if the mirror has ended."""
        if self.mirror.has_ended:
            last = self.mirror.text.strip().splitlines()[-1:]
            raise NotInTime(f"the mirror ended with exit code {self.mirror.wait()}: {' '.join(last)}")

    def wait_for_line(self, text: str, since: int, within: float = 20.0) -> None:
        """Wait until the mirror's log has this text after its first `since` characters."""
        wait_until(f"the log says {text!r}", lambda: text in self.mirror.text[since:], within)

    # -- the end

    def finish(self, *others: str) -> None:
        """Stop the load and the mirror; count the records of the calm topics, and of others that must be exact."""
        self.load.pause()
        paused = time.monotonic()
        try:
            wait_until(
                "every record is on the target",
                lambda: self.watch.has_looked_since(paused) and self._is_complete([*self.calm, *others]),
                _CAUGHT_UP,
            )
        except NotInTime as error:
            self.result.problems.append(str(error))
        if not self.mirror.has_ended and (code := self.mirror.stop()):
            self.result.problems.append(f"the mirror was asked to stop and ended with exit code {code}")
        for topic in (*self.calm, *others):
            self.result.add(count_topic(self.source, self.target, topic), topic)
        if self.load.failures:
            self.result.problems.append(f"the load itself failed: {self.load.failures[0]}")

    def _is_complete(self, topics: Iterable[str]) -> bool:
        ends = [self.watch.ends(topic) for topic in topics]
        return all(0 <= source <= target for source, target in ends)


@contextlib.contextmanager
def admin(cluster: Cluster) -> Iterator[Any]:
    """Yield kafka-python's admin client."""
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        yield client
    finally:
        client.close()


def set_topic(cluster: Cluster, topic: str, **settings: str) -> None:
    """Change settings of a topic; the dots in their names are underscores here."""
    values = {name.replace("_", "."): value for name, value in settings.items()}
    with admin(cluster) as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, values)])


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Delete a topic, and wait until the cluster does not show it any more."""
    with admin(cluster) as client:
        client.delete_topics([topic])
        wait_until(f"{topic} deleted", lambda: topic not in client.list_topics(), 20)


def create_at(cluster: Cluster, topic: str, brokers: list[int], config: dict[str, str] | None = None) -> None:
    """Create a topic of one partition on these brokers, and wait until it has a leader."""
    with admin(cluster) as client:
        client.create_topics({topic: {"assignments": {0: brokers}, "configs": config or {}}})
    wait_until(f"{topic} has a leader", lambda: find_partition(cluster.brokers[-1], topic) is not None, _LEADER)


def find_partition(broker: Broker, topic: str) -> metadata.Partition | None:
    """Return the topic's first partition as a broker describes it; None if it does not know the topic."""
    known = metadata.ask(broker.port)
    return known.topics[topic][0] if known is not None and topic in known.topics else None
