"""The message handlers of workload H, for single records and for tables. UpperCase.java is the Java MirrorMaker's."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.handlers import Record, tables


def upper_case(record: Record) -> list[Record]:
    """Return the record with its value in upper case."""
    return [replace(record, value=record.value and record.value.upper())]


@tables
def upper_case_table(table: pa.Table) -> pa.Table:
    """Return the table with all values in upper case."""
    upper = pc.ascii_upper(table.column("value").cast(pa.string())).cast(pa.binary())
    return table.set_column(table.column_names.index("value"), "value", upper)
