"""What a failover prints, and its exit code."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mirrormaker.groups.failover_report import FailoverReport, GroupStart
from mirrormaker.groups.flow_ends import PartitionEnd
from mirrormaker.model.group_sync import State

NOW = 1_800_000_000_000
DONE = (
    PartitionEnd("orders", 0, 1500, 0, timestamp=NOW - 30_000),
    PartitionEnd("orders", 1, 1000, 0, timestamp=NOW - 90_000),
)
BILLING = GroupStart("billing", "orders", {0: 454, 1: 453}, State.SYNCED, 0, 0)
REPORT = FailoverReport("a-cluster", NOW, False, True, True, DONE, (BILLING,), True)


def test_everything_is_there() -> None:
    assert REPORT.exit_code == 0
    assert list(REPORT.lines()) == [
        "TOPIC   PARTITIONS  MIRRORED UP TO  LAST RECORD (UTC)    OLDEST PARTITION        NOT ON THE TARGET",
        "orders  2           2,500 offsets   2027-01-15 07:59:30  1: 2027-01-15 07:58:30  nothing",
        "",
        "GROUP    TOPIC   STARTS AT    STATE   READ AGAIN  CANNOT READ",
        "billing  orders  0:454 1:453  synced  0           0",
        "",
        "the flow is closed; everything that was chosen is on the target, and every group is ready",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(DONE[0], missing=7), "7 records"),
        (replace(DONE[0], lost=3), "3 records that it had, nothing"),
        (replace(DONE[0], trouble="orders-0 has no leader on the target"), "orders-0: orders-0 has no leader"),
    ],
)
def test_a_partition_that_is_not_complete_makes_exit_code_3(changed: PartitionEnd, words: str) -> None:
    report = replace(REPORT, partitions=(changed, DONE[1]))
    assert report.exit_code == 3
    assert words in "\n".join(report.lines())
    assert "not complete: see above" in list(report.lines())[-1]


@pytest.mark.parametrize("state", list(State))
def test_a_group_that_is_not_ready_makes_exit_code_3_and_names_the_way_out(state: State) -> None:
    report = replace(REPORT, groups=(replace(BILLING, state=state, advice="" if state.is_ready else "do this"),))
    assert report.exit_code == (0 if state.is_ready else 3)
    assert ("billing: orders: do this" in report.lines()) is not state.is_ready


def test_topics_of_a_group_that_were_not_chosen_are_named_once() -> None:
    rows = [replace(BILLING, topic=topic, left_out=("audit", "sales")) for topic in ("orders", "refunds")]
    report = replace(REPORT, groups=rows)
    assert report.exit_code == 0
    assert list(report.lines())[6] == "billing also reads audit, sales, which are not among the chosen topics"
    assert len([line for line in report.lines() if "audit" in line]) == 1
    assert report.to_json()["groups"][0]["left_out"] == ("audit", "sales")


def test_a_group_of_which_nothing_can_be_read_has_no_topic() -> None:
    row = GroupStart("away", "", {}, State.REFUSED, None, None, "old:9092 does not tell its offsets")
    report = replace(REPORT, groups=(BILLING, row))
    assert report.exit_code == 3
    lines = list(report.lines())
    assert lines[5].split() == ["away", "-", "-", "refused", "by", "the", "target", "-", "-"]
    assert lines[6] == "away: old:9092 does not tell its offsets"
    found = report.to_json()["groups"][1]
    assert (found["topic"], found["again"], found["missing"], found["ready"]) == (None, None, None, False)


def test_other_troubles_make_exit_code_3() -> None:
    report = replace(REPORT, troubles=("a mirror is still a member",))
    assert report.exit_code == 3
    assert "a mirror is still a member" in report.lines()
    assert replace(REPORT, partitions=()).exit_code == 3


def test_without_the_source_the_table_says_since_when() -> None:
    rows = tuple(replace(row, missing=None, unmapped=2) for row in DONE)
    report = replace(REPORT, source_answered=False, partitions=rows)
    assert report.exit_code == 0
    text = "\n".join(report.lines())
    assert "2,500 offsets + 4 records" in text
    assert "what was written in the last 30 s" in text
    assert "everything that the mirror brought is on the target" in text


def test_without_the_source_a_partition_that_stopped_long_ago_is_named_and_not_called_lost() -> None:
    stopped = replace(DONE[1], timestamp=NOW - 3_600_000)
    rows = tuple(replace(row, missing=None) for row in (DONE[0], stopped))
    report = replace(REPORT, source_answered=False, partitions=rows)
    text = "\n".join(report.lines())
    assert (
        "2027-01-15 07:59:30  1: 2027-01-15 07:00:00  what was written in the last 30 s,"
        " in partition 1 in the last 3,600 s unless it was quiet"
    ) in text
    (topic,) = report.to_json()["topics"]
    assert (topic["oldest_partition"], topic["oldest_timestamp"]) == (1, NOW - 3_600_000)
    assert (topic["seconds_since"], topic["oldest_seconds_since"]) == (30.0, 3600.0)
    # A partition that was mirrored to its end is complete, however old its last record is.
    assert replace(report, partitions=tuple(replace(row, missing=0) for row in rows)).exit_code == 0


def test_partitions_without_a_time_are_counted_and_hide_none() -> None:
    rows = (replace(DONE[0], missing=None), *(PartitionEnd("orders", number, 0, None) for number in (1, 2)))
    text = "\n".join(replace(REPORT, source_answered=False, partitions=rows).lines())
    assert "0: 2027-01-15 07:59:30, 2 unknown  what was written in the last 30 s" in text


def test_a_topic_without_records_has_no_time() -> None:
    report = replace(REPORT, partitions=(PartitionEnd("orders", 0, 0, None),))
    assert "unknown" in "\n".join(report.lines())
    (topic,) = report.to_json()["topics"]
    assert (topic["seconds_since"], topic["oldest_partition"], topic["oldest_seconds_since"]) == (None, None, None)


def test_a_dry_run_says_so() -> None:
    assert "nothing was changed (--dry.run)" in list(replace(REPORT, is_dry=True, is_closed=False).lines())[-1]
    assert "the flow is still open" in list(replace(REPORT, is_closed=False).lines())[-1]


def test_many_partitions_do_not_fill_the_table() -> None:
    wide = replace(BILLING, offsets={number: None if number == 1 else number for number in range(100)})
    assert "0:0 1:- 2:2 3:3 +96" in "\n".join(replace(REPORT, groups=(wide,)).lines())
    rows = tuple(PartitionEnd("orders", number, 0, 0, trouble="no leader") for number in range(100))
    assert "... and 90 more: --json shows them" in replace(REPORT, partitions=rows).lines()


def test_groups_that_were_not_chosen_and_those_that_are_not_there_are_told_apart() -> None:
    without = replace(REPORT, groups=(), chooses_groups=False)
    assert without.exit_code == 0 and "--groups REGEX" in "\n".join(without.lines())
    # A typing error in the choice must not look like a success.
    absent = replace(REPORT, groups=())
    assert absent.exit_code == 3 and "no chosen group has offsets in these topics" in "\n".join(absent.lines())


def test_topics_that_a_fence_concerns_too_are_named_before_anybody_decides() -> None:
    noted = replace(REPORT, is_dry=True, notes=("a fence is for all topics",))
    assert "a fence is for all topics" in noted.lines()
    assert noted.exit_code == 0 and noted.to_json()["notes"] == ["a fence is for all topics"]


def test_json_has_every_partition() -> None:
    found = json.loads(json.dumps(REPORT.to_json()))
    (topic,), (group,) = found["topics"], found["groups"]
    assert (found["complete"], found["closed"], found["source"]) == (True, True, "a-cluster")
    assert (topic["mirrored"], topic["missing"], topic["seconds_since"]) == (2500, 0, 30.0)
    assert [row["mirrored"] for row in topic["partitions"]] == [1500, 1000]
    assert (group["offsets"], group["state"], group["ready"]) == ({"0": 454, "1": 453}, "synced", True)
