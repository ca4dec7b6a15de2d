"""Producer identities for many partitions at once."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from kafka.protocol.producer import InitProducerIdResponse

from mirrormaker.driver.identities import allocate_identities
from mirrormaker.errors import ClusterError
from mirrormaker.kafka_errors import CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS
from mirrormaker.model.position import MARKED_EPOCH
from tests.support.scripted_broker import ScriptedBroker

_INIT_PRODUCER_ID = 22
KEYS = [("orders", partition) for partition in range(250)]


def given(error: int, producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error, producer_id=producer_id, producer_epoch=0)


def broker_with(errors: list[int]) -> ScriptedBroker:
    """Return a broker that answers the first requests with these errors, and the others with new ids."""
    numbers, left = count(), iter(errors)

    def answer(_version: int, _body: Any) -> InitProducerIdResponse:
        error = next(left, 0)
        return given(error, -1 if error else next(numbers))

    return ScriptedBroker({_INIT_PRODUCER_ID: answer})


def allocate(broker: ScriptedBroker) -> tuple[dict[Any, Any], dict[Any, Exception]]:
    async def play() -> tuple[dict[Any, Any], dict[Any, Exception]]:
        async with broker.running() as cluster:
            return await allocate_identities(cluster, KEYS)

    return asyncio.run(play())


def asked(broker: ScriptedBroker) -> int:
    return sum(key == _INIT_PRODUCER_ID for key, _ in broker.heard)


def test_every_partition_gets_an_identity_of_its_own() -> None:
    broker = broker_with([])
    identities, failed = allocate(broker)
    assert identities.keys() == set(KEYS) and not failed
    assert len({identity.producer_id for identity in identities.values()}) == len(KEYS)
    assert {identity.epoch for identity in identities.values()} == {MARKED_EPOCH}
    assert asked(broker) == len(KEYS)


@pytest.mark.parametrize(("given_epoch", "marked", "expected"), [(0, True, MARKED_EPOCH), (0, False, 0), (5, True, 5)])
def test_an_epoch_that_means_something_to_the_target_stays(given_epoch: int, marked: bool, expected: int) -> None:
    answer = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=1, producer_epoch=given_epoch)
    broker = ScriptedBroker({_INIT_PRODUCER_ID: lambda _version, _body: answer})

    async def play() -> set[int]:
        async with broker.running() as cluster:
            found, _ = await allocate_identities(cluster, KEYS[:2], marked=marked)
            return {identity.epoch for identity in found.values()}

    assert asyncio.run(play()) == {expected}


def test_a_target_that_has_no_ids_for_a_moment_is_asked_again() -> None:
    broker = broker_with([COORDINATOR_LOAD_IN_PROGRESS] * 101)
    identities, failed = allocate(broker)
    assert len({identity.producer_id for identity in identities.values()}) == len(KEYS) and not failed


def test_a_refusal_is_the_error_of_all_partitions_and_is_not_asked_for_each() -> None:
    broker = broker_with([CLUSTER_AUTHORIZATION_FAILED] * 1000)
    identities, failed = allocate(broker)
    assert not identities and failed.keys() == set(KEYS)
    assert {type(error) for error in failed.values()} == {ClusterError}
    assert asked(broker) <= 101
