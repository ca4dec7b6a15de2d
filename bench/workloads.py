"""The work: what there is to copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.stage import PARTITIONS

_SHIPPED = ("ours", "mm1", "mm2")
_ALL = (*_SHIPPED, "mm1-tuned", "mm2-tuned")
_WITH_HANDLERS = ("ours-records", "ours-tables", "mm1-handler")


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
    lines: bool = False
    """Values are JSON lines; others are random letters or bytes."""
    keyed: bool = False
    """Has keys of 8 bytes (part of the record size), each in the partition where Java's partitioner puts it."""
    target_partitions: int = PARTITIONS
    target_codec: str | None = None
    """What every mirror is told to compress with; without one, each does what it does unless told."""
    tls: bool = False
    """Both clusters are spoken to through TLS, with client certificates."""

    @property
    def topic(self) -> str:
        return f"bench-{self.name.lower()}"


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
W2 = Workload("W2", "10 M x 100 B, lz4, 64 KB batches", 10_000_000, 100, "lz4", 65_536, limit=150, lines=True)
W3 = Workload("W3", "2 M x 100 B, uncompressed, 1 to 5 records a batch", 2_000_040, 100, "none", None, limit=120)
W4 = replace(
    W1,
    name="W4",
    title="2 M x 1 KB with keys, uncompressed, 16 KB batches, from 8 to 12 partitions",
    keyed=True,
    target_partitions=12,
)
W5 = replace(
    W2, name="W5", title="10 M x 100 B, 64 KB batches, repacked from zstd to lz4", codec="zstd", target_codec="lz4"
)
W6 = replace(
    W1,
    name="W6",
    title="2 M x 1 KB, uncompressed, 16 KB batches, TLS with client certificates on both sides",
    tools=("ours", "mm1", "mm1-tuned"),
    tls=True,
)
H = Workload(
    "H",
    "1 M x 100 B, uncompressed, 16 KB batches, through a message handler",
    1_000_000,
    100,
    "none",
    16_384,
    limit=120,
    tools=_WITH_HANDLERS,
    lines=True,
)
L = Latency("L", "500 records/s, 100 B", warm_up=10, seconds=30)


def _quick(work: Workload, size: str, records: int, tools: tuple[str, ...]) -> Workload:
    """The same work with fewer records."""
    _, _, kind = work.title.partition(" x ")
    return replace(work, title=f"{size} x {kind}", records=records, limit=60, tools=tools)


FULL = (W1, W2, W3, W4, W5, W6, H, L)
# Five minutes are short: where no goal is at stake, a Java tool is left out.
QUICK = (
    _quick(W1, "200 k", 200_000, _SHIPPED),
    _quick(W2, "1 M", 1_000_000, _SHIPPED),
    _quick(W3, "150 k", 150_000, ("ours", "mm1")),
    _quick(W4, "200 k", 200_064, ("ours", "mm1")),
    _quick(W5, "1 M", 1_000_000, ("ours", "mm1")),
    _quick(W6, "200 k", 200_000, ("ours", "mm1")),
    _quick(H, "200 k", 200_000, ("ours-records", "ours-tables")),
    replace(L, warm_up=3, seconds=10, tools=("ours", "mm2")),
)
