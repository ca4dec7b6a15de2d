"""Settings of brokers that decide something, and that a broker may refuse to tell."""

from __future__ import annotations

import asyncio

import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from mirrormaker.kafka_errors import CODES
from mirrormaker.wire.client.configs import broker_number
from mirrormaker.wire.protocol.messages import DescribeConfigsRequest, MetadataRequest
from tests.support.scripted_broker import ScriptedBroker, metadata

_KEY = "producer.id.expiration.ms"


def _answer(code: int, value: str | None) -> DescribeConfigsResponse:
    result = DescribeConfigsResponse.DescribeConfigsResult
    setting = result.DescribeConfigsResourceResult(
        name=_KEY, value=value, read_only=False, is_default=False, config_source=5, is_sensitive=False, synonyms=[],
        config_type=0, documentation=None,
    )  # fmt: skip
    settings = [] if code else [setting]
    row = result(error_code=code, error_message=None, resource_type=4, resource_name="1", configs=settings)
    return DescribeConfigsResponse(throttle_time_ms=0, results=[row])


async def _ask(code: int, value: str | None = None) -> int:
    broker = ScriptedBroker({DescribeConfigsRequest.API_KEY: _answer(code, value)})
    async with broker.running() as cluster:
        broker.answers[MetadataRequest.API_KEY] = metadata({1: broker.port}, {})
        await cluster.refresh()
        return await broker_number(cluster, _KEY, 86_400_000)


def test_a_broker_that_does_not_tell_a_setting_leaves_the_default() -> None:
    for code in (*CODES, 9999):
        assert asyncio.run(_ask(code)) == 86_400_000


@pytest.mark.parametrize("value, found", [("1000", 1000), (None, 86_400_000), ("", 86_400_000), ("soon", 86_400_000)])
def test_a_setting_counts_if_it_is_a_number(value: str | None, found: int) -> None:
    assert asyncio.run(_ask(0, value)) == found
