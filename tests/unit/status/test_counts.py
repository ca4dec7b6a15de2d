"""What is counted, remembered, and shown of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.control.control_messages import CounterReport, PartitionReport, Report
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import observer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.model.partition_life import Life, Renumbering, Running, Trouble, Waiting
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.status.counts import Counted, Counts, StreamFigures
from mirrormaker.status.history import History
from mirrormaker.status.latency import quantiles
from mirrormaker.status.metrics import Metrics
from mirrormaker.wire.records.batch import SEQUENCES
from mirrormaker.worker.counters import BOUNDS, CLASSES, Counters
from mirrormaker.worker.outlet import Entry
from tests.support.made_up_mirror import MadeUpMirror

OURS = Identity(1, 0)


class Acked:
    """As much of an entry as counters look at."""

    def __init__(self, milliseconds_ago: float, count: int, *, packed: bool = False) -> None:
        self.batch = type("Batch", (), {"max_timestamp": int(time.time() * 1000 - milliseconds_ago)})
        self.unit = type("Unit", (), {"counts": {("", 0): count} if packed else {}})
        self.count = count


def tell(counters: Counters, *entries: Any) -> None:
    for entry in entries:
        counters.delivered(entry)


def test_counters_report_what_is_new_and_only_that() -> None:
    counters = Counters()
    assert counters.collect() is None
    tell(counters, Acked(40, 10), Acked(40, 5, packed=True), Acked(4000, 1))
    news = counters.collect()
    assert news is not None
    assert (news.batches_forwarded, news.batches_repacked) == (2, 1)
    assert sum(count for _, count in news.latency_counts) == 16
    assert [BOUNDS[at] for at, _ in news.latency_counts] == [50, 5000]
    assert news.latency_ms == pytest.approx(4000 + 600, abs=200)
    assert counters.collect() is None
    counters.retries += 1
    news = counters.collect()
    assert news is not None and news.retries == 1


def test_records_without_a_timestamp_have_no_latency_and_those_of_the_future_have_none_to_speak_of() -> None:
    counters = Counters()
    old: Any = Acked(0, 3)
    old.batch.max_timestamp = -1
    tell(counters, old, Acked(-60_000, 2))
    news = counters.collect()
    assert news is not None
    assert news.latency_counts == ((0, 2),)
    assert news.latency_ms == 0
    assert Entry.__slots__.count("unit") == 1, "what was packed here is told by its unit"


@given(st.lists(st.integers(0, 1000), min_size=CLASSES, max_size=CLASSES))
def test_quantiles_lie_within_the_class_that_holds_them(counts: list[int]) -> None:
    found = quantiles(counts)
    if not sum(counts):
        assert found is None
        return
    assert found is not None
    assert list(found) == sorted(found)
    values = [bound for bound, count in zip((*BOUNDS, BOUNDS[-1]), counts, strict=True) for _ in range(count)]
    lower = dict(zip((*BOUNDS, None), (0, *BOUNDS), strict=True))
    exact = values[(len(values) - 1) // 2]
    assert lower[exact] <= found[0] <= exact or exact == BOUNDS[-1]


def test_counts_stay_when_a_partition_goes_to_another_process_and_comes_back() -> None:
    counts = Counts()
    counters = CounterReport(1, 0, ((3, 5),), 20, 0, 1)
    counts.add(("orders", 0), 5, 500, counters)
    counts.add(("orders", 0), 5, 500, None)
    assert counts.partitions["orders", 0].records == counts.all.records == 10
    assert counts.partitions["orders", 0].resumes == 1
    counts.add(("orders", 1), 0, 0, None)
    assert ("orders", 1) not in counts.partitions, "nothing was counted"
    counts.add(("orders", 1), 0, 300, None)
    assert (counts.all.bytes, counts.partitions["orders", 1].bytes) == (1300, 300), "bytes count without a new position"


def test_paces_and_latencies_are_those_of_the_last_moments() -> None:
    counted, now = Counted(), time.monotonic()
    slow = CounterReport(5, 0, ((CLASSES - 1, 100),), 0, 0, 0)
    quick = CounterReport(0, 5, ((2, 100),), 0, 0, 0)
    counted.add(1000, 10_000, slow)
    assert counted.lane == "batches"
    for second in range(70):
        counted.turn(now + second)
    assert counted.pace(now + 70) == (0.0, 0.0)
    assert counted.latency is None
    counted.add(100, 1000, quick)
    assert 100 / 10 <= counted.pace(now + 70)[0] <= 100 / 5
    assert counted.lane == "records"
    latency = counted.latency
    assert latency is not None
    assert max(latency) <= BOUNDS[2]


def test_an_idle_partition_has_no_pace_and_no_latency_though_nobody_has_looked_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, now = Counted(), time.monotonic()
    counted.add(1000, 10_000, CounterReport(5, 0, ((3, 1000),), 0, 0, 0))
    assert counted.pace(now + 4)[0] > 0
    monkeypatch.setattr(time, "monotonic", lambda: now + 100)
    assert counted.pace(now + 100) == (0.0, 0.0)
    assert (counted.latency, counted.lane) == (None, "")
    counted.add(100, 1000, CounterReport(0, 5, ((2, 100),), 0, 0, 0))
    assert counted.pace(now + 101)[0] == 100.0
    assert counted.lane == "records"


def test_a_streams_cpu_time_never_goes_back_though_its_process_is_another() -> None:
    figures = StreamFigures()
    figures.arrived()
    figures.reported(Report(1, cpu_seconds=5.0, memory_bytes=100, buffer_bytes=7))
    figures.left()
    assert (figures.at_work, figures.memory, figures.buffer) == (False, 0, 0)
    figures.arrived()
    figures.reported(Report(1, cpu_seconds=1.0))
    figures.reported(Report(2, cpu_seconds=3.0))
    assert (figures.cpu, figures.starts) == (8.0, 2)


def test_an_hour_is_kept_and_no_more() -> None:
    history, late = History(), [0] * CLASSES
    for at in range(2000):
        late[4] += 10
        history.add(at * 5.0, at * 50, at * 500, at, late)
    columns = history.columns()
    assert {len(column) for name, column in columns.items() if name != "every"} == {720}
    assert columns["time"][-1] - columns["time"][0] == 3600 - 5
    assert (columns["records"][-1], columns["bytes"][-1], columns["lag"][-1]) == (10.0, 100, 1999)
    assert BOUNDS[3] <= columns["p50"][-1] <= columns["p999"][-1] <= BOUNDS[4]
    assert history.columns(after=columns["time"][-2])["time"] == [columns["time"][-1]]


def families(metrics: Metrics, made_up: MadeUpMirror) -> dict[str, Any]:
    text = metrics.of(made_up.snapshot())().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_the_number_of_series_is_bounded_and_the_sums_are_right() -> None:
    made_up = MadeUpMirror(300, topics=30)
    metrics = Metrics(20)
    found = families(metrics, made_up)
    counted = found["mirrormaker_records"].samples
    places = {(sample.labels["topic"], sample.labels["partition"]) for sample in counted}
    assert len(places) <= 20 + 20 + 1
    assert ("other", "other") in places
    assert sum(sample.value for sample in counted) == made_up.mirrored
    again = families(metrics, made_up)["mirrormaker_records"].samples
    before = {tuple(sample.labels.values()): sample.value for sample in counted}
    assert all(sample.value >= before[tuple(sample.labels.values())] for sample in again), "no count goes back"
    assert len(families(Metrics(0), made_up)["mirrormaker_lag_records"].samples) == 1


def test_histograms_are_what_prometheus_expects() -> None:
    found = families(Metrics(10), MadeUpMirror(1))["mirrormaker_latency_seconds"].samples
    buckets = [sample.value for sample in found if sample.name.endswith("_bucket")]
    (count,) = [sample.value for sample in found if sample.name.endswith("_count")]
    (total,) = [sample.value for sample in found if sample.name.endswith("_sum")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == count > 0
    assert total > 0


def reported(offset: int, sequence: int, *, identity: Identity = OURS, records: int = 0, size: int = 0) -> Report:
    cuts = (Cut(0, sequence, offset),)
    position = Position("orders", 0, offset, -1, "", identity, "there", "", 1, cuts)
    return Report(1, (PartitionReport(position, 1, "flowing", records=records, bytes=size, high_watermark=100),))


RUNNING = Life(Running(stream=0, tenancy=1))


def scheduler(sequence: int, identity: Identity = OURS) -> Scheduler:
    nothing: Any = lambda *_: None  # noqa: E731
    reactions = Reactions(lambda: True, nothing, nothing, nothing)
    found = Scheduler(0, 1, ControlServer(), nothing, reactions, "the log")
    position = Position("orders", 0, 10, -1, "", identity, "there", "", 1, (Cut(0, sequence, 10),))
    found.add(OwnedPartition(position, RUNNING, stream=0))
    return found


def test_what_a_killed_stream_had_not_reported_is_counted_by_its_numbers() -> None:
    driver_side = scheduler(sequence=SEQUENCES - 5)
    driver_side.stream_reported(0, reported(20, 5, records=10, size=100))
    owned = driver_side.owned["orders", 0]
    driver_side.stream_left(0)  # it has sent ten more by then
    owned.life, owned.stream = RUNNING, 0
    driver_side.stream_reported(0, reported(30, 15, size=20))
    assert owned.records == driver_side.counts.all.records == 20
    assert driver_side.counts.all.bytes == 120


def test_without_numbers_records_are_counted_as_the_stream_counts_them() -> None:
    nobody = Identity(-1, -1)
    driver_side = scheduler(sequence=0, identity=nobody)
    for records in (4, 9):
        driver_side.stream_reported(0, reported(20, 0, identity=nobody, records=records))
    assert driver_side.counts.partitions["orders", 0].records == 9


@pytest.mark.parametrize(
    ("life", "fields", "shown"),
    [
        (RUNNING, {"state": "flowing"}, ("flowing", "")),
        (RUNNING, {"state": "flowing", "note": "source: away"}, ("waiting", "source: away")),
        (
            RUNNING,
            {"state": "waiting", "note": "NOT_ENOUGH_REPLICAS (19)"},
            ("waiting", "NOT_ENOUGH_REPLICAS (19)"),
        ),
        (RUNNING, {"state": "resuming"}, ("waiting", "reading the target back")),
        (Life(Waiting(clean=True)), {"state": "flowing"}, ("waiting", "for a stream")),
        (Life(Renumbering()), {}, ("waiting", "for a new producer identity")),
        (replace(RUNNING, trouble=Trouble("not authorised")), {"state": "flowing"}, ("stopped", "not authorised")),
    ],
)
def test_a_partition_that_does_not_flow_says_why(life: Life, fields: dict[str, Any], shown: tuple[str, str]) -> None:
    position = Position("orders", 3, 10, -1, "", OURS, "there", "", 1, (Cut(0, 0, 0),))
    found = observer._partition("old", OwnedPartition(position, life, high_watermark=25, **fields))
    assert (found.state, found.why) == shown
    assert (found.topic, found.partition, found.lag) == ("orders", 3, 15)


def test_sources_are_named_after_their_files_and_told_apart() -> None:
    assert observer.source_names(["paris", "london"]) == ["paris", "london"]
    assert observer.source_names(["source", "london", "source"]) == ["source-1", "london", "source-3"]
    assert observer.source_names(["a", "a", "a-1"]) == ["a-2", "a-3", "a-1"]
    assert observer.source_names(["a-2", "a", "a", "a-2"]) == ["a-2-1", "a-3", "a-4", "a-2-4"]
