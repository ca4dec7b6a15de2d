"""One trouble stays one trouble: each request of the mirror, times error codes of each kind, times one topic of several.

`python -m faults --table` runs the whole table, with all of Kafka's error codes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.error_row import Row
from tests.support.error_rows import ROWS, requests_without_row, sample_codes
from tests.support.error_table import Table
from tests.support.table_stage import Stage, table_stage

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

AT_ONCE = 16  # more than the codes of any row
ONE_BY_ONE = 4  # codes of a row whose codes have to be tried one after the other, each for some seconds
# Rows of each kind: a stream's requests and the driver's, before the start and after it, of one topic and of the whole source.
# The others are as slow; `faults --table` runs all of them.
IN_SHORT = (
    "Metadata@target",
    "Fetch@source",
    "ListOffsets@target (read-back)",
    "OffsetCommit@source",
    "CreateTopics@target",
    "ListOffsets@source (new topic)",
    "Heartbeat@source",
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One mirror for all rows."""
    with table_stage(tmp_path_factory.mktemp("table")) as stage:
        yield stage


@pytest.fixture(scope="module")
def table(stage: Stage) -> Table:
    return Table(stage, AT_ONCE)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in IN_SHORT], ids=lambda row: row.name)
def test_an_error_of_one_topic_stays_with_its_topic(table: Table, row: Row) -> None:
    codes = sample_codes(row)
    if not row.together:
        # The special codes, and some of the others.
        codes = (*row.special, *(code for code in codes if code not in row.special))[:ONE_BY_ONE]
    cells = table.run(row, codes)
    assert [cell.code for cell in cells] == list(codes)
    failed = [str(cell) for cell in cells if not cell.holds]
    assert not failed, "\n".join(failed)


def test_the_mirror_sends_no_request_that_has_no_row(stage: Stage) -> None:
    """The tests above have made the mirror start, rebalance, read its target's log and stop partitions."""
    assert len(stage.source_proxy.script.seen) > 8
    assert requests_without_row(stage) == []


def test_the_short_form_names_rows_that_exist() -> None:
    assert set(IN_SHORT) <= {row.name for row in ROWS}
