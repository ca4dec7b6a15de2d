"""Every figure that is shown, compared with an independent count, wherever it is shown."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.api import MirrorStatus
from mirrormaker.console.display import progress_line
from mirrormaker.control.control_messages import CounterReport, PartitionReport, Report
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.loop_watch import LoopWatch
from mirrormaker.driver.observer import Earlier, ObservedSource, Rows, take_snapshot
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.model import partition_life as life
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.status.documents import Status
from mirrormaker.status.event_log import EventLog
from mirrormaker.status.figures import SnapshotSums, Totals
from mirrormaker.status.snapshot import Snapshot

OBSERVING = Path(__file__).parents[3] / "docs" / "observing.md"
CAUGHT_UP = Totals(
    records=10, bytes=1000, lag=0, partitions=4, flowing=4, waiting=0, stopped=0, streams_at_work=2,
)  # fmt: skip


class ScriptedSource:
    """One source with its real scheduler, streams that a test plays, and counts of its own beside."""

    def __init__(self, name: str, partitions: int, streams: int = 2) -> None:
        nothing: Any = lambda *_: None  # noqa: E731
        reactions = Reactions(lambda: True, nothing, nothing, nothing)
        self.name, self.scheduler = name, Scheduler(0, streams, ControlServer(), nothing, reactions, "")
        self.ready = asyncio.Event()
        self.without_start: set[tuple[str, int]] = set()
        self.reported: dict[int, list[int]] = {number: [0, 0] for number in range(partitions)}  # in one tenancy
        self.records = self.bytes = 0  # counted independently
        for number in range(partitions):
            position = Position("orders", number, 0, -1, "", Identity(1, 0), "there", "", 1, (Cut(0, 0, 0),))
            self.scheduler.add(OwnedPartition(position, stream=number % streams))
            self.ready.set()
        self.flow: Any = SimpleNamespace(
            scheduler=self.scheduler,
            ready=self.ready,
            settings=SimpleNamespace(path=f"{name}.properties", group_id="mirror", zookeeper=""),
            source=SimpleNamespace(endpoint=f"{name}:9092", id=name),
            target=SimpleNamespace(endpoint="new:9092", id="new"),
            topic_sync=SimpleNamespace(troubles={}),
            group_sync=None,
            undelivered=SimpleNamespace(count=0),
            renumbering=SimpleNamespace(lost=()),
        )
        self.flow.without_start = self.without_start

    def give(self, number: int) -> None:
        """Give a partition to its stream."""
        owned = self.scheduler.owned["orders", number]
        if not owned.is_running:
            assert owned.stream is not None
            self.scheduler.apply(owned, life.Given(owned.stream, 1))
            self.reported[number] = [0, 0]

    def mirror(self, number: int, records: int, end: int, state: str = "flowing", note: str = "") -> None:
        """Let the partition's stream report so many more records, and the end of the source's log."""
        self.give(number)
        owned, size = self.scheduler.owned["orders", number], records * 100
        sums = self.reported[number]
        sums[0], sums[1] = sums[0] + records, sums[1] + size
        (cut,) = owned.position.cuts
        after = replace(
            owned.position,
            offset=owned.position.offset + records,
            cuts=(cut._replace(sequence=cut.sequence + records, offset=cut.offset + records),),
        )
        counters = CounterReport(1, 0, ((3, records),), 20 * records, 0, 0) if records else None
        part = PartitionReport(after, 1, state, note, sums[0], sums[1], end, counters=counters)
        assert owned.stream is not None
        self.scheduler.stream_reported(owned.stream, Report(number=1, partitions=(part,)))
        self.records, self.bytes = self.records + records, self.bytes + size


def snapshot_of(*sources: ScriptedSource) -> Snapshot:
    observed = [ObservedSource(source.flow, Earlier(), "here-0", "") for source in sources]
    return take_snapshot(observed, Rows(), ("exactly once", "acks=all"), 1, LoopWatch(), False)


def totals_of(*sources: ScriptedSource) -> Totals:
    return SnapshotSums().totals(snapshot_of(*sources), time.monotonic())


def documents_of(*sources: ScriptedSource) -> tuple[Any, Any, dict[str, float]]:
    """Return /api/status, /api/partitions, and the sum of each metric over all its labels."""
    status = Status(lambda: snapshot_of(*sources), EventLog(), 1000)
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(asyncio.run(status.metrics()).decode()):
        for sample in family.samples:
            state = sample.labels.get("state", "")
            sums[sample.name + state] = sums.get(sample.name + state, 0) + sample.value
    return json.loads(status.overview()), json.loads(status.partitions())["partitions"], sums


@pytest.mark.parametrize("seed", range(5))
def test_every_place_shows_the_same_figures_and_they_are_right(seed: int) -> None:
    chance = random.Random(seed)
    sources = [ScriptedSource("paris", 7, streams=3), ScriptedSource("london", 4)]
    ends: dict[tuple[str, int], int] = {}
    offsets: dict[tuple[str, int], int] = {}
    for source in sources:
        for stream in range(source.scheduler.streams):
            if chance.random() < 0.7 or stream == 0:
                source.scheduler.stream_arrived(stream)
        for number in range(len(source.reported)):
            for _ in range(chance.randrange(4)):
                records, key = chance.randrange(50), (source.name, number)
                offsets[key] = offsets.get(key, 0) + records
                ends[key] = offsets[key] + chance.choice([0, 0, 30])
                source.mirror(number, records, ends[key])
    stopped, waiting = ("paris", 0), ("london", 0)
    sources[0].mirror(0, 5, 1000, state="stopped")
    sources[0].scheduler.apply(
        sources[0].scheduler.owned["orders", 0], life.StreamStopped(1, True, "not authorised", False, 0.0)
    )
    sources[1].mirror(0, 5, 2000, note="NOT_ENOUGH_REPLICAS (19)")
    for key, end in ((stopped, 1000), (waiting, 2000)):
        offsets[key], ends[key] = offsets.get(key, 0) + 5, end
    sources[1].without_start.add(("new", 0))

    records, size = sum(s.records for s in sources), sum(s.bytes for s in sources)
    lag = sum(end - offsets[key] for key, end in ends.items())
    unknown = 11 - len(ends) + 1
    flowing = len(ends) - 2
    waits = 12 - flowing - 1
    at_work = sum(stream.at_work for s in sources for stream in s.scheduler.counts.streams.values())
    behind = sum(end > offsets[key] for key, end in ends.items())

    totals = totals_of(*sources)
    assert (totals.records, totals.bytes) == (records, size)
    assert (totals.lag, totals.behind, totals.lag_unknown) == (lag, behind, unknown)
    assert (totals.partitions, totals.flowing, totals.waiting, totals.stopped) == (12, flowing, waits, 1)
    assert totals.streams_at_work == at_work
    for figure in ("lag", "lag_unknown", "partitions", "flowing", "waiting", "stopped", "streams_at_work"):
        assert sum(getattr(source, figure) for source in totals.sources) == getattr(totals, figure), figure
    assert sum(stream.partitions for stream in totals.streams) == 11, "one has no start position, so no stream"
    assert sum(stream.lag for stream in totals.streams) == lag

    line = progress_line(totals)
    assert f"{records:,} records in total, lag {lag:,}, " in line
    assert f"{waits} of 12 partitions wait, 1 partitions stopped" in line

    overview, rows, metrics = documents_of(*sources)
    assert (overview["records"], overview["bytes"], overview["lag"]) == (records, size, lag)
    assert (overview["lag_unknown"], overview["streams_at_work"]) == (unknown, at_work)
    assert overview["partitions"] == {"flowing": flowing, "waiting": waits, "stopped": 1}
    assert overview["standing"] == totals.standing
    assert sum(source["lag"] for source in overview["sources"]) == lag
    assert sum(row["lag"] for row in rows) == lag
    assert sum(row["records"] for row in rows) == records
    assert sum(not row["lag_known"] for row in rows) == unknown
    assert metrics["mirrormaker_records_total"] == metrics["mirrormaker_latency_seconds_count"] == records
    assert (metrics["mirrormaker_bytes_total"], metrics["mirrormaker_lag_records"]) == (size, lag)
    assert (metrics["mirrormaker_lag_unknown_partitions"], metrics["mirrormaker_stream_up"]) == (unknown, at_work)
    states = [metrics[f"mirrormaker_partitions{state}"] for state in ("flowing", "waiting", "stopped")]
    assert states == [flowing, waits, 1]


def test_rates_are_records_over_seconds_and_those_of_streams_add_up() -> None:
    source = ScriptedSource("paris", 4)
    source.scheduler.stream_arrived(0)
    source.scheduler.stream_arrived(1)
    started = time.monotonic()
    for number, records in enumerate((100, 200, 300, 400)):
        source.mirror(number, records, 1000)
    totals = SnapshotSums().totals(snapshot_of(source), started + 4)
    assert totals.records_per_second == pytest.approx(250, rel=0.1)
    assert totals.bytes_per_second == pytest.approx(25_000, rel=0.1)
    assert [stream.records_per_second for stream in totals.streams] == pytest.approx([100, 150], rel=0.1)
    later = SnapshotSums().totals(snapshot_of(source), started + 60)
    assert (later.records, later.records_per_second, later.streams[0].records_per_second) == (1000, 0, 0)


def test_records_stay_counted_when_the_partition_goes_and_when_the_flow_is_replaced() -> None:
    first, second = ScriptedSource("paris", 2), ScriptedSource("paris", 1)
    for number in range(2):
        first.mirror(number, 50, 50)
    first.scheduler.remove(("orders", 0))
    assert (totals_of(first).records, totals_of(first).partitions) == (100, 1)
    second.scheduler.counts = first.scheduler.counts
    second.mirror(0, 7, 7)
    assert (totals_of(second).records, totals_of(second).bytes) == (107, 10_700)


def test_sums_are_those_of_the_last_snapshot() -> None:
    source, rows, sums = ScriptedSource("paris", 2), Rows(), SnapshotSums()
    source.scheduler.stream_arrived(0)

    def totals() -> Totals:
        observed = [ObservedSource(source.flow, Earlier(), "here-0", "")]
        return sums.totals(take_snapshot(observed, rows, ("", ""), 1, LoopWatch(), False), time.monotonic())

    source.mirror(0, 10, 40)
    assert (totals().lag, totals().lag_unknown) == (30, 1)
    source.mirror(0, 10, 40)
    source.mirror(1, 10, 15)
    assert (totals().lag, totals().lag_unknown) == (25, 0)
    source.scheduler.stream_left(0)
    assert totals().streams_at_work == 0


# -- caught up


def test_without_a_stream_nothing_is_caught_up() -> None:
    source = ScriptedSource("paris", 4)
    source.scheduler.stream_arrived(0)
    source.scheduler.stream_arrived(1)
    for number in range(4):
        source.mirror(number, 100, 100)
    assert totals_of(source).standing == "caught up"
    for stream in range(2):
        source.scheduler.stream_left(stream)
    for number, owned in enumerate(source.scheduler):
        owned.source_ends_at(200 if number else 100)  # as the driver asks the source itself
    totals = totals_of(source)
    assert (totals.lag, totals.flowing, totals.waiting, totals.streams_at_work) == (300, 0, 4, 0)
    assert "lag 300, no stream is at work, 4 of 4 partitions wait" in progress_line(totals)
    overview, _, metrics = documents_of(source)
    assert (overview["lag"], overview["standing"], overview["ready"]) == (300, "no stream is at work", False)
    assert overview["not_ready"] == "paris:9092: no stream is at work"
    assert (metrics["mirrormaker_source_ready"], metrics["mirrormaker_stream_up"]) == (0, 0)
    assert metrics["mirrormaker_lag_records"] == 300


def test_a_mirror_whose_streams_never_started_is_behind() -> None:
    source = ScriptedSource("paris", 4)
    assert totals_of(source).standing == "no stream is at work"
    assert totals_of(source).missing == "lag unknown in 4 partitions"
    _, rows, metrics = documents_of(source)
    assert not any(row["lag_known"] for row in rows)
    assert "mirrormaker_lag_records" not in metrics, "nobody may take an unknown lag for 0"
    for owned in source.scheduler:
        owned.source_ends_at(100)
    assert totals_of(source).missing == "lag 400, missing in 4 partitions"


@pytest.mark.parametrize(
    ("changed", "standing"),
    [
        ({}, "caught up"),
        ({"streams_at_work": 0}, "no stream is at work"),
        ({"streams_at_work": 0, "lag": 400}, "no stream is at work"),
        ({"lag_unknown": 1}, "lag unknown in 1 of 4 partitions"),
        ({"partitions": 0, "flowing": 0}, "no partition is assigned to this process"),
        ({"lag": 400}, "not moving"),
        ({"lag": 400, "records_per_second": 100.0}, "caught up in 4 s"),
    ],
)
def test_caught_up_is_said_only_if_it_is_known(changed: dict[str, Any], standing: str) -> None:
    totals = replace(CAUGHT_UP, **changed)
    assert totals.standing == standing
    assert f"lag {totals.lag:,}, {standing}" in progress_line(totals)


def test_a_source_without_streams_is_named_beside_one_that_has_some() -> None:
    paris, london = ScriptedSource("paris", 1), ScriptedSource("london", 1)
    paris.scheduler.stream_arrived(0)
    paris.mirror(0, 1, 1)
    assert totals_of(paris, london).standing == "no stream of london is at work"


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({}, "lag 0"),
        ({"lag": 1400, "behind": 3}, "lag 1,400, missing in 3 partitions"),
        ({"lag": 1, "behind": 1, "lag_unknown": 2}, "lag 1, missing in 1 partition, unknown in 2 partitions"),
        ({"lag_unknown": 4}, "lag unknown in 4 partitions"),
    ],
)
def test_the_last_line_says_what_is_missing(changed: dict[str, Any], missing: str) -> None:
    assert replace(CAUGHT_UP, **changed).missing == missing


def test_the_last_line_names_a_source_of_which_nothing_is_known() -> None:
    paris, london = ScriptedSource("paris", 0), ScriptedSource("london", 0)
    assert totals_of(paris).missing == "lag unknown for source paris: no partition was assigned yet"
    london.ready.set()
    assert totals_of(london).missing == "lag 0"


@pytest.mark.parametrize(
    ("changed", "caught_up"),
    [
        ({}, True),
        ({"flowing": 3, "waiting": 1}, False),
        ({"lag": 1}, False),
        ({"lag_unknown": 1}, False),
        ({"partitions": 0, "flowing": 0}, False),
        ({"running": False, "flowing": 0, "waiting": 4}, True),
        ({"running": False, "flowing": 0, "waiting": 4, "lag_unknown": 1}, False),
        ({"running": False, "flowing": 0, "waiting": 3, "stopped": 1}, False),
    ],
)
def test_programs_are_told_caught_up_only_if_it_is_known(changed: dict[str, Any], caught_up: bool) -> None:
    status = MirrorStatus(True, 10, 1000, 0, 4, 4, 0, 0, 0, 2)
    assert replace(status, **changed).caught_up is caught_up


def test_the_table_for_users_defines_every_figure_of_the_totals() -> None:
    text = OBSERVING.read_text(encoding="utf-8")
    table = text[text.index("| figure | definition |") :].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines())))
    shown = set(Totals.__dataclass_fields__) - {"sources", "streams", "behind"}
    assert shown | {"standing"} <= named
