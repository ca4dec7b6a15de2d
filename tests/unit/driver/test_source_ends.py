"""The lag of partitions that no stream mirrors is what the source says, and unknown if it says nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_messages import PartitionReport, Report
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import source_ends
from mirrormaker.driver.owned_partition import NO_IDENTITY, OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.driver.source_ends import SourceEnds
from mirrormaker.errors import ConnectionLost
from mirrormaker.model import partition_life as life
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster_description import Partition
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import ListOffsetsRequest
from tests.support.scripted_logs import ScriptedLogs

OURS = Identity(1, 0)


class Source(ScriptedLogs):
    """A source whose logs end where the test says, with one broker for each partition."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        super().__init__(dict.fromkeys(ends, ()))
        self.ends = ends
        self.asked: list[TopicPartition] = []
        self.isolation: set[int] = set()
        self.dead: set[int] = set()  # brokers that refuse connections
        self.frozen: set[int] = set()  # brokers that never answer
        self.brokers = {number: ("there", 9092) for _, number in ends}
        for topic, number in ends:
            self.topics[topic].partitions[number] = Partition(number, 0, 1)

    async def ask(self, request: Any, node: int | None = None, **more: Any) -> Any:
        assert isinstance(request, ListOffsetsRequest)
        self.isolation.add(request.isolation_level)
        self.asked += [(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
        if node in self.frozen:
            await asyncio.sleep(60)
        if node in self.dead:
            raise ConnectionLost("scripted")
        return await super().ask(request, node, **more)

    def _offset(self, key: TopicPartition, when: int, replica: int) -> int:
        return self.ends[key]


def position(number: int, offset: int = 10, identity: Identity = OURS) -> Position:
    return Position("orders", number, offset, -1, "", identity, "there", "", 1, (Cut(0, 0, 0),))


def scheduler_with(*partitions: int) -> Scheduler:
    nothing: Any = lambda *_: None  # noqa: E731
    scheduler = Scheduler(0, 1, ControlServer(), nothing, Reactions(lambda: True, nothing, nothing, nothing), "")
    for number in partitions:
        scheduler.add(OwnedPartition(position(number), stream=0))
    return scheduler


def flow(scheduler: Scheduler, number: int, high_watermark: int, state: str = "flowing", note: str = "") -> None:
    """Give a partition to stream 0, if it has it not yet, and let the stream report."""
    owned = scheduler.owned["orders", number]
    if not owned.is_running:
        scheduler.apply(owned, life.Given(0, 1))
    reported = PartitionReport(owned.position, 1, state, note, 0, 0, high_watermark)
    scheduler.stream_reported(0, Report(number=1, partitions=(reported,)))


def look(source: Source, scheduler: Scheduler, read_committed: bool = False) -> dict[int, int | None]:
    """Look once, as the driver does every few seconds; return the lags that are known."""
    ends = SourceEnds(source, read_committed, scheduler)
    asyncio.run(ends.look(list(scheduler.not_flowing), 0.2))
    return {key[1]: owned.lag if owned.is_lag_known else None for key, owned in scheduler.owned.items()}


def test_records_that_come_while_no_stream_runs_are_lag() -> None:
    source, scheduler = Source({("orders", 0): 10, ("orders", 1): 110}), scheduler_with(0, 1)
    assert not any(owned.is_lag_known for owned in scheduler), "nobody has said anything yet"
    assert look(source, scheduler) == {0: 0, 1: 100}
    source.ends["orders", 0] = 410
    assert look(source, scheduler) == {0: 400, 1: 100}
    source.ends["orders", 0] = 30  # an unclean election
    assert look(source, scheduler) == {0: 20, 1: 100}


def test_the_last_report_of_a_stream_that_died_does_not_count() -> None:
    source, scheduler = Source({("orders", 0): 410}), scheduler_with(0)
    flow(scheduler, 0, high_watermark=10)
    assert scheduler.owned["orders", 0].lag == 0
    scheduler.stream_left(0)
    assert look(source, scheduler) == {0: 400}


def test_the_driver_asks_only_for_partitions_that_do_not_flow() -> None:
    source, scheduler = Source({("orders", number): 50 for number in range(5)}), scheduler_with(*range(5))
    flow(scheduler, 0, high_watermark=30)
    flow(scheduler, 1, high_watermark=30, note="source: away")
    flow(scheduler, 2, high_watermark=30, state="resuming")
    scheduler.apply(scheduler.owned["orders", 3], life.Refused("not authorised", 0.0, final=True))
    assert look(source, scheduler) == {0: 20, 1: 40, 2: 40, 3: 40, 4: 40}
    assert sorted(source.asked) == [("orders", number) for number in range(1, 5)]
    for number in range(1, 5):
        flow(scheduler, number, high_watermark=50)
    source.asked.clear()
    scheduler.apply(scheduler.owned["orders", 3], life.Progressed())
    look(source, scheduler)
    assert source.asked == []


def test_a_stream_that_takes_a_partition_again_has_to_report_before_it_flows() -> None:
    source, scheduler = Source({("orders", 0): 410}), scheduler_with(0)
    flow(scheduler, 0, high_watermark=10)
    scheduler.stream_left(0)
    scheduler.apply(scheduler.owned["orders", 0], life.Given(0, 2))
    assert not scheduler.owned["orders", 0].is_flowing
    assert look(source, scheduler) == {0: 400}


@pytest.mark.parametrize("outage", ["dead", "frozen"])
def test_the_lag_of_a_broker_that_does_not_answer_is_unknown_and_the_others_are_known(outage: str) -> None:
    source, scheduler = Source({("orders", number): 60 for number in range(3)}), scheduler_with(0, 1, 2)
    assert look(source, scheduler) == {0: 50, 1: 50, 2: 50}
    source.ends = {("orders", number): 70 for number in range(3)}
    getattr(source, outage).add(1)
    assert look(source, scheduler) == {0: 60, 1: None, 2: 60}
    assert scheduler.owned["orders", 1].lag == 50, "the last answer is kept"
    getattr(source, outage).clear()
    assert look(source, scheduler) == {0: 60, 1: 60, 2: 60}


def test_the_lag_of_partitions_without_leader_or_start_position_is_unknown() -> None:
    source, scheduler = Source({("orders", 0): 60, ("orders", 1): 60}), scheduler_with(0, 1)
    del source.topics["orders"].partitions[0]
    scheduler.add(OwnedPartition(position(1, 0, NO_IDENTITY)))
    assert look(source, scheduler) == {0: None, 1: None}


def test_only_records_that_we_may_read_are_lag() -> None:
    for read_committed in (False, True):
        source = Source({("orders", 0): 60})
        look(source, scheduler_with(0), read_committed)
        assert source.isolation == {int(read_committed)}


def test_an_answer_that_comes_late_does_not_hide_what_the_stream_has_seen() -> None:
    source, scheduler = Source({("orders", 0): 60}), scheduler_with(0)

    class Late(Source):
        async def ask(self, request: Any, node: int | None = None, **more: Any) -> Any:
            flow(scheduler, 0, high_watermark=90)
            return await super().ask(request, node, **more)

    assert look(Late(source.ends), scheduler) == {0: 80}


def test_the_last_look_asks_for_all_partitions_and_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ends, "_LAST_LOOK_WITHIN", 0.2)
    source, scheduler = Source({("orders", 0): 60, ("orders", 1): 60}), scheduler_with(0, 1)
    for number in range(2):
        flow(scheduler, number, high_watermark=10)
    scheduler.stream_left(0)
    source.frozen.add(1)
    asyncio.run(asyncio.wait_for(SourceEnds(source, False, scheduler).look_at_all(), 5))
    first, second = scheduler
    assert (first.lag, first.is_lag_known, second.is_lag_known) == (50, True, False)


def test_the_driver_looks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ends, "_EVERY", 0.01)
    source, scheduler = Source({("orders", 0): 60}), scheduler_with(0)
    owned = scheduler.owned["orders", 0]

    async def play() -> None:
        task = asyncio.create_task(SourceEnds(source, False, scheduler).run())
        for end in (60, 70, 80):
            source.ends["orders", 0] = end
            async with asyncio.timeout(5):
                while owned.high_watermark != end:
                    await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(play())


