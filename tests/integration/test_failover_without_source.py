"""A failover from what the target has alone: checkpoints that are older than the map, offsets that expired, groups of others."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.errors import ClusterError
from mirrormaker.groups import mirror_stop
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.failover import Failover, FailoverSettings
from mirrormaker.groups.failover_report import FailoverReport
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.mapping.flow_choice import find_map
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.model.topic_filter import Filter
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.client.cluster import Endpoint
from tests.support.group_clients import commit, committed, send, types
from tests.support.wire_clients import wire_client

US = Identity(4711, MARKED_EPOCH)


class Remains:
    """A target with 100 mirrored records of a source cluster that nobody can ask any more."""

    def __init__(self, target: Cluster, topic: str) -> None:
        self.target, self.topic, self.source_id = target, topic, f"gone-{uuid.uuid4().hex[:6]}"
        target.create_topic(topic)
        send(target, topic, 0, 100, partitions=1)

    def left(self, mapped: int, checkpoints: Collection[Checkpoint] | None) -> None:
        """Store a map up to a source offset, and checkpoints; None: the mirror had no groups."""
        asyncio.run(self._leave(mapped, checkpoints))

    async def _leave(self, mapped: int, checkpoints: Collection[Checkpoint] | None) -> None:
        client, nobody = wire_client(self.target.bootstrap), Client(Endpoint((("127.0.0.1", 1),)))
        nobody.id = self.source_id
        await client.refresh()
        keeper = MapKeeper(client, nobody, "", lambda event: None)
        await keeper.open()
        for offset in (0, mapped):
            cuts = (Cut(0, offset, offset),)
            await keeper.begin([Position(self.topic, 0, offset, -1, "", US, client.id, "", 1, cuts)])
            await keeper.write([(self.topic, 0)])
        if checkpoints is not None:
            rows = Checkpoints(client, self.source_id)
            await rows.start()
            await rows.write(checkpoints)
        client.close()
        await asyncio.sleep(0)

    def fail_over(self, *, is_dry: bool = False, topics: str = "") -> FailoverReport:
        async def run() -> FailoverReport:
            client = wire_client(self.target.bootstrap)
            try:
                settings = FailoverSettings(
                    group_id="mirror",
                    topics=Filter.of(topics or self.topic, None),
                    sync=SyncSettings(lambda name: name.startswith(self.topic)),
                    by="me",
                    is_dry=is_dry,
                )
                topic = await find_map(client, self.source_id)
                return await Failover(None, client, topic, settings, lambda line: None).run()
            finally:
                client.close()
                await asyncio.sleep(0)

        return asyncio.run(run())


@pytest.fixture
def remains(target: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Remains:
    monkeypatch.setattr(mirror_stop, "_STILL_FOR", 0.0)
    return Remains(target, topic_name)


def test_groups_go_on_where_the_map_and_the_checkpoints_say(remains: Remains) -> None:
    topic, target = remains.topic, remains.target
    ahead, expired, foreign, late = (f"{topic}-{name}" for name in ("ahead", "expired", "foreign", "late"))
    commit(target, ahead, topic, {0: 60})
    commit(target, foreign, topic, {0: 33})
    remains.left(
        90,
        [
            # It was ahead of the mirror, which was at offset 60 then.
            Checkpoint(ahead, topic, 0, 80, 60),
            # The target has no offset of it: it has expired, or the mirror died before it committed.
            Checkpoint(expired, topic, 0, 20, 20),
            # Somebody on the target has committed another one.
            Checkpoint(foreign, topic, 0, 50, 50),
            # The mirror knew more than the map that it had stored.
            Checkpoint(late, topic, 0, 95, 95),
        ],
    )
    dry = remains.fail_over(is_dry=True)
    assert {row.group: row.offsets[0] for row in dry.groups} == {ahead: 80, expired: 20, foreign: 33, late: 95}
    assert not dry.is_closed and committed(target, expired, topic) == {}

    report = remains.fail_over()
    assert report.is_closed and report.exit_code == 3
    states = {row.group: (row.state.value, row.offsets[0], row.again) for row in report.groups}
    assert states == {
        ahead: ("synced", 80, 20),
        expired: ("synced", 20, 80),
        foreign: ("owned by the target", 33, 67),
        late: ("ahead of the mirror", 95, 5),
    }
    assert [committed(target, group, topic)[0] for group in (ahead, expired, foreign, late)] == [80, 20, 33, 95]
    (way_out,) = [row.advice for row in report.groups if row.advice]
    assert "--delete-offsets" in way_out


def test_a_share_group_that_the_target_lacks_is_created_as_one(remains: Remains) -> None:
    topic, target = remains.topic, remains.target
    shared, blocked = f"{topic}-shared", f"{topic}-blocked"
    commit(target, blocked, topic, {0: 5})
    rows = [Checkpoint(name, topic, 0, 20, 20, before=5, is_share=True) for name in (shared, blocked)]
    remains.left(90, rows)
    report = remains.fail_over()
    assert {row.group: row.state.value for row in report.groups} == {shared: "synced", blocked: "type not movable"}
    assert types(target, shared, blocked) == {shared: "share", blocked: "classic"}


def test_a_mirror_that_had_no_groups_is_no_success(remains: Remains) -> None:
    remains.left(100, None)
    report = remains.fail_over(is_dry=True)
    assert report.exit_code == 3
    assert f"has no topic {remains.source_id}.checkpoints.internal" in "\n".join(report.lines())


def test_a_slip_of_the_pen_closes_nothing(remains: Remains) -> None:
    remains.left(100, [])
    for topics in ("ordres", f"{remains.topic},ordres", "ordres.*"):
        with pytest.raises(ClusterError, match=r"^ordres.*the offset map has no such topic; nothing was changed"):
            remains.fail_over(topics=topics)
    assert not remains.fail_over(is_dry=True).is_closed


def test_records_that_the_target_has_lost_are_counted(remains: Remains) -> None:
    remains.left(130, [])
    report = remains.fail_over()
    (row,) = report.partitions
    assert (row.mirrored, row.lost, report.exit_code) == (130, 30, 3)
    assert "30 records that it had" in "\n".join(report.lines())
