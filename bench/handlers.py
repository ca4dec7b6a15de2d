"""Ours in workload H: the message handler in both shapes. UpperCase.java does the same for the Java MirrorMaker."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.handlers import Record, tables


def upper_case(record: Record) -> list[Record]:
    return [replace(record, value=record.value and record.value.upper())]


@tables
def upper_case_table(table: pa.Table) -> pa.Table:
    upper = pc.ascii_upper(table.column("value").cast(pa.string())).cast(pa.binary())
    return table.set_column(table.column_names.index("value"), "value", upper)
