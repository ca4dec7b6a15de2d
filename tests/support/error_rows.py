"""The rows of the error table: the requests that a mirror sends, and what makes it send each of them for a topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirrormaker.kafka_errors import CODES as KNOWN_CODES
from mirrormaker.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    LEADER_NOT_AVAILABLE,
    MEMBER_ID_REQUIRED,
    MESSAGE_TOO_LARGE,
    NOT_CONTROLLER,
    NOT_COORDINATOR,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    REBALANCE_IN_PROGRESS,
    REQUEST_TIMED_OUT,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_PRODUCER_ID,
    UNSTABLE_OFFSET_COMMIT,
    Scope,
    error_code,
)
from tests.support.error_row import Row, Trigger, wait_for_hits
from tests.support.own_rows import GROUP_ROWS, MAP_ROWS
from tests.support.refusals import NETWORK_EXCEPTION, WHOLE
from tests.support.table_stage import Stage, admin
from tests.support.waiting import wait_until

UNKNOWN_CODE = 9999
ALL_CODES = (*sorted(KNOWN_CODES), UNKNOWN_CODE)


def _read_back(stage: Stage, topics: Sequence[str]) -> None:
    """Leave it open whether a batch was appended, so that the stream reads the target's log."""
    stage.target_proxy.refuse("Produce", dict.fromkeys(topics, NETWORK_EXCEPTION), times=1)


def _new_numbers(stage: Stage, topics: Sequence[str]) -> None:
    """Say once that the source does not have the next offset, so that the driver looks for it and renumbers."""
    stage.source_proxy.refuse("Fetch", dict.fromkeys(topics, OFFSET_OUT_OF_RANGE), times=1)


def _rejoin(stage: Stage, topics: Sequence[str]) -> None:
    stage.source_proxy.refuse("Heartbeat", {WHOLE: REBALANCE_IN_PROGRESS}, times=1)


def _forget_coordinator(stage: Stage, topics: Sequence[str]) -> None:
    stage.source_proxy.refuse("Heartbeat", {WHOLE: NOT_COORDINATOR}, times=1)


def _forget_members(stage: Stage, topics: Sequence[str]) -> None:
    """Let the group forget the mirror: every partition starts again from the ledger."""
    stage.source_proxy.refuse("Heartbeat", {WHOLE: UNKNOWN_MEMBER_ID}, times=1)


def _reconnect_source(stage: Stage, topics: Sequence[str]) -> None:
    stage.source_proxy.cut()


def _reconnect_target(stage: Stage, topics: Sequence[str]) -> None:
    stage.target_proxy.cut()


_RECONNECT: dict[str, Trigger] = {"source": _reconnect_source, "target": _reconnect_target}


def _create(stage: Stage, topics: Sequence[str]) -> None:
    stage.create_on_source(topics)


def grow(stage: Stage, topics: Sequence[str]) -> None:
    """Add a partition to each topic of the source."""
    with admin(stage.source) as client:
        client.create_partitions(dict.fromkeys(topics, 2))
    stage.load.add(topics, 2)


def _delete_unread(stage: Stage, topics: Sequence[str]) -> None:
    """Let the source lose records that are not mirrored yet."""
    held = stage.source_proxy.refuse("Fetch", dict.fromkeys(topics, LEADER_NOT_AVAILABLE))
    wait_for_hits(stage, held.hits, topics)
    before = {topic: stage.watch.ends(topic)[0] for topic in topics}
    wait_until("unread records", lambda: all(stage.watch.ends(t)[0] > before[t] + 3 for t in topics))
    stage.load.pause()
    stage.watch.settle()  # everything that was fetched before is on the target
    lost = {topic: stage.behind(topic) for topic in topics}
    stage.delete_records(stage.source, topics)
    for topic in topics:
        stage.surplus[topic] -= lost[topic]
    stage.load.resume()
    stage.source_proxy.allow(held)


def _delete_unconfirmed(stage: Stage, topics: Sequence[str]) -> None:
    """Delete a batch on the target before the stream knows whether it was appended."""
    held = stage.target_proxy.refuse("ListOffsets", dict.fromkeys(topics, LEADER_NOT_AVAILABLE))
    stage.target_proxy.refuse("Produce", dict.fromkeys(topics, NETWORK_EXCEPTION), times=1)
    wait_for_hits(stage, held.hits, topics)
    stage.delete_records(stage.target, topics)
    stage.target_proxy.allow(held)


