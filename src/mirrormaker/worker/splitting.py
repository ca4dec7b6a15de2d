"""Splits what a fetch brought into batches, without keeping the rest of the event loop waiting."""

from __future__ import annotations

import asyncio

from mirrormaker.wire.records.batch import Batches, Run, split, split_in_steps

_LONG = 1 << 20  # bytes that are split at once: 15,000 of the smallest batches, 30 ms


async def split_in_turns(records: memoryview) -> list[Run]:
    """Return what `split` yields. Of many bytes the headers are read too, and others have their turn after each step."""
    if len(records) < _LONG:
        return list(split(records))
    runs: list[Run] = []
    for run in split_in_steps(records):
        if run is None:
            await asyncio.sleep(0)
        else:
            runs.append(run)
    for run in runs:
        if isinstance(run, Batches):
            for _ in run.read_headers():
                await asyncio.sleep(0)
    return runs
