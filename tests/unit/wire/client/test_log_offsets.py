"""Offsets of many partitions, each asked for by somebody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mirrormaker.errors import BrokerError, ConnectionLost
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, look_up_offset
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.batches import NOW, Record, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEYS: list[TopicPartition] = [(f"topic-{topic}", partition) for topic in range(5) for partition in range(60)]


def cluster_with_logs() -> ScriptedLogs:
    """Return a cluster whose partitions have as many records as their number says."""
    records = {key: [Record(NOW, None, b"v")] * key[1] for key in KEYS}
    return ScriptedLogs({key: [write_batch(rows)] if rows else [] for key, rows in records.items()})


def test_lookups_of_the_same_moment_share_requests() -> None:
    cluster = cluster_with_logs()

    async def play() -> list[int]:
        ends = (look_up_offset(cluster, key, LATEST) for key in KEYS)
        starts = (look_up_offset(cluster, key, EARLIEST) for key in KEYS)
        return await asyncio.gather(*ends, *starts)

    assert asyncio.run(play()) == [partition for _, partition in KEYS] + [0] * len(KEYS)
    assert cluster.offset_requests == 2 * -(-len(KEYS) // 200)


def test_a_later_lookup_is_a_request_of_its_own() -> None:
    cluster = cluster_with_logs()

    async def play() -> None:
        await asyncio.gather(*(look_up_offset(cluster, KEYS[3], LATEST) for _ in range(10)))
        assert cluster.offset_requests == 1
        cluster.logs[KEYS[3]] = [write_batch([Record(NOW, None, b"v")] * 500)]
        assert await look_up_offset(cluster, KEYS[3], LATEST) == 500

    asyncio.run(play())
    assert cluster.offset_requests == 2


def test_an_error_is_that_of_its_partition_and_a_cancelled_lookup_disturbs_nobody() -> None:
    cluster = cluster_with_logs()

    async def play() -> list[Any]:
        lookups = [asyncio.ensure_future(look_up_offset(cluster, key, LATEST)) for key in [*KEYS[:3], ("nowhere", 0)]]
        await asyncio.sleep(0)
        lookups[1].cancel()
        return await asyncio.gather(*lookups, return_exceptions=True)

    first, cancelled, third, unknown = asyncio.run(play())
    assert (first, third) == (0, 2)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(unknown, BrokerError)


def test_an_outage_is_raised_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with_logs()

    async def lost(*_: Any, **__: Any) -> None:
        raise ConnectionLost("scripted")

    monkeypatch.setattr(cluster, "ask", lost)

    async def play() -> list[Any]:
        return await asyncio.gather(*(look_up_offset(cluster, key, LATEST) for key in KEYS), return_exceptions=True)

    assert {type(error) for error in asyncio.run(play())} == {ConnectionLost}
