"""The rows of the error table: every request of the mirror has one."""

from __future__ import annotations

import re
from pathlib import Path

import mirrormaker
from mirrormaker.wire.protocol import messages
from tests.support.error_rows import ALL_CODES, ROWS, Row, batches
from tests.support.refusals import REQUESTS

# Packages with the commands that read groups or logs; the mirror does not use them.
_COMMANDS = {"offsets", "verification", "embedded", "zookeeper"}
# The loop that keeps consumer groups in step sends the first; no partition waits for it, and the mirror of the table keeps no
# groups: tests/unit/wire/client/test_group_offsets.py tries every code with it. Only commands send the second.
_NOT_FOR_RECORDS = {"ListGroups", "DescribeGroups"}
_OF_SHARE_GROUPS = {"DescribeShareGroupOffsets", "AlterShareGroupOffsets"}


def test_every_request_that_the_mirror_can_send_has_a_row() -> None:
    source = Path(mirrormaker.__file__).parent
    known = {name for name in messages.__all__ if name.endswith("Request")}
    used = {"FetchRequest", "ProduceRequest", "ApiVersionsRequest"}  # these are made in wire/protocol
    for file in source.rglob("*.py"):
        package = file.relative_to(source).parts
        if package[0] not in _COMMANDS and package[:2] != ("wire", "protocol"):
            used |= known & set(re.findall(r"\w+Request\b", file.read_text()))
    assert {name.removesuffix("Request") for name in used} - _NOT_FOR_RECORDS == {row.request for row in ROWS}
    assert {row.request for row in ROWS} == REQUESTS.keys() - _NOT_FOR_RECORDS - _OF_SHARE_GROUPS


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