def _look_as_usual(ends: SourceEnds, scheduler: Scheduler) -> dict[int, int | None]:
    """Look once at all that the loop looks at; return the lags that are known."""
    asyncio.run(ends.look([*scheduler.not_flowing, *ends._without_news()], 0.2))
    return {key[1]: owned.lag if owned.is_lag_known else None for key, owned in scheduler.owned.items()}


def test_the_lag_grows_although_a_stream_with_a_full_buffer_fetches_nothing() -> None:
    source, scheduler = Source({("orders", 0): 90, ("orders", 1): 10}), scheduler_with(0, 1)
    ends = SourceEnds(source, False, scheduler)
    flow(scheduler, 0, high_watermark=60)
    flow(scheduler, 1, high_watermark=10)
    source.topics["orders"].partitions[0] = source.topics["orders"].partitions[
        1
    ]  # so that it is not the one of its broker
    source.asked.clear()
    _look_as_usual(ends, scheduler)
    assert ("orders", 1) not in source.asked or ("orders", 0) not in source.asked, "one of each broker is enough"
    assert _look_as_usual(ends, scheduler)[0] == 80


@pytest.mark.parametrize("outage", ["dead", "frozen"])
def test_the_lag_of_partitions_that_flow_is_unknown_while_their_broker_does_not_answer(outage: str) -> None:
    source, scheduler = Source({("orders", number): 10 for number in range(2)}), scheduler_with(0, 1)
    ends = SourceEnds(source, False, scheduler)
    for number in range(2):
        flow(scheduler, number, high_watermark=10)
    assert _look_as_usual(ends, scheduler) == {0: 0, 1: 0}
    getattr(source, outage).add(1)
    assert _look_as_usual(ends, scheduler) == {0: 0, 1: None}
    getattr(source, outage).clear()
    assert _look_as_usual(ends, scheduler) == {0: 0, 1: 0}


def test_a_smaller_end_in_a_report_is_believed() -> None:
    scheduler = scheduler_with(0)
    flow(scheduler, 0, high_watermark=90)
    owned = scheduler.owned["orders", 0]
    flow(scheduler, 0, high_watermark=30)
    assert owned.lag == 20
    owned.position = replace(owned.position, offset=40)
    assert owned.lag == 0
