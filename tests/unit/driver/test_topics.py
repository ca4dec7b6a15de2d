"""Topics that are created on the target."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mirrormaker.driver import topics as topics_module
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import ConnectionLost
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.messages import CreateTopicsRequest, DescribeConfigsRequest
from tests.support.scripted_logs import ScriptedLogs


def test_many_topics_are_created_in_requests_that_a_controller_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """KRaft refuses a request for more than 10,000 partitions as a whole."""
    source, target = ScriptedLogs({}, "source"), ScriptedLogs({}, "target")
    topics = [Topic(f"t{n}", bytes(16), False, {p: Partition(1, 0, 1) for p in range(n % 7 + 1)}) for n in range(4000)]
    topics.append(Topic("wide", bytes(16), False, {p: Partition(1, 0, 1) for p in range(1500)}))
    requests: list[list[Topic]] = []

    async def settings_of(names: list[str], troubles: Any) -> dict[str, Any]:
        return {}

    async def create(wanted: list[Topic], settings: Any) -> dict[str, Any]:
        requests.append(wanted)
        return {}

    async def wait_for_leaders(names: set[str], counts: Any) -> dict[str, Any]:
        assert names == {topic.name for topic in topics}
        return {}

    found = TargetTopics(source, target, lambda event: None)
    monkeypatch.setattr(found, "_settings_of", settings_of)
    monkeypatch.setattr(found, "_create", create)
    monkeypatch.setattr(found, "_wait_for_leaders", wait_for_leaders)
    assert not asyncio.run(found.ensure(topics, set()))
    assert [topic for request in requests for topic in request] == topics
    sizes = [sum(len(topic.partitions) for topic in request) for request in requests]
    assert max(sizes) == 1500 and sorted(sizes)[-2] <= 1000, "only a topic that is larger alone"


class Unanswering(ScriptedLogs):
    """A cluster whose controller answers no request of some kinds."""

    def __init__(self, name: str, *unanswered: type[Any]) -> None:
        super().__init__({}, name)
        self.unanswered = unanswered

    async def ask(self, request: Any, node: int | None = None, **given: Any) -> Any:
        if isinstance(request, self.unanswered):
            raise ConnectionLost(f"{self.endpoint} did not answer {type(request).__name__}")
        return await super().ask(request, node, **given)


@pytest.mark.parametrize("is_source", [True, False])
def test_a_request_about_missing_topics_that_is_not_answered_is_their_trouble(
    is_source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = Unanswering("source", DescribeConfigsRequest), Unanswering("target", CreateTopicsRequest)
    topics = [Topic(name, bytes(16), False, {0: Partition(1, 0, 1)}) for name in ("new", "there")]
    target.topics["there"] = topics[1]
    found = TargetTopics(source, target, lambda event: None)

    async def settings_of(names: list[str], troubles: Any) -> dict[str, Any]:
        return {}

    if not is_source:
        monkeypatch.setattr(found, "_settings_of", settings_of)
    with pytest.raises(ConnectionLost):  # a broker that restarts
        asyncio.run(found.ensure(topics, set()))
    monkeypatch.setattr(topics_module, "_OUTAGE_WITHIN", 0.0)
    troubles = asyncio.run(found.ensure(topics, set()))
    assert troubles.keys() == {"new"}
    assert troubles["new"].is_passing
    assert f"{'source' if is_source else 'target'}:9092 did not answer" in troubles["new"].reason
