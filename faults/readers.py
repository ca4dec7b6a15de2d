"""`python -m faults --readers`: consumer groups move to the target; how many records does each read a second time?

The same with our mirror and with MirrorMaker 2, both with their defaults. Each record holds its own number, so the first
record that a group would read on the target tells where it goes on.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kafka import KafkaConsumer, TopicPartition
from tests.support.group_clients import commit, committed
from tests.support.java_mirrors import Job, start_mm2, start_ours, stop
from tests.support.raw_requests import RawConnection, produce_many, produce_request, record_batch
from tests.support.topics import EndOffsets
from tests.support.waiting import NotInTime, wait_until

from faults.report import store_readers
from mirrormaker.embedded import Cluster, child_processes

MIRRORS = {"ours": "ours", "mm2": "MirrorMaker 2 (4.3.1)"}
RECORDS = 1_200_000
BEHIND = (0, 1_000, 50_000, 1_000_000)  # records between a group's offset and the end of the source's log
_FOREIGN = 7  # records of another writer on the target: offsets differ on both sides
_IN_BATCH = 1000
_COPIED, _MOVED = (
    300.0,
    240.0,
)  # seconds; MirrorMaker 2 looks at groups every minute, and again ten minutes later for new ones
_TOPIC = "orders"

# All that MirrorMaker 2 needs to move groups; its intervals are its defaults.
_MM2 = {
    "emit.checkpoints.enabled": "true",
    "emit.offset-syncs.enabled": "true",
    "sync.group.offsets.enabled": "true",
    "refresh.groups.enabled": "true",
    "offset-syncs.topic.replication.factor": "1",
}


def run(progress: Callable[[str], None]) -> bool:
    """Move the groups with both mirrors and store the figures. Return True if ours read nothing again and missed nothing."""
    exact = False
    for mirror, title in MIRRORS.items():
        progress(f"{title}: writing {RECORDS:,} records")
        again = _move(mirror, lambda text, title=title: progress(f"{title}: {text}"))  # type: ignore[misc]
        for behind, count in again.items():
            progress(f"{title}: a group {behind:,} records behind {_words(count)}")
        store_readers(title, {str(behind): count for behind, count in again.items()})
        exact = exact or (mirror == "ours" and set(again.values()) == {0})
    return exact


def _words(count: int | None) -> str:
    if count is None:
        return f"was not moved within {_MOVED:g} s"
    return f"misses {-count:,} records" if count < 0 else f"reads {count:,} records again"


def _move(mirror: str, progress: Callable[[str], None]) -> dict[int, int | None]:
    """Return how many records each group reads again on the target; negative if it misses some, None if it was not moved."""
    settings = {"auto.create.topics.enable": "false"}
    with (
        tempfile.TemporaryDirectory() as directory,
        Cluster(name="readers-source", settings=settings, heap="1g") as source,
        Cluster(name="readers-target", settings=settings, heap="1g") as target,
    ):
        for cluster in (source, target):
            cluster.create_topic(_TOPIC)
        _write(target, [b"foreign"] * _FOREIGN)
        _write(source, [b"%d" % number for number in range(RECORDS)])
        groups = {behind: f"readers-{behind}" for behind in BEHIND}
        for behind, group in groups.items():
            commit(source, group, _TOPIC, {0: RECORDS - behind})
        job = Job(_TOPIC, source.bootstrap, target.bootstrap, Path(directory), mirror)
        with Path(directory, "log").open("wb") as log:
            process = _start(mirror, job, log)
            try:
                progress("copying")
                ends = EndOffsets(target, _TOPIC, 1)
                wait_until("every record", lambda: ends.records() == RECORDS + _FOREIGN, _COPIED)
                ends.close()
                progress("waiting until the groups are on the target")
                found = _wait_for_groups(target, groups)
                stop(process)
            finally:
                child_processes.end(process, signal.SIGKILL)
        return {
            behind: None if behind not in found else RECORDS - behind - _first_number(target, found[behind])
            for behind in BEHIND
        }


def _start(mirror: str, job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return start_mm2(job, log, _MM2) if mirror == "mm2" else start_ours(job, log, "--groups", "readers-.*")


def _wait_for_groups(target: Cluster, groups: dict[int, str]) -> dict[int, int]:
    """Return the offsets of the groups on the target, once all of them are there and do not change any more."""
    found: dict[int, int] = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal found, since
        seen = {behind: rows[0] for behind, name in groups.items() if (rows := committed(target, name, _TOPIC))}
        if seen != found:
            found, since = seen, time.monotonic()
        # A mirror may correct itself in its next rounds: MirrorMaker 2 has one a minute.
        return len(found) == len(groups) and time.monotonic() - since > 70

    with contextlib.suppress(NotInTime):
        wait_until("all groups", is_settled, _MOVED)
    return found


def _first_number(target: Cluster, offset: int) -> int:
    """Return the number of the first record that a consumer reads at an offset; of the next one to come at the log's end."""
    consumer = KafkaConsumer(bootstrap_servers=target.bootstrap, consumer_timeout_ms=5000)
    part = TopicPartition(_TOPIC, 0)
    consumer.assign([part])
    consumer.seek(part, offset)
    number = next((int(record.value) for record in consumer if record.value != b"foreign"), RECORDS)
    consumer.close()
    return number


def _write(cluster: Cluster, values: list[bytes]) -> None:
    connection = RawConnection(cluster.brokers[0].port)
    requests = [
        produce_request(_TOPIC, {0: record_batch(values[start : start + _IN_BATCH])})
        for start in range(0, len(values), _IN_BATCH)
    ]
    for _ in produce_many([connection], requests, len(requests), 1):
        pass
    connection.close()
