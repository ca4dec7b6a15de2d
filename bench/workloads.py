"""The work: what there is to copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.stage import PARTITIONS

_SHIPPED = ("ours", "mm1", "mm2")
_ALL = (*_SHIPPED, "mm1-tuned", "mm2-tuned")


@dataclass(frozen=True)
class Workload:
    """Records of one size in batches of one kind. `limit` is the seconds that a mirror may take for it."""

    name: str
    title: str
    records: int
    record_size: int
    codec: str
    batch_size: int | None
    """Of the producer that writes them, in bytes; without one, batches hold one to five records."""
    limit: float
    tools: tuple[str, ...] = _ALL
    keyed: bool = False
    """Has keys of 8 bytes (part of the record size), each in the partition where Java's partitioner puts it."""
    target_partitions: int = PARTITIONS

    @property
    def topic(self) -> str:
        return f"bench-{self.name.lower()}"

    @property
    def gigabytes(self) -> float:
        return self.records * self.record_size / 1e9


@dataclass(frozen=True)
class Latency:
    """A steady trickle instead of a backlog."""

    name: str
    title: str
    warm_up: float
    seconds: float
    rate: int = 500
    record_size: int = 100
    tools: tuple[str, ...] = _SHIPPED
    """What is tuned for throughput pays for it with latency, and would only look bad here."""


W1 = Workload("W1", "2 M x 1 KB, uncompressed, 16 KB batches", 2_000_000, 1024, "none", 16_384, limit=120)
W2 = Workload("W2", "10 M x 100 B, lz4, 64 KB batches", 10_000_000, 100, "lz4", 65_536, limit=150)
W3 = Workload("W3", "2 M x 100 B, uncompressed, 1 to 5 records a batch", 2_000_040, 100, "none", None, limit=120)
W4 = Workload(
    "W4", "2 M x 1 KB with keys, uncompressed, 16 KB batches, from 8 to 12 partitions", 2_000_000, 1024, "none", 16_384,
    limit=120, keyed=True, target_partitions=12,
)  # fmt: skip
L = Latency("L", "500 records/s, 100 B", warm_up=10, seconds=30)

FULL = (W1, W2, W3, W4, L)
# Five minutes are short: where no goal is at stake, a Java tool is left out.
QUICK = (
    replace(W1, title="200 k x 1 KB, uncompressed, 16 KB batches", records=200_000, limit=60, tools=_SHIPPED),
    replace(W2, title="1 M x 100 B, lz4, 64 KB batches", records=1_000_000, limit=60, tools=_SHIPPED),
    replace(W3, title="150 k x 100 B, 1 to 5 records a batch", records=150_000, limit=60, tools=("ours", "mm1")),
    replace(
        W4,
        title="200 k x 1 KB with keys, 16 KB batches, from 8 to 12 partitions",
        records=200_064,
        limit=60,
        tools=("ours", "mm1"),
    ),
    replace(L, warm_up=3, seconds=10, tools=("ours", "mm2")),
)
