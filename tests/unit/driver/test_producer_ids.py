"""Producer ids for partitions that begin."""

from __future__ import annotations

import asyncio

import pytest
from kafka.protocol.producer import InitProducerIdResponse

from mirrormaker.driver import identities
from mirrormaker.errors import ClusterError, Unanswered
from mirrormaker.kafka_errors import CODES
from mirrormaker.model.position import MARKED_EPOCH, Identity
from mirrormaker.wire.protocol.messages import InitProducerIdRequest, MetadataRequest
from tests.support.scripted_broker import ScriptedBroker, metadata


def _answer(code: int) -> InitProducerIdResponse:
    number = -1 if code else 0
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=number, producer_epoch=number)


def _allocated(*codes: int) -> Identity:
    return asyncio.run(_allocate(*codes))


async def _allocate(*codes: int) -> Identity:
    """Ask a broker that answers with these codes, and with the last one from then on."""
    left = list(codes)
    broker = ScriptedBroker({})
    broker.answers[InitProducerIdRequest.API_KEY] = lambda *_: _answer(left.pop(0) if len(left) > 1 else left[0])
    async with broker.running() as cluster:
        broker.answers[MetadataRequest.API_KEY] = metadata({1: broker.port}, {})
        return await identities.allocate_identity(cluster, "orders-3 and 7 more")


@pytest.fixture(autouse=True)
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "_RETRIES", 2)


def test_a_target_that_gives_no_producer_id_names_the_partitions_that_wait_for_it() -> None:
    for code in CODES.values():
        expected = Unanswered if code.retriable else ClusterError
        with pytest.raises(
            expected, match=r"^orders-3 and 7 more: .*(gives no producer id|the right to IdempotentWrite)"
        ):
            _allocated(code.code)


def test_a_target_that_will_give_a_producer_id_in_a_moment_is_asked_again() -> None:
    retriable = next(code.code for code in CODES.values() if code.retriable)
    assert _allocated(retriable, 0) == Identity(0, MARKED_EPOCH)
