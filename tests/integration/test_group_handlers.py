"""Consumer groups on the target where a message handler decides which source partitions share a target partition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.embedded import Cluster
from tests.support.group_clients import commit, committed, consume, send
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import read
from tests.support.waiting import wait_until

INTERVAL = "sync.group.offsets.interval.seconds=1\nsource.cluster.alias=east\n"
HANDLERS = """
from dataclasses import replace

def together(record):
    return [replace(record, topic=record.topic.rsplit(".", 1)[0] + ".all")]

def half(record):
    return [record] if int(record.value) % 4 < 2 else []
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "group_handlers.py").write_text(HANDLERS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


def process(directory: Path, source: Cluster, target: Cluster, topics: str, handler: str, group: str) -> MirrorProcess:
    """Return a mirror with a message handler; several of one group share the partitions."""
    directory.mkdir()
    options = ("--whitelist", topics, "--groups", f"{group}.*", "--message.handler", f"group_handlers:{handler}")
    return MirrorProcess(
        directory, source.bootstrap, target.bootstrap, *options, group=f"mirror-{group}", consumer=INTERVAL
    )


def has_records(cluster: Cluster, topic: str, count: int) -> bool:
    return sum(map(len, read(cluster, topic).values())) == count


def command(mirror: MirrorProcess, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    files = ("--consumer.config", str(mirror.source_file), "--producer.config", str(mirror.target_file))
    line = [sys.executable, "-m", "mirrormaker.cli", name, *files, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)


def ask(mirror: MirrorProcess, name: str, topics: str, group: str) -> tuple[int, Any]:
    """Return the exit code and the JSON document of a command about groups."""
    done = command(mirror, name, "--whitelist", topics, "--groups", group, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_two_topics_into_one_start_at_the_earliest_place_of_both(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    names = [f"{topic_name}.one", f"{topic_name}.two"]
    together, group = f"{topic_name}.all", f"{topic_name}-readers"
    target.create_topic(together, partitions=1)
    for name in names:
        source.create_topic(name, partitions=1)
        target.create_topic(name, partitions=1)
    topics = ",".join(names)
    parts = [process(tmp_path / name, source, target, topics, "together", topic_name) for name in "ab"]
    with parts[0] as first, parts[1] as second:
        for mirror in parts:
            mirror.wait_for("caught up", 150)
        for number, name in enumerate(names):
            send(source, name, number * 100, 100, partitions=1)
            wait_until("it is mirrored", partial(has_records, target, together, number * 100 + 100), 60)
        commit(source, group, names[0], {0: 40})
        commit(source, group, names[1], {0: 70})
        first.wait_until(lambda: committed(target, group, together) == {0: 40})
        seen = []
        for _ in range(20):
            seen.append(committed(target, group, together))
            time.sleep(0.25)
        assert seen == [{0: 40}] * 20, seen
        assert f"{topic_name}.one-0" in first.text + second.text
        code, document = ask(first, "groups", topics, group)
        (row,) = [row for row in document["sources"][0]["groups"] if row["topic"] == together]
        assert (row["state"], row["target_offset"], row["read_again"]) == ("synced", 40, 130)
        # Where nothing is left to be read, nothing is read again.
        for name in names:
            commit(source, group, name, {0: 100})
        second.wait_until(lambda: committed(target, group, together) == {0: 200})
        code, document = ask(first, "groups", topics, group)
        assert (code, {row["read_again"] for row in document["sources"][0]["groups"]}) == (0, {0}), document


def test_nobody_reads_again_what_a_handler_has_passed_on(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=2)
    target.create_topic(topic_name, partitions=2)
    send(source, topic_name, 0, 400)
    group = f"{topic_name}-readers"
    commit(source, group, topic_name, {0: 200, 1: 200})
    with process(tmp_path / "mirror", source, target, topic_name, "half", topic_name) as mirror:
        mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 100, 1: 100}, 150)
        code, document = ask(mirror, "groups", topic_name, group)
        (row,) = document["sources"][0]["groups"]
        assert (code, row["state"], row["read_again"], row["missing"]) == (0, "synced", 0, 0), row
        # Records that come now do not move the group, and the last round of a failover does not either.
        send(source, topic_name, 400, 400)
        wait_until("it is mirrored", partial(has_records, target, topic_name, 400), 60)
        time.sleep(3)
        assert committed(target, group, topic_name) == {0: 100, 1: 100}
        code, document = ask(mirror, "failover", topic_name, group)
        assert code == 0, document
        assert committed(target, group, topic_name) == {0: 100, 1: 100}
        # Other tests mirror from this source too.
        assert command(mirror, "failover", "--undo").returncode == 0
    assert sorted(consume(target, topic_name, group, 10_000)) == [n for n in range(400, 800) if n % 4 < 2]
