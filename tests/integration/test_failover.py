"""A failover with real clusters: planned, undone, and one without the source."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.mapping.map_topic import open_map
from mirrormaker.model.offset_map_format import Fence
from tests.support.group_clients import commit, committed, consume, send
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_truth import stored_map
from tests.support.reading import read
from tests.support.wire_clients import wire_client

FOREIGN = 1_000_000  # records of the target's own begin here
EXTRA = "sync.group.offsets.interval.seconds=1\nsource.cluster.alias=west\nsession.timeout.ms=6000\n"


def read_on(cluster: Cluster, topic: str, group: str, most: int) -> list[int]:
    """Read as a member of the group; return the mirrored records."""
    return [number for number in consume(cluster, topic, group, most) if number < FOREIGN]


def mirrored(target: Cluster, topic: str) -> list[int]:
    """Return the mirrored records of a topic, sorted: a record that is there twice comes twice."""
    values = [int(row.value or b"0") for rows in read(target, topic).values() for row in rows]
    return sorted(value for value in values if value < FOREIGN)


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Story:
    """Everything that was seen, in its order."""

    topic: str
    done: dict[str, Done] = field(default_factory=dict)
    fences: dict[str, Fence | None] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)  # exit codes of the mirror
    lines: dict[str, str] = field(default_factory=dict)  # its last lines
    read: dict[str, list[int]] = field(default_factory=dict)  # numbers, by their place in the story


class Stage:
    """Two clusters, a mirror and a group, and the commands of the operator."""

    def __init__(self, source: Cluster, target: Cluster, directory: Path) -> None:
        self.source, self.target = source, target
        self.topic = f"failover-{uuid.uuid4().hex[:6]}"
        self.group = f"{self.topic}-readers"
        self.other = f"other-{self.topic}"  # the group reads it, and it is not mirrored
        self.story = Story(self.topic)
        for cluster in (source, target):
            cluster.create_topic(self.topic, partitions=2)
        send(target, self.topic, FOREIGN, 7)
        client = wire_client(source.bootstrap)
        asyncio.run(client.refresh())
        self.source_id = client.id
        self.options = ("--whitelist", self.topic, "--groups", f"{self.topic}.*")
        self.mirror = MirrorProcess(
            directory, source.bootstrap, target.bootstrap, *self.options, group=f"mirror-{self.topic}", consumer=EXTRA
        )

    def failover(self, name: str, *options: str) -> Done:
        """Run the command, and remember how it ended and whether the flow is closed then."""
        files = ("--consumer.config", str(self.mirror.source_file), "--producer.config", str(self.mirror.target_file))
        chosen = () if "--undo" in options else self.options
        line = [sys.executable, "-m", "mirrormaker.cli", "failover", *files, *chosen, *options]
        done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
        self.story.done[name] = Done(done.returncode, done.stdout, done.stderr)
        self.story.fences[name] = asyncio.run(self._fence())
        return self.story.done[name]

    async def _fence(self) -> Fence | None:
        client = wire_client(self.target.bootstrap)
        try:
            return (await open_map(client, self.source_id)).fence
        finally:
            client.close()
            await asyncio.sleep(0)

    def ended(self, name: str) -> None:
        """Wait for the end of the mirror, and remember it."""
        self.story.ends[name] = self.mirror.wait(40)
        self.story.lines[name] = self.mirror.text.strip().splitlines()[-1]

    def wait_for_mirror(self, count: int) -> None:
        """Wait until so many records are mirrored."""
        self.mirror.wait_until(lambda: len(mirrored(self.target, self.topic)) >= count)

    def wait_for_map(self, count: int) -> None:
        """Wait until the map is stored up to so many records: without the source, nobody else knows where they are."""

        def is_stored() -> bool:
            stored = stored_map(self.source, self.target)
            return sum(stored.read((self.topic, partition)).end for partition in range(2)) == count

        self.mirror.wait_until(is_stored)

    def wait_for_group(self) -> None:
        """Wait until the group is on the target where it is on the source."""
        expected = 7 + len(self.story.read["on the source"])
        self.mirror.wait_until(lambda: sum(committed(self.target, self.group, self.topic).values()) == expected)


@pytest.fixture(scope="module")
def story(target: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Fail over, undo it, mirror on, and fail over again when the source is gone."""
    with Cluster(settings={"auto.create.topics.enable": "false"}, name="left") as source:
        stage = Stage(source, target, tmp_path_factory.mktemp("failover"))
        topic, story, mirror = stage.topic, stage.story, stage.mirror
        send(source, topic, 0, 2000)
        story.read["on the source"] = read_on(source, topic, stage.group, 900)
        with mirror:
            stage.wait_for_mirror(2000)
            stage.wait_for_group()
            source.create_topic(stage.other)
            commit(source, stage.group, stage.other, {0: 0})
            stage.failover("dry", "--dry.run", "--json")
            stage.failover("planned", "--json")
            stage.ended("fenced")
            mirror.start()
            stage.ended("restarted")
            with_map, options = mirror.target_file.read_text(), mirror.options
            mirror.target_file.write_text(with_map + "offset.map=false\n")
            mirror.options = options[:2]  # groups need the map
            mirror.start()
            stage.ended("restarted without a map")
            mirror.target_file.write_text(with_map)
            mirror.options = options
            stage.failover("again")
            stage.failover("undo", "--undo")
            send(source, topic, 2000, 500)
            stage.failover("too late", "--deadline.ms", "2500")
            mirror.start()
            stage.wait_for_mirror(2500)
            story.read["mirrored"] = mirrored(target, topic)
            story.read["on the source"] += read_on(source, topic, stage.group, 300)
            stage.wait_for_group()
            stage.wait_for_map(2500)
            for server in [*source.brokers, *source.support]:
                server.kill()
            stage.failover("gone", "--source.is.gone", "--json")
            stage.ended("fenced without a source")
            stage.failover("shown", "--source.is.gone", "--dry.run")
        story.read["on the target"] = read_on(target, topic, stage.group, 10_000)
        yield story


