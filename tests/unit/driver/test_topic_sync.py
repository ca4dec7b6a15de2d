"""Which topics are mirrored, which are left out, and what users hear of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver import patience
from mirrormaker.driver import topic_sync as topic_sync_module
from mirrormaker.driver import topics as topics_module
from mirrormaker.driver.topic_sync import TopicSync
from mirrormaker.driver.topics import TargetTopics, TopicTrouble, Troubles
from mirrormaker.errors import ClusterError, ConnectionLost
from mirrormaker.events.event import Event
from mirrormaker.events.topic_events import TopicGone, TopicLeftOut, TopicTakenUp
from mirrormaker.kafka_errors import COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_SERVER_ERROR
from mirrormaker.model.topic_filter import Filter, Matcher, python_matcher
from mirrormaker.wire.client.cluster_description import Partition, Topic
from tests.support.scripted_logs import ScriptedLogs


@dataclass
class Clusters:
    """Both clusters as far as a look at their topics is concerned, and everything around it."""

    topics: dict[str, Topic] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    # Topics that cannot be created on the target.
    troubles: Troubles = field(default_factory=dict)
    reported: list[Event] = field(default_factory=list)
    subscribed: list[str] = field(default_factory=list)
    endpoint: str = "source:9092"
    is_ready: bool = True

    async def refresh(self) -> None:
        """Change nothing: the test says what there is."""

    async def find_missing(self, topics: list[Topic], names: list[str]) -> dict[str, str]:
        """Miss no permission."""
        return {}

    async def ensure(self, topics: list[Topic], grow: set[str]) -> Troubles:
        """Create what can be created."""
        return self.troubles

    def subscribe(self, names: Any) -> None:
        """Remember what the group is told."""
        self.subscribed = list(names)

    def have(self, *names: str) -> None:
        """Let the source have these topics."""
        self.topics = {name: Topic(name, bytes(16), False, {0: Partition(1, 0, 1)}) for name in names}


def sync_of(clusters: Clusters) -> TopicSync:
    """Return what keeps the topics `orders` and `orders-...` in step."""

    async def matcher() -> Matcher:
        return python_matcher("orders.*")

    scheduler: Any = type("Scheduler", (dict,), {"owned": {}})()
    parts: Any = clusters
    quiet: Any = SimpleNamespace(check_partition_counts=lambda: None, is_smaller_on_target=lambda _: False)
    return TopicSync(
        parts, parts, Filter("orders.*", exclude=False), matcher, parts, scheduler, quiet, parts, parts, quiet,
        clusters.reported.append, lambda: clusters.is_ready,
    )  # fmt: skip


def test_a_topic_that_the_source_no_longer_has_is_named_once() -> None:
    clusters = Clusters()
    sync = sync_of(clusters)
    clusters.have("orders", "orders-2", "others")
    asyncio.run(sync.sync())
    clusters.have("orders", "others")
    asyncio.run(sync.sync())
    asyncio.run(sync.sync())
    assert clusters.subscribed == ["orders"]
    assert clusters.reported == [TopicGone("orders-2", "source:9092")]


@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, COORDINATOR_LOAD_IN_PROGRESS])
def test_a_new_topic_that_the_source_does_not_describe_is_named_at_the_second_look(code: int) -> None:
    clusters = Clusters(refused={"orders-new": code, "others-new": code, "orders": code})
    sync = sync_of(clusters)
    clusters.have("orders")
    asyncio.run(sync.sync())
    assert clusters.reported == []
    asyncio.run(sync.sync())
    asyncio.run(sync.sync())
    (event,) = clusters.reported
    assert isinstance(event, TopicLeftOut)
    assert event.topic == "orders-new"
    assert "source:9092 does not describe it" in event.reason
    assert sync.troubles["orders-new"].is_passing is (code == COORDINATOR_LOAD_IN_PROGRESS)
    assert clusters.subscribed == ["orders"]
    clusters.refused = {}
    clusters.have("orders", "orders-new")
    asyncio.run(sync.sync())
    assert clusters.reported[1:] == [TopicTakenUp("orders-new")]
    assert clusters.subscribed == ["orders", "orders-new"]


def test_the_start_fails_only_if_no_topic_can_be_mirrored() -> None:
    clusters = Clusters(troubles={"orders-2": TopicTrouble("not allowed")}, is_ready=False)
    sync = sync_of(clusters)
    clusters.have("orders", "orders-2")
    asyncio.run(sync.sync())
    assert clusters.subscribed == ["orders"]
    clusters.have("orders-2")
    with pytest.raises(ClusterError, match="not allowed"):
        asyncio.run(sync.sync())


def test_a_topic_in_trouble_that_the_source_does_not_show_does_not_end_the_start_of_another() -> None:
    """Brokers hide a topic that this client may not describe, so it is no chosen one."""
    clusters = Clusters(troubles={"orders-hidden": TopicTrouble("not allowed")}, is_ready=False)
    sync = sync_of(clusters)
    clusters.have("orders")
    asyncio.run(sync.sync())
    assert clusters.subscribed == ["orders"]


def test_an_existing_topic_is_subscribed_although_another_one_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics_module, "_OUTAGE_WITHIN", 0.0)
    clusters = Clusters()
    clusters.have("orders", "orders-2")
    target = ScriptedLogs({("orders", 0): []}, "target")

    async def unanswered(request: Any, *_: Any) -> Any:
        raise ConnectionLost("target:9092 did not answer CreateTopics")

    async def settings_of(names: list[str], troubles: Troubles) -> dict[str, Any]:
        return {}

    target.ask = unanswered  # type: ignore[method-assign, assignment]
    source: Any = clusters
    topics = TargetTopics(source, target, clusters.reported.append)
    monkeypatch.setattr(topics, "_settings_of", settings_of)
    monkeypatch.setattr(clusters, "ensure", topics.ensure, raising=False)
    sync = sync_of(clusters)
    for _ in range(2):
        asyncio.run(sync.sync())
        assert clusters.subscribed == ["orders"]
    assert sync.waiting == {"orders-2"}
    (event,) = clusters.reported
    assert isinstance(event, TopicLeftOut) and "did not answer CreateTopics" in event.reason


def test_an_outage_that_keeps_new_topics_away_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sync_module, "_SYNC_EVERY", 0.001)
    monkeypatch.setattr(patience, "_REPORT_AFTER", 0.05)
    clusters = Clusters()
    is_answered = asyncio.Event()

    async def refresh() -> None:
        await asyncio.sleep(0.01)
        if not is_answered.is_set():
            raise ConnectionLost("target:9092 hung up")

    async def play() -> None:
        sync = asyncio.ensure_future(sync_of(clusters).run(60, lambda: None))
        await asyncio.sleep(0.3)
        assert [event.text for event in clusters.reported] == [
            "waiting: new topics cannot be looked for now: target:9092 hung up"
        ]
        is_answered.set()
        await asyncio.sleep(0.05)
        is_answered.clear()
        await asyncio.sleep(0.3)
        assert len(clusters.reported) == 2, "another outage"
        sync.cancel()

    monkeypatch.setattr(clusters, "refresh", refresh, raising=False)
    asyncio.run(play())
