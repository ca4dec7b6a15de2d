"""What a broker's log says about the batches in it."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.embedded import Cluster
from mirrormaker.wire.records import batch as wire


@dataclass(frozen=True)
class Batches:
    """Means over some batches, and the codecs that they use."""

    records: float
    kilobytes: float
    codecs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.records:.1f} records and {self.kilobytes:.1f} KB a batch, {' and '.join(self.codecs)}"


def batches_in(cluster: Cluster, topic: str) -> Batches:
    """The batches in the first 8 MB of partition 0, which must not be empty."""
    with open(cluster.directory / "broker-1" / f"{topic}-0" / f"{0:020d}.log", "rb") as log:
        data = log.read(8 << 20)
    runs = [run for run in wire.split(memoryview(data)) if isinstance(run, wire.Batches)]
    found = [batch for run in runs for batch in run]
    records, size = sum(batch.count for batch in found), sum(len(batch.data) for batch in found)
    codecs = sorted({batch.codec for batch in found})
    return Batches(records / len(found), size / len(found) / 1000, tuple(codecs))
