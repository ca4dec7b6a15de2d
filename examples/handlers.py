"""Message handlers to start from. Run one with the directory of this file in PYTHONPATH:

PYTHONPATH=examples mirrormaker run ... --message.handler handlers:without_tests
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.handlers import Record, tables


def without_tests(record: Record) -> list[Record]:
    """From record to records: drop what is a test, change the rest, send some of it to another topic as well."""
    event = json.loads(record.value or b"{}")
    if event.get("test"):
        return []
    changed = replace(record, value=json.dumps(event | {"mirrored": True}).encode())
    if event.get("amount", 0) > 1000:
        return [changed, replace(changed, topic=f"{record.topic}.large")]
    return [changed]


@tables
class Since:
    """From Arrow table to Arrow table, for speed: only what is younger than a time.

    --message.handler handlers:Since --message.handler.args 1700000000000
    """

    def __init__(self, milliseconds: str) -> None:
        self.milliseconds = int(milliseconds)

    def __call__(self, table: pa.Table) -> pa.Table:
        return table.filter(pc.greater_equal(table["timestamp"], self.milliseconds))


class Listener:
    """Told of what this process mirrors: --consumer.rebalance.listener handlers:Listener"""

    def on_partitions_assigned(self, partitions: set[tuple[str, int]]) -> None:
        print(f"now mirrored here: {sorted(f'{topic}-{number}' for topic, number in partitions)}", flush=True)

    def on_partitions_revoked(self, partitions: set[tuple[str, int]]) -> None:
        print(f"no longer mirrored here: {sorted(f'{topic}-{number}' for topic, number in partitions)}", flush=True)
