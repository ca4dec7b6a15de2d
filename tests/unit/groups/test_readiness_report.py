"""The table and the JSON of `mirrormaker groups`."""

from __future__ import annotations

import json
from dataclasses import replace

from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness, Readiness
from mirrormaker.groups.readiness_report import as_json, lines
from mirrormaker.model.group_sync import Cost, State
from mirrormaker.model.offset_map_format import Fence

NOW = 1_800_000_000.0
SYNCED = GroupReadiness(
    "billing",
    "orders",
    (
        PartitionReadiness(0, 30, 24, Cost(State.SYNCED, 2, 0)),
        PartitionReadiness(1, 40, 43, Cost(State.AHEAD, 1, 5)),
    ),
    NOW - 61,
    "wait until the mirror has caught up",
)
PENDING = GroupReadiness(
    "ship ping", "orders", (PartitionReadiness(0, 9, None, Cost(State.PENDING)),), None, "wait for the next round"
)
UNREADABLE = GroupReadiness(
    "secret", "", (PartitionReadiness(-1, None, None, Cost(State.NO_RIGHTS)),), None, "grant it"
)


def found(*rows: GroupReadiness, trouble: str = "", fence: Fence | None = None) -> Readiness:
    return Readiness("old:9092", "new:9092", rows, trouble, fence)


def test_a_row_adds_up_partitions_and_says_so() -> None:
    assert list(lines(found(SYNCED), NOW)) == [
        "GROUP    TOPIC   SOURCE OFFSET  TARGET OFFSET  STATE                READ AGAIN  MISSING  LAST WRITTEN",
        "billing  orders  70             67             ahead of the mirror  3           5        61 s ago",
        "ready to fail over: 1 of 1",
        "offsets and records of several partitions are added up; --partitions shows each",
    ]


def test_each_partition_can_have_a_row() -> None:
    assert list(lines(found(SYNCED), NOW, partitions=True)) == [
        "GROUP    TOPIC   PARTITION  SOURCE OFFSET  TARGET OFFSET  STATE                READ AGAIN  MISSING  LAST WRITTEN",
        "billing  orders  0          30             24             synced               2           0        61 s ago",
        "billing  orders  1          40             43             ahead of the mirror  1           5        61 s ago",
        "ready to fail over: 1 of 1",
    ]


def test_groups_that_are_not_ready_have_their_way_out_below_the_table() -> None:
    text = list(lines(found(SYNCED, PENDING, UNREADABLE), NOW))
    assert text[2:4] == [
        "ship ping  orders  9              -              not written yet      -           -        never",
        "secret     -       -              -              no rights            -           -        never",
    ]
    assert text[4] == "ready to fail over: 1 of 3"
    assert text[6:] == ["ship ping in orders: not written yet: wait for the next round", "secret: no rights: grant it"]


def test_a_long_list_of_advice_is_cut() -> None:
    text = list(lines(found(*[PENDING] * 25), NOW))
    assert len(text) == 1 + 25 + 1 + 20 + 1
    assert text[-1] == "5 more are not ready; --json has the advice for each"


def test_topics_of_a_group_that_are_not_mirrored_are_named_once_and_leave_it_ready() -> None:
    rows = [replace(SYNCED, topic=topic, left_out=("audit",)) for topic in ("orders", "sales")]
    text = list(lines(found(*rows), NOW))
    assert text[-3:] == [
        "ready to fail over: 2 of 2",
        "offsets and records of several partitions are added up; --partitions shows each",
        "billing also reads audit, which is not mirrored",
    ]
    assert found(*rows).is_ready
    assert [row["not_mirrored"] for row in as_json(found(*rows, PENDING), NOW)["groups"]] == [["audit"], ["audit"], []]


def test_no_group_is_not_ready() -> None:
    assert not found().is_ready
    assert list(lines(found(), NOW)) == ["no chosen group has committed an offset in a mirrored topic"]


def test_a_source_that_is_gone_and_a_failover_are_said_first() -> None:
    text = list(lines(found(SYNCED, trouble="no route", fence=Fence(1_700_000_000_000, "anna")), NOW))
    assert text[:2] == [
        "the source does not answer (no route): its offsets are those that the mirror last wrote",
        "a failover closed this flow at 2023-11-14 22:13:20 UTC (by anna): no mirror writes any more",
    ]


def test_json_has_null_for_numbers_that_are_not_known() -> None:
    document = json.loads(json.dumps(as_json(found(SYNCED, PENDING, UNREADABLE), NOW)))
    assert (document["source"], document["target"], document["ready"]) == ("old:9092", "new:9092", False)
    assert (document["source_trouble"], document["closed_by_failover"]) == (None, None)
    first, second, third = document["groups"]
    assert first == {
        "group": "billing",
        "topic": "orders",
        "state": "ahead of the mirror",
        "ready": True,
        "source_offset": 70,
        "target_offset": 67,
        "read_again": 3,
        "missing": 5,
        "last_written": NOW - 61,
        "seconds_since_written": 61.0,
        "advice": "wait until the mirror has caught up",
        "not_mirrored": [],
        "partitions": [
            {
                "partition": 0,
                "source_offset": 30,
                "target_offset": 24,
                "state": "synced",
                "read_again": 2,
                "missing": 0,
            },
            {
                "partition": 1,
                "source_offset": 40,
                "target_offset": 43,
                "state": "ahead of the mirror",
                "read_again": 1,
                "missing": 5,
            },
        ],
    }
    assert (second["target_offset"], second["read_again"], second["last_written"]) == (None, None, None)
    assert (third["topic"], third["partitions"], third["ready"]) == (None, [], False)
