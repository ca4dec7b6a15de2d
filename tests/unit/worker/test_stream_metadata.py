"""The settings of target topics, and what becomes of a partition when they change while it is mirrored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirrormaker.errors import ConnectionLost, PartitionError, Undeliverable
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.worker import stream_metadata
from mirrormaker.worker.stream_metadata import StreamMetadata
from tests.support.batches import Record, write_batch
from tests.support.scripted_target import ScriptedLog, ScriptedTarget
from tests.support.worker_stage import NOW, START, US, LogStage, settle, until

Play = Callable[[Callable[[LogStage], Awaitable[None]]], None]
TOPICS = {f"topic-{number}" for number in range(20)}


def metadata_of(target: ScriptedTarget) -> StreamMetadata:
    async def on_source(topics: set[str]) -> None:
        return None

    return StreamMetadata(target, target, on_source, lambda _: None)


def target_with(**settings: str) -> ScriptedTarget:
    """Return a target with 20 topics of these settings."""
    target = ScriptedTarget({(topic, 0): ScriptedLog() for topic in TOPICS})
    target.settings = {topic: {name.replace("_", "."): v for name, v in settings.items()} for topic in TOPICS}
    return target


# -- reading


def test_one_request_reads_the_settings_of_all_topics_however_many_partitions_ask() -> None:
    target = target_with(max_message_bytes="5000", cleanup_policy="compact,delete")
    metadata = metadata_of(target)

    async def body() -> None:
        await asyncio.gather(*(metadata.read_settings({topic}) for topic in TOPICS for _ in range(50)))

    asyncio.run(body())
    assert target.asked["DescribeConfigsRequest"] == 1
    assert {metadata.max_message_bytes(topic) for topic in TOPICS} == {5000}
    assert all(metadata.is_compacted(topic) for topic in TOPICS)


def test_a_limit_that_was_learned_is_forgotten_when_the_setting_changes() -> None:
    target = target_with(max_message_bytes="5000")
    metadata = metadata_of(target)

    async def body() -> None:
        await metadata.read_settings({"topic-1"})
        metadata.learn_limit("topic-1", 100)
        since = metadata.settings_changes
        assert not await metadata.have_settings_changed({"topic-1"}, since)
        assert metadata.max_batch_bytes("topic-1") == 100
        target.settings["topic-1"]["max.message.bytes"] = "6000"
        assert await metadata.have_settings_changed({"topic-1"}, since)
        assert metadata.max_batch_bytes("topic-1") == 6000

    asyncio.run(body())


def test_a_limit_that_may_no_longer_be_read_is_no_limit() -> None:
    """The broker's refusals tell then; the last known value may be outdated."""
    target = target_with(max_message_bytes="5000")
    metadata = metadata_of(target)

    async def body() -> None:
        await metadata.read_settings({"topic-1"})
        since = metadata.settings_changes
        del target.settings["topic-1"]
        assert await metadata.have_settings_changed({"topic-1"}, since)
        assert metadata.max_message_bytes("topic-1") > 1 << 40

    asyncio.run(body())


def test_a_change_is_noticed_although_nothing_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_metadata, "_FOLLOW_EVERY", 0.01)
    monkeypatch.setattr(stream_metadata, "_REFRESH_PAUSE", 0.0)
    target = target_with(max_message_bytes="5000")
    metadata = metadata_of(target)

    async def body() -> None:
        await metadata.read_settings(TOPICS)
        following = asyncio.create_task(metadata.follow_target(lambda: TOPICS))
        target.settings["topic-7"]["max.message.bytes"] = "6000"
        target.settings["topic-7"]["cleanup.policy"] = "compact"
        await asyncio.wait_for(until(lambda: metadata.is_compacted("topic-7")), 20)
        following.cancel()
        assert metadata.max_message_bytes("topic-7") == 6000
        assert metadata.max_message_bytes("topic-8") == 5000

    asyncio.run(body())


# -- records that are too large, as long as the setting says so


def large(size: int) -> list[Batches | memoryview]:
    rows = [Record(NOW, None, b"x"), Record(NOW, None, b"y" * size)]
    return list(split(memoryview(bytearray(write_batch(rows, base_offset=100).data))))


async def at_limit(stage: LogStage, limit: int) -> None:
    stage.target_log.start = 1000
    stage.scripted.settings = {"t": {"max.message.bytes": str(limit)}}
    await stage.stream.metadata.read_settings({"t"})
    stage.take()


