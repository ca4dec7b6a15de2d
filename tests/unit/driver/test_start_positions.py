"""Partitions that go on under a new producer id, on clusters that are not what they were."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.producer import InitProducerIdResponse

from mirrormaker.driver import identities
from mirrormaker.driver.identities import allocate_identity
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.errors import ClusterError, PartitionError, Unanswered, UnsupportedRequest
from mirrormaker.events.event import Event
from mirrormaker.events.partition_events import LostRange, RecreatedOnSource
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import load
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.messages import ListOffsetsRequest
from mirrormaker.worker.interrupts import RestartAt
from tests.support.batches import NOW, Record, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 0)
AT_300 = Position(*KEY, 300, 4, "", Identity(9, 0), "target", "", 1, (Cut(0, 300, 300),))


class OldSource(ScriptedLogs):
    """Brokers that know neither topic ids nor OffsetForLeaderEpoch."""

    async def ask(self, request: Any, node: int | None = None, **settings: Any) -> Any:
        if not isinstance(request, ListOffsetsRequest):
            raise UnsupportedRequest("scripted")
        return await super().ask(request, node, **settings)


class Office:
    """Start positions between a source with 20 records and a target with 300."""

    def __init__(self, leader_epoch: int = 0) -> None:
        records = [Record(NOW, None, b"value")]
        self.source = OldSource({KEY: [write_batch(records * 20)]}, "source")
        self.source.topics["orders"] = Topic("orders", bytes(16), False, {0: Partition(1, leader_epoch, 1)})
        self.target = ScriptedLogs({KEY: [write_batch(records * 300)]}, "target")
        self.events: list[Event] = []
        given = {"bootstrap.servers": "source:9092", "group.id": "mirror", "auto.offset.reset": "latest"}
        settings = source_settings(load(given, "source"))
        routing = Routing(self.source, self.target, "target", None, None, False)
        self.starts = StartPositions(self.source, self.target, settings, routing, False, self.events.append)

    def restart(self, restart_at: RestartAt, position: Position = AT_300) -> tuple[Position, LostRange | None]:
        return asyncio.run(self.starts.restart(position, restart_at, "a reason"))


def test_a_target_that_refuses_the_epoch_of_mirrors_gets_its_own_from_then_on() -> None:
    office = Office()
    assert office.restart(RestartAt.SAME_PLACE)[0].identity.epoch == MARKED_EPOCH
    position, lost = office.restart(RestartAt.UNMARKED)
    assert (position.offset, position.identity.epoch, lost) == (300, 0, None)
    assert office.restart(RestartAt.SAME_PLACE)[0].identity.epoch == 0


def test_a_partition_stops_if_its_target_is_another_cluster_by_now() -> None:
    office = Office()
    office.target.id = "another"
    with pytest.raises(PartitionError, match=r"mirrored to cluster target, and .* is cluster another now"):
        office.restart(RestartAt.SAME_PLACE)
    assert not office.target.allocated
    office.target.id = "target"
    assert office.restart(RestartAt.SAME_PLACE)[0].offset == 300


def test_a_shorter_log_whose_leader_epochs_begin_again_is_another_topic_and_begins_at_its_beginning() -> None:
    office = Office(leader_epoch=0)
    position, lost = office.restart(RestartAt.OUT_OF_RANGE)
    assert (position.offset, lost) == (0, None)
    assert isinstance(office.events[0], RecreatedOnSource)


def test_a_shorter_log_under_a_later_leader_epoch_was_truncated() -> None:
    office = Office(leader_epoch=5)
    position, lost = office.restart(RestartAt.OUT_OF_RANGE)
    assert position.offset == 20
    assert lost is not None and (lost.first, lost.last, lost.is_truncated) == (20, 299, True)


def test_a_log_that_is_long_enough_for_what_the_target_holds_is_the_same_topic() -> None:
    office = Office(leader_epoch=0)
    position, lost = office.restart(RestartAt.OUT_OF_RANGE, replace(AT_300, offset=20))
    assert (position.offset, lost) == (20, None)


# -- producer ids


class Allocator(Cluster):
    """A target that answers InitProducerId with (error, producer id, epoch), in this order."""

    def __init__(self, *answers: tuple[int, int, int]) -> None:
        super().__init__(Endpoint((("target", 9092),)))
        self.answers = list(answers)

    async def ask(self, request: Any, node: int | None = None, **_: Any) -> Any:
        error, producer_id, epoch = self.answers.pop(0)
        return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)


@pytest.fixture(autouse=True)
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "_RETRIES", 3)


def test_a_target_that_has_just_started_is_asked_for_a_producer_id_again() -> None:
    """0 is an id like any other."""
    target = Allocator((14, -1, -1), (0, 0, 0))
    assert asyncio.run(allocate_identity(target, "orders-3")) == Identity(0, MARKED_EPOCH)
    with pytest.raises(Unanswered, match="gives no producer id"):
        asyncio.run(allocate_identity(Allocator(*[(14, -1, -1)] * 3), "orders-3"))


@pytest.mark.parametrize("useless", [(0, -1, 0), (0, 7, -1)])
def test_a_producer_id_or_epoch_of_minus_one_is_never_used(useless: tuple[int, int, int]) -> None:
    """A broker takes batches with it, and checks no numbers."""
    with pytest.raises(ClusterError, match="gives no producer id"):
        asyncio.run(allocate_identity(Allocator(useless), "orders-3"))


def test_a_target_that_refuses_producer_ids_is_not_asked_again() -> None:
    target = Allocator((31, -1, -1), (0, 7, 0))
    with pytest.raises(ClusterError, match="IdempotentWrite"):
        asyncio.run(allocate_identity(target, "orders-3"))
    assert len(target.answers) == 1
