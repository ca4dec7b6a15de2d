"""The rows of the error table: every request of the mirror has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import mirrormaker
from mirrormaker.wire.protocol import fetch, group_messages, messages, produce
from tests.support.error_row import Row
from tests.support.error_rows import ALL_CODES, ROWS, batches
from tests.support.refusals import REQUESTS

# Packages with the commands that read groups or logs; the mirror does not use them.
_COMMANDS = {"offsets", "verification", "embedded", "zookeeper"}
# Only commands send it.
_NOT_FOR_RECORDS = {"DescribeGroups"}
_BOTH = frozenset({"source", "target"})
# The clusters to which a mirror sends each request. `requests_without_row` compares it with what proxies have seen.
_SIDES = {
    "Produce": {"target"}, "Fetch": _BOTH, "ListOffsets": _BOTH, "Metadata": _BOTH, "OffsetCommit": _BOTH,
    "OffsetFetch": _BOTH, "FindCoordinator": _BOTH, "JoinGroup": {"source"}, "Heartbeat": {"source"},
    "LeaveGroup": {"source"}, "SyncGroup": {"source"}, "ListGroups": _BOTH, "SaslHandshake": _BOTH,
    "ApiVersions": _BOTH, "CreateTopics": {"target"}, "InitProducerId": {"target"}, "OffsetForLeaderEpoch": {"source"},
    "DescribeConfigs": _BOTH, "SaslAuthenticate": _BOTH, "CreatePartitions": {"target"}, "DescribeProducers": _BOTH,
    "DescribeShareGroupOffsets": _BOTH, "AlterShareGroupOffsets": {"target"},
}  # fmt: skip
# How a request that is framed by hand names its API key where it is sent: with a class of kafka-python, or with a parameter
# whose values are looked for below.
_NAMED = {"request.API_KEY", "key"}


def _sources() -> Iterator[str]:
    """Yield the text of each module that a mirror uses, but for those that define requests."""
    source = Path(mirrormaker.__file__).parent
    for file in source.rglob("*.py"):
        package = file.relative_to(source).parts
        if package[0] not in _COMMANDS and package[:2] != ("wire", "protocol"):
            yield file.read_text()


def _framed_by_hand() -> set[int]:
    """Return the API keys of the requests that kafka-python does not encode."""
    sent = {key for text in _sources() for key in re.findall(r"\.request\(\s*([\w.]+),", text)} - _NAMED
    assert sent == {"fetch.API_KEY", "produce.API_KEY"}
    names = {name for text in _sources() for name in re.findall(r"\bwire\.([A-Z][A-Z_]+)\b", text)}
    numbers = {getattr(group_messages, name) for name in names if hasattr(group_messages, name)}
    return {fetch.API_KEY, produce.API_KEY, *(number for number in numbers if isinstance(number, int))}


def test_every_request_that_the_mirror_can_send_has_a_row_for_each_cluster() -> None:
    known = {name for name in messages.__all__ if name.endswith("Request")}
    used = {name for text in _sources() for name in known & set(re.findall(r"\w+Request\b", text))}
    by_hand = _framed_by_hand()
    assert by_hand <= set(REQUESTS.values())
    names = {name.removesuffix("Request") for name in used} | {"ApiVersions"}  # sent by wire/protocol itself
    names |= {name for name, key in REQUESTS.items() if key in by_hand}
    assert names - _NOT_FOR_RECORDS == _SIDES.keys() == REQUESTS.keys()
    with_row = {(row.request, row.side) for row in ROWS}
    assert with_row == {(name, side) for name, sides in _SIDES.items() for side in sides}


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_each_code_of_a_row_is_tried_once_and_special_ones_alone() -> None:
    for row in ROWS:
        found = list(batches(row, ALL_CODES, 24))
        assert sorted(code for some in found for code in some) == sorted(ALL_CODES)
        assert all(len(some) == 1 for some in found if not row.together and set(some) & set(row.special))


def test_codes_of_different_kinds_are_not_tried_in_the_same_answer() -> None:
    row = Row("OffsetCommit", "source", alike=True, special=(16,))
    assert list(batches(row, (-1, 14, 15, 16, 1, 8, 29), 3)) == [[-1, 1, 8], [14, 15], [16], [29]]
    assert list(batches(Row("Heartbeat", "source"), (14, 15), 3)) == [[14], [15]]
    assert list(batches(Row("Fetch", "source", together=True), (14, 15, 1, 2), 3)) == [[14, 15, 1], [2]]
