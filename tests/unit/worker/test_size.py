"""What a partition costs a stream: bytes of memory while it flows."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

from mirrormaker.control.control_encoding import DriverEnd, StreamEnd
from mirrormaker.control.control_messages import Order, Take
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.worker.stream import Stream
from tests.support.worker_stage import TASK

_PARTITIONS = 500
_MOST_BYTES = 8000  # of one partition


def position(partition: int) -> Position:
    cuts = (Cut(partition, 0, 1000 + partition),)
    return Position(
        "t", partition, 1000 + partition, 0, "ab" * 16, Identity(1000 + partition, 0), "c", "cd" * 16, 1, cuts
    )


def test_a_flowing_partition_takes_a_few_kilobytes_of_its_stream() -> None:
    async def play() -> float:
        stream: Any = Stream(TASK, 0, 0)
        for cluster, topic_id in ((stream.source, "ab"), (stream.target, "cd")):
            cluster.brokers = {1: ("nowhere", 1)}
            partitions = {number: Partition(1, 0, 1) for number in range(_PARTITIONS)}
            cluster.topics = {"t": Topic("t", bytes.fromhex(topic_id * 16), False, partitions)}

        async def takes_zstd() -> bool:
            return True

        stream.metadata.target_takes_zstd = takes_zstd
        stream._fetchers.fetch = lambda cursor: None
        takes = tuple(Take(position(number), True, number) for number in range(_PARTITIONS))
        end, messages = StreamEnd(), DriverEnd().orders(Order(take=takes))
        gc.collect()
        tracemalloc.start()
        try:
            for message in messages:
                for take in end.order(message).take:
                    stream._take(take)
            while not all(cursor.flowing for cursor in stream.cursors.values()):
                await asyncio.sleep(0.01)
            end.reports(stream.reporting.report(stream.cursors.values(), 0))
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / _PARTITIONS
        finally:
            tracemalloc.stop()
            stream._close()

    assert asyncio.run(play()) < _MOST_BYTES
