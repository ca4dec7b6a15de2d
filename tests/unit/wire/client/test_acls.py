"""Permissions on topics, as the metadata tells them."""

from __future__ import annotations

import asyncio
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from mirrormaker.wire.client.acls import missing
from mirrormaker.wire.protocol.messages import MetadataRequest
from tests.support.scripted_broker import METADATA, ScriptedBroker, metadata

_READ, _WRITE = 3, 4


def test_no_answer_is_about_more_topics_than_can_be_decoded_in_a_moment() -> None:
    """An answer names all partitions of its topics too, and those of a cluster can be a quarter of a million."""
    asked: list[int] = []

    def permissions(version: int, body: bytes) -> Any:
        names = [topic.name for topic in MetadataRequest.decode(body, version=version).topics or []]
        asked.append(len(names))
        answer: MetadataResponse = metadata({1: broker.port}, dict.fromkeys(names, 1))
        for topic in answer.topics:
            topic.authorized_operations = {_READ} if topic.name.endswith("7") else {_READ, _WRITE}
        return answer

    async def test() -> None:
        broker.answers[METADATA] = permissions
        async with broker.running() as cluster:
            names = [f"topic-{number}" for number in range(2500)]
            found = await missing(cluster, [*names, *names], ("Read", "Write"))
            assert found == {name: ["Write"] for name in names if name.endswith("7")}
            assert asked == [1000, 1000, 500]

    broker = ScriptedBroker({})
    asyncio.run(test())