def test_a_dry_run_writes_nothing_and_shows_the_tables(story: Story) -> None:
    done = story.done["dry"]
    assert story.fences["dry"] is None
    found = done.json
    assert done.code == 0, done.out + done.errors
    assert found["dry_run"] is True and found["closed"] is False
    (topic,) = found["topics"]
    assert (topic["topic"], topic["mirrored"], topic["missing"]) == (story.topic, 2000, 0)
    assert topic["timestamp"] > 1_700_000_000_000


def test_a_planned_failover_finds_everything_and_every_group_ready(story: Story) -> None:
    done = story.done["planned"]
    assert done.code == 0, done.out + done.errors
    assert story.fences["planned"] is not None
    found = done.json
    assert (found["closed"], found["complete"], found["source_answered"]) == (True, True, True)
    (topic,), (group,) = found["topics"], found["groups"]
    assert (topic["mirrored"], topic["missing"], topic["lost"]) == (2000, 0, 0)
    assert (group["state"], group["again"], group["missing"]) == ("synced", 0, 0)
    assert group["left_out"] == [f"other-{story.topic}"]
    assert sum(group["offsets"].values()) == 7 + 900
    for line in ("everything is mirrored", "the flow is closed", "no mirror runs any more"):
        assert line in done.errors


def test_a_running_mirror_stops_at_the_fence_and_does_not_start_again(story: Story) -> None:
    for name in ("fenced", "restarted", "restarted without a map", "fenced without a source"):
        assert story.ends[name] == 1, story.lines[name]
        assert "this flow was closed by a failover at " in story.lines[name]
        assert "mirrormaker failover --undo" in story.lines[name]


def test_a_flow_that_is_closed_already_is_an_error_with_three_ways_out(story: Story) -> None:
    done = story.done["again"]
    assert done.code == 1 and done.out == ""
    assert "this flow was closed by a failover at " in done.errors.splitlines()[-1]
    for option in ("--dry.run", "--repeat", "--undo"):
        assert option in done.errors


def test_undo_lets_the_mirror_go_on_without_a_lost_or_doubled_record(story: Story) -> None:
    assert story.done["undo"].code == 0 and story.fences["undo"] is None
    assert "it is open again" in story.done["undo"].out
    assert story.read["mirrored"] == list(range(2500))


def test_records_that_are_not_mirrored_in_time_leave_the_flow_open(story: Story) -> None:
    done = story.done["too late"]
    assert done.code == 3 and story.fences["too late"] is None
    assert "500 records" in done.out and "nothing was changed" in done.out
    assert done.errors.count("waiting for the mirror: 500 records") == 2
    assert "no mirror runs" in done.errors


def test_a_failover_without_the_source_has_everything_that_the_mirror_brought(story: Story) -> None:
    done = story.done["gone"]
    assert done.code == 0, done.out + done.errors
    assert story.fences["gone"] is not None
    found = done.json
    assert (found["closed"], found["source_answered"]) == (True, False)
    (topic,), (group,) = found["topics"], found["groups"]
    assert topic["mirrored"] + topic["unmapped"] == 2500
    assert topic["missing"] is None and 0 <= topic["seconds_since"] < 300
    assert group["state"] == "synced"
    assert sum(group["offsets"].values()) == 7 + len(story.read["on the source"])
    assert group["again"] == 2507 - sum(group["offsets"].values())
    assert "what was written in the last" in story.done["shown"].out


def test_the_group_reads_every_record_once(story: Story) -> None:
    assert sorted(story.read["on the source"] + story.read["on the target"]) == list(range(2500))
