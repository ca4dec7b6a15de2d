"""A source log that is shorter than it was: cut back by a new leader, or another topic of the same name."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver.source_loss import was_created_again
from mirrormaker.model.position import Identity, Position
from mirrormaker.wire.client.cluster_description import Partition

POSITION = Position("orders", 0, 500, 3, "", Identity(9, 0), "a-cluster", "", 1, (), 0)


class Source:
    """A leader that knows these epochs, in a cluster whose metadata tells them or not."""

    def __init__(self, newest_epoch: int, *, in_metadata: bool) -> None:
        self._newest, self._shown = newest_epoch, newest_epoch if in_metadata else -1

    def leader(self, topic: str, partition: int) -> Partition:
        return Partition(1, self._shown, 1)

    async def ask(self, request: Any, node: int | None) -> Any:
        epoch = request.topics[0].partitions[0].leader_epoch
        row = SimpleNamespace(error_code=0, end_offset=8 if epoch <= self._newest else -1)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])


@pytest.mark.parametrize("in_metadata", [True, False], ids=["Kafka 2.1", "Kafka 2.0"])
@pytest.mark.parametrize(
    "newest_epoch, expected",
    [(3, True), (4, False), (7, False)],
    ids=["the same leader", "the next leader", "a later one"],
)
def test_only_a_new_leader_cuts_a_log_back(newest_epoch: int, expected: bool, in_metadata: bool) -> None:
    source: Any = Source(newest_epoch, in_metadata=in_metadata)
    assert asyncio.run(was_created_again(source, POSITION)) is expected