ROWS = (
    Row("Metadata", "source", together=True),
    Row("Metadata", "source", _create, "new topic", new=True, alike=True),
    Row("Metadata", "target", together=True),
    Row("Metadata", "target", _read_back, "while a stream reads back", together=True),
    Row("Fetch", "source", special=(OFFSET_OUT_OF_RANGE,), together=True),
    Row("Fetch", "target", _read_back, "read-back", together=True),
    Row("ListOffsets", "target", _read_back, "read-back", together=True),
    Row("ListOffsets", "source", _new_numbers, "new numbers", together=True),
    Row("OffsetForLeaderEpoch", "source", _new_numbers, together=True),
    Row("InitProducerId", "target", _new_numbers, "new numbers", whole=True, sampled=True),
    Row("InitProducerId", "target", _create, "new topic", whole=True, new=True, sampled=True),
    Row("DescribeProducers", "target", _delete_unconfirmed, "deleted before it was confirmed", together=True),
    Row("DescribeProducers", "source", _delete_unread, "lost records", together=True),
    Row("DescribeConfigs", "source", _delete_unread, "lost records", together=True),
    Row(
        "Produce", "target", together=True,
        special=(
            REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, NETWORK_EXCEPTION, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID
        ),
    ),
    Row("OffsetCommit", "source", alike=True, special=(REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, NOT_COORDINATOR)),
    Row("OffsetFetch", "source", _forget_members, alike=True, special=(NOT_COORDINATOR, UNSTABLE_OFFSET_COMMIT)),
    Row("OffsetFetch", "source", _create, "whole", whole=True, new=True, special=(NOT_COORDINATOR,)),
    Row("DescribeConfigs", "source", _create, "new topic", new=True, alike=True),
    Row("DescribeConfigs", "target", _create, "new topic", new=True, together=True),
    Row(
        "CreateTopics", "target", _create, new=True, alike=True,
        special=(TOPIC_ALREADY_EXISTS, NOT_CONTROLLER, 17, 37, 38, 40, 44),
    ),
    Row("ListOffsets", "source", _create, "new topic", new=True, alike=True),
    Row("ListOffsets", "target", _create, "new topic", new=True, alike=True),
    Row("Metadata", "target", _create, "new topic", new=True, alike=True),
    Row("CreatePartitions", "target", grow, alike=True, special=(37,)),
    Row("Fetch", "source", why="whole", whole=True, spreads=True),
    Row("FindCoordinator", "source", _forget_coordinator, whole=True, sampled=True, special=(COORDINATOR_NOT_AVAILABLE, 30)),
    Row(
        "JoinGroup", "source", _rejoin, whole=True, sampled=True, ends=(FENCED_INSTANCE_ID,),
        special=(UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, 30),
    ),
    Row(
        "SyncGroup", "source", _rejoin, whole=True, sampled=True, ends=(FENCED_INSTANCE_ID,),
        special=(REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION),
    ),
    Row(
        "Heartbeat", "source", whole=True, sampled=True, ends=(FENCED_INSTANCE_ID,),
        special=(REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID),
    ),
    *(
        Row(request, side, _RECONNECT[side], why, whole=True, spreads=True, login=login, sampled=True)
        for request, why, login in (
            ("ApiVersions", "", False), ("ApiVersions", "before the login", True), ("SaslHandshake", "", True),
            ("SaslAuthenticate", "", True),
        )
        for side in _RECONNECT
    ),
    Row("LeaveGroup", "source", why="at the end", whole=True, sampled=True),
    *MAP_ROWS,
    *GROUP_ROWS,
)  # fmt: skip


def codes_of(row: Row) -> tuple[int, ...]:
    """Return the codes to try."""
    return sample_codes(row) if row.sampled else ALL_CODES


def batches(row: Row, codes: Sequence[int], at_once: int) -> Iterator[Sequence[int]]:
    """Cut codes into lists of those that can be tried at the same time."""
    groups: dict[object, list[int]] = {}
    for code in codes:
        known = error_code(code)
        is_alone = not row.together and (code in (*row.special, *row.ends) or not row.alike)
        groups.setdefault(code if is_alone else () if row.together else known[2:4], []).append(code)
    for group in groups.values():
        for start in range(0, len(group), at_once):
            yield group[start : start + at_once]


def sample_codes(row: Row) -> tuple[int, ...]:
    """Return one code of each kind (retriable or not, and each scope), a missing right, an unknown and the special ones."""
    kinds: dict[tuple[bool, Scope], int] = {}
    for code in KNOWN_CODES.values():
        kinds.setdefault((code.retriable, code.scope), code.code)
    return tuple(sorted({*kinds.values(), TOPIC_AUTHORIZATION_FAILED, UNKNOWN_CODE, *row.special}))


def requests_without_row(stage: Stage) -> list[str]:
    """Return the requests that have come to the clusters of a stage, and that have no row."""
    with_row = {(row.request, row.side) for row in ROWS}
    seen = [(request, side) for side in _RECONNECT for request in stage.proxy(side).script.seen]
    return sorted(f"{request}@{side}" for request, side in seen if (request, side) not in with_row)