def test_a_record_that_became_small_enough_is_sent(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        await at_limit(stage, 1000)
        (cursor,) = stage.stream.cursors.values()
        await until(lambda: cursor.flowing)
        stage.scripted.settings["t"]["max.message.bytes"] = "100000"
        rounds = cursor.fetch_round
        stage.fetched(cursor, large(5000))
        await settle()
        assert stage.deliver().count == 1, "the record before the large one"
        await until(lambda: (cursor.flowing and cursor.fetch_round > rounds) or cursor.done.done())
        assert not cursor.done.done(), cursor.done.result()
        stage.fetched(cursor, large(5000))
        await settle()
        assert stage.deliver().count == 1
        assert cursor.current.offset == 102

    play_with_log(scene)


def test_a_record_that_is_still_too_large_is_given_up_after_one_look_at_the_setting(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        await at_limit(stage, 1000)
        (cursor,) = stage.stream.cursors.values()
        await until(lambda: cursor.flowing)
        asked = stage.scripted.asked["DescribeConfigsRequest"]
        stage.fetched(cursor, large(5000))
        await settle()
        stage.deliver()
        await until(cursor.done.done)
        assert isinstance(cursor.done.result(), Undeliverable)
        assert "max.message.bytes of 1000" in str(cursor.done.result())
        assert stage.scripted.asked["DescribeConfigsRequest"] == asked + 1

    play_with_log(scene)


def test_no_record_is_given_up_while_the_setting_cannot_be_read(
    play_with_log: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrormaker.worker.cursor._BACKOFF", (0.0,))

    async def scene(stage: LogStage) -> None:
        await at_limit(stage, 1000)
        (cursor,) = stage.stream.cursors.values()
        await until(lambda: cursor.flowing)
        attempts = 0

        async def fails(*_: object, **__: object) -> None:
            nonlocal attempts
            attempts += 1
            raise ConnectionLost("gone")

        monkeypatch.setattr(stage.stream.target, "ask", fails)
        while attempts < 3:
            await until(lambda: cursor.flowing or cursor.done.done())
            assert not cursor.done.done(), cursor.done.result()
            stage.fetched(cursor, large(5000))
            await settle()
            if stage.wires[1].waiting:
                stage.deliver()
        assert cursor.current.offset == 101

    play_with_log(scene)


def test_a_target_that_is_compacted_by_now_is_read_again_before_the_partition_stops(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        stage.target_log.start = 1000
        stage.target_log.append(US, 23, 4, gap=3)
        stage.scripted.settings = {"t": {"cleanup.policy": "compact"}}  # nobody has read it yet
        cursor = stage.take(START, clean=False)
        await until(lambda: cursor.flowing or cursor.done.done())
        assert cursor.flowing, cursor.done.result()
        assert cursor.outlets[0].skip == 7

    play_with_log(scene)


def test_missing_numbers_on_a_target_that_is_not_compacted_stop_the_partition_for_good(play_with_log: Play) -> None:
    async def scene(stage: LogStage) -> None:
        stage.target_log.start = 1000
        stage.target_log.append(US, 23, 4, gap=3)
        stage.scripted.settings = {"t": {"cleanup.policy": "delete"}}
        cursor = stage.take(START, clean=False)
        await until(cursor.done.done)
        ending = cursor.done.result()
        assert isinstance(ending, PartitionError) and not ending.retriable

    play_with_log(scene)


def test_partitions_that_come_one_after_the_other_share_one_look_at_their_topics() -> None:
    target = target_with(max_message_bytes="5000")
    found, refreshes, answers = dict(target.topics), 0, asyncio.Event()
    target.topics.clear()

    async def refresh(topics: object = None, *, create: bool = False) -> None:
        nonlocal refreshes
        refreshes += 1
        await answers.wait()
        target.topics.update(found)

    target.refresh = refresh  # type: ignore[method-assign]
    metadata = metadata_of(target)

    async def body() -> None:
        waves = []
        for _ in range(5):
            waves += [asyncio.ensure_future(metadata.learn("topic-0", TOPICS)) for _ in range(50)]
            await settle()
        answers.set()
        await asyncio.gather(*waves)

    asyncio.run(body())
    assert refreshes == 2, "one of the source, and one of the target"
    assert metadata.max_message_bytes("topic-3") == 5000


def test_a_limit_that_somebody_else_has_read_again_counts_as_changed(play_with_log: Play) -> None:
    """The limit is raised while the cursor waits for answers, and a neighbour's question brings the new value."""

    async def scene(stage: LogStage) -> None:
        await at_limit(stage, 1000)
        (cursor,) = stage.stream.cursors.values()
        await until(lambda: cursor.flowing)
        rounds = cursor.fetch_round
        stage.fetched(cursor, large(5000))
        await settle()
        assert cursor.first_undeliverable is not None
        stage.scripted.settings["t"]["max.message.bytes"] = "100000"
        await stage.stream.metadata.read_settings({"t"})
        stage.deliver()
        await until(lambda: (cursor.flowing and cursor.fetch_round > rounds) or cursor.done.done())
        assert not cursor.done.done(), cursor.done.result()

    play_with_log(scene)


def test_the_target_is_followed_on_after_a_round_that_failed_in_any_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream_metadata, "_FOLLOW_EVERY", 0.001)
    monkeypatch.setattr(stream_metadata, "_REFRESH_PAUSE", 0.0)
    target = target_with(max_message_bytes="5000")
    failures: list[Exception] = [ValueError("a bug"), ConnectionLost("gone")]

    async def on_source(topics: set[str]) -> None:
        return None

    def on_target(topics: set[str]) -> None:
        if failures:
            raise failures.pop(0)

    async def body() -> None:
        metadata = StreamMetadata(target, target, on_source, on_target)
        following = asyncio.create_task(metadata.follow_target(lambda: {"topic-1"}))
        async with asyncio.timeout(10):
            while metadata.max_message_bytes("topic-1") != 5000:
                await asyncio.sleep(0.001)
        following.cancel()

    asyncio.run(body())
    assert not failures
    assert "ValueError: a bug" in capsys.readouterr().err


def test_calls_that_fail_keep_their_pause() -> None:
    """A refresh that fails each time would otherwise be repeated without end."""
    calls = 0

    async def call(topics: set[str]) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("a bug")

    async def body() -> None:
        shared = stream_metadata._SharedCall(call, pause=60)
        with pytest.raises(ValueError, match="a bug"):
            await shared({"t"})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(shared({"t"}), 0.05)

    asyncio.run(body())
    assert calls == 1
