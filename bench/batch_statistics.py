"""The size and the codecs of the record batches in a broker's log."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.embedded import Cluster
from mirrormaker.wire.records.batch import Batches, split


@dataclass(frozen=True)
class BatchStatistics:
    """Means over some record batches, and the codecs that they use."""

    records: float  # per batch
    kilobytes: float  # per batch
    codecs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.records:.1f} records and {self.kilobytes:.1f} KB per batch, {' and '.join(self.codecs)}"


def batch_statistics(cluster: Cluster, topic: str) -> BatchStatistics:
    """Return the statistics of the first 8 MB of partition 0, which must not be empty."""
    with open(cluster.directory / "broker-1" / f"{topic}-0" / f"{0:020d}.log", "rb") as log:
        data = log.read(8 << 20)
    runs = [run for run in split(memoryview(data)) if isinstance(run, Batches)]
    batches = [batch for run in runs for batch in run]
    records, size = sum(batch.count for batch in batches), sum(len(batch.data) for batch in batches)
    codecs = sorted({batch.codec for batch in batches})
    return BatchStatistics(records / len(batches), size / len(batches) / 1000, tuple(codecs))
