"""What is counted, remembered, and shown of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import observer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Consequences, Scheduler
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.status import counts as counts_module
from mirrormaker.status.counts import Counted, Counts, StreamFigures
from mirrormaker.status.event_log import Events, kind_of
from mirrormaker.status.history import History
from mirrormaker.status.latency import quantiles
from mirrormaker.status.metrics import Metrics
from mirrormaker.wire.records.batch import SEQUENCES
from mirrormaker.worker.counters import BOUNDS, CLASSES, Counters
from mirrormaker.worker.outlet import Entry
from tests.support.made_up_mirror import MadeUpMirror

OURS = Identity(1, 0)
FLOW = Path(counts_module.__file__).parent.parent / "driver"


class Acked:
    """As much of an entry as a tally looks at."""

    def __init__(self, milliseconds_ago: float, count: int, *, packed: bool = False) -> None:
        self.batch = type("Batch", (), {"max_timestamp": int(time.time() * 1000 - milliseconds_ago)})
        self.unit = type("Unit", (), {"counts": {("", 0): count} if packed else {}})
        self.count = count


def tell(counters: Counters, *entries: Any) -> None:
    for entry in entries:
        counters.delivered(entry)


def test_a_tally_tells_what_is_new_and_only_that() -> None:
    counters = Counters()
    assert counters.news() == {}
    tell(counters, Acked(40, 10), Acked(40, 5, packed=True), Acked(4000, 1))
    news = counters.news()["tally"]
    assert news["lanes"] == (2, 1)
    assert sum(count for _, count in news["late"]) == 16
    assert [BOUNDS[at] for at, _ in news["late"]] == [50, 5000]
    assert news["late_ms"] == pytest.approx(4000 + 600, abs=200)
    assert counters.news() == {}
    counters.retries += 1
    assert counters.news()["tally"]["retries"] == 1


def test_records_without_a_timestamp_have_no_latency_and_those_of_the_future_have_none_to_speak_of() -> None:
    counters = Counters()
    old: Any = Acked(0, 3)
    old.batch.max_timestamp = -1
    tell(counters, old, Acked(-60_000, 2))
    news = counters.news()["tally"]
    assert news["late"] == [(0, 2)]
    assert news["late_ms"] == 0
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
    counters = {"lanes": (1, 0), "late": [(3, 5)], "late_ms": 20, "retries": 0, "resumes": 1}
    counts.add(("orders", 0), 5, 500, counters)
    counts.add(("orders", 0), 5, 500, None)
    assert counts.partitions["orders", 0].records == counts.all.records == 10
    assert counts.partitions["orders", 0].resumes == 1
    counts.add(("orders", 1), 0, 0, None)
    assert ("orders", 1) not in counts.partitions, "nothing was counted"


def test_paces_and_latencies_are_those_of_the_last_moments() -> None:
    counted, now = Counted(), time.monotonic()
    slow = {"lanes": (5, 0), "late": [(CLASSES - 1, 100)], "late_ms": 0, "retries": 0, "resumes": 0}
    quick = {"lanes": (0, 5), "late": [(2, 100)], "late_ms": 0, "retries": 0, "resumes": 0}
    counted.add(1000, 10_000, slow)
    assert counted.lane == "batches"
    for second in range(70):
        counted.turn(now + second)
    assert counted.pace(now + 70) == (0.0, 0.0)
    assert counted.latency is None
    counted.add(100, 1000, quick)
    assert counted.pace(now + 70)[0] == pytest.approx(100 / 10, rel=0.5)
    assert counted.lane == "records"
    latency = counted.latency
    assert latency is not None
    assert max(latency) <= BOUNDS[2]


def test_a_streams_cpu_time_never_goes_back_though_its_process_is_another() -> None:
    figures = StreamFigures()
    figures.arrived()
    figures.reported({"cpu": 5.0, "memory": 100, "buffer": 7})
    figures.left()
    assert (figures.at_work, figures.memory, figures.buffer) == (False, 0, 0)
    figures.arrived()
    figures.reported({"cpu": 1.0})
    figures.reported({"cpu": 3.0})
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


def test_events_are_bounded_and_asked_for_by_number() -> None:
    events = Events()
    for number in range(1, 1001):
        events.add(f"waiting: orders-{number}: away")
    assert [event.number for event in events.after(998)] == [999, 1000]
    assert len(events.after(0)) == 500
    assert events.after(1000) == []


def test_what_is_said_again_with_another_number_of_seconds_is_no_news() -> None:
    events = Events()
    for seconds in (5, 10, 15):
        events.add(f"waiting for Spark to start the streams ({seconds} s)")
    events.add("stream 1 is back")
    assert [event.text for event in events.after(0)] == [
        "waiting for Spark to start the streams (5 s)",
        "stream 1 is back",
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("stream 1 is gone; its 12 partitions are taken over from what was last reported", "takeover"),
        ("stream 1 stays away: 12 partitions go to the others", "takeover"),
        (
            "stream 1 has not been at work for 30 s: has Spark a free slot for it, and do its tasks start? See x",
            "takeover",
        ),
        ("Spark's JVM has died; starting another", "takeover"),
        ("the Spark job ended: Job aborted; starting another", "takeover"),
        ("stream 1 is back", "recovered"),
        ("waiting: orders-3: NotEnoughReplicas (19)", "waiting"),
        ("waiting: orders-3: source: cannot be reached", "waiting"),
        ("all partitions flow again", "recovered"),
        ("orders-3 flows again", "recovered"),
        ("LOST orders-3: source offsets 100 to 299 were gone before they were mirrored: 200 records", "lost"),
        ("orders-3: the record at source offset 17 cannot be delivered: too large (written to x)", "undelivered"),
        ("orders-3 stops at source offset 4711: not authorised", "stopped"),
        ("created orders on the target with 8 partitions", "topic"),
        ("orders: the source topic was deleted and created again; mirroring it from its start", "topic"),
        ("rebalance: 4 partitions come, 0 go, 12 are mirrored here", "rebalance"),
        ("orders-1 is moved from stream 0 to the less busy 1", "rebalance"),
        ("orders-1: source offset 5 is out of range; going on at source offset 100", "again"),
        ("SIGTERM: stopping; waiting for the target's last answers", "stopped"),
        ("packing the libraries that executors need; they are kept for the next time", "note"),
    ],
)
def test_every_kind_of_event_is_known_by_its_words(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_the_words_of_events_are_those_that_flows_say() -> None:
    said = "".join(path.read_text() for path in FLOW.glob("*.py"))
    for words in ("is gone", "stays away", "is back", "LOST ", "waiting: ", "flows again", "created ", "rebalance: "):
        assert words in said, f"nobody says {words!r} any more: what tells such an event now?"


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


def reported(offset: int, sequence: int, *, identity: Identity = OURS, **more: Any) -> dict[str, Any]:
    cuts = (Cut(0, sequence, offset),)
    position = Position("orders", 0, offset, -1, "", identity, "there", "", 1, cuts)
    figures = {"records": 0, "bytes": 0, "end": 100, "state": "flowing", "note": "", "clean": False, **more}
    return {"topic": "orders", "partition": 0, "position": position.to_json(), "tenancy": 1, **figures}


def scheduler(sequence: int, identity: Identity = OURS) -> Scheduler:
    nothing: Any = lambda *_: None  # noqa: E731
    found = Scheduler(
        0, 1, ControlServer(), nothing, Consequences(lambda: True, nothing, nothing, nothing, nothing), "the log"
    )
    position = Position("orders", 0, 10, -1, "", identity, "there", "", 1, (Cut(0, sequence, 10),))
    found.holdings = {("orders", 0): OwnedPartition(position, clean=True, stream=0, given=True, tenancy=1)}
    return found


def test_what_a_killed_stream_had_not_reported_is_counted_by_its_numbers() -> None:
    desk_side = scheduler(sequence=SEQUENCES - 5)
    desk_side.reported(0, {"partitions": [reported(20, 5, records=10, bytes=100)], "finished": []})
    holding = desk_side.holdings["orders", 0]
    desk_side.left(0)  # it has sent ten more by then
    holding.given, holding.tenancy, holding.stream = True, 1, 0
    desk_side.reported(0, {"partitions": [reported(30, 15, bytes=20)], "finished": []})
    assert holding.records == desk_side.counts.all.records == 20
    assert desk_side.counts.all.bytes == 120


def test_without_numbers_records_are_counted_as_the_stream_counts_them() -> None:
    nobody = Identity(-1, -1)
    desk_side = scheduler(sequence=0, identity=nobody)
    for records in (4, 9):
        desk_side.reported(0, {"partitions": [reported(20, 0, identity=nobody, records=records)], "finished": []})
    assert desk_side.counts.partitions["orders", 0].records == 9


@pytest.mark.parametrize(
    ("holding", "shown"),
    [
        ({"given": True, "state": "flowing"}, ("flowing", "")),
        ({"given": True, "state": "flowing", "note": "source: away"}, ("waiting", "source: away")),
        ({"given": True, "state": "waiting", "note": "NotEnoughReplicas (19)"}, ("waiting", "NotEnoughReplicas (19)")),
        ({"given": True, "state": "resuming"}, ("waiting", "reading the target back")),
        ({"given": False, "state": "flowing"}, ("waiting", "for a stream")),
        ({"given": False, "busy": True}, ("waiting", "for new numbers")),
        ({"given": True, "stopped": "not authorised", "state": "flowing"}, ("stopped", "not authorised")),
    ],
)
def test_a_partition_that_does_not_flow_says_why(holding: dict[str, Any], shown: tuple[str, str]) -> None:
    position = Position("orders", 3, 10, -1, "", OURS, "there", "", 1, (Cut(0, 0, 0),))
    found = observer._partition("old", OwnedPartition(position, clean=True, end=25, **holding))
    assert (found.state, found.why) == shown
    assert (found.topic, found.partition, found.lag) == ("orders", 3, 15)


def test_sources_are_named_after_their_files_and_told_apart() -> None:
    assert observer._names(["paris", "london"]) == ["paris", "london"]
    assert observer._names(["source", "london", "source"]) == ["source-1", "london", "source-3"]
    assert observer._names(["a", "a", "a-1"]) == ["a-2", "a-3", "a-1"]
    assert observer._names(["a-2", "a", "a", "a-2"]) == ["a-2-1", "a-3", "a-4", "a-2-4"]
