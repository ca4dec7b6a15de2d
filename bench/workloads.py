"""The workloads: the records that the mirrors copy, and what else is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PARTITIONS = 8  # of every topic, unless a workload has another number for its target

_DEFAULTS = ("ours", "mm1", "mm2")
_ALL = (*_DEFAULTS, "mm1-tuned", "mm2-tuned")
_AND_WITHOUT_MAP = (*_ALL, "ours-no-map")
_WITH_HANDLERS = ("ours-records", "ours-tables", "mm1-handler")

# MirrorMaker 2 copies most slowly of all, and goals are held against the better Java tool: one run shows where it is.
_MM2_ONCE = {"mm2": 1}


@dataclass(frozen=True)
class Workload:
    """A backlog of records of one size in record batches of one kind."""

    name: str
    title: str
    records: int
    record_size: int
    codec: str
    batch_size: int | None  # the producer's batch.size; without one, batches hold one to five records
    limit: float  # seconds that a mirror may take
    tools: tuple[str, ...] = _ALL
    fewer_runs: Mapping[str, int] = field(default_factory=lambda: _MM2_ONCE)  # tools that need not run in every round
    lines: bool = False  # values are JSON lines instead of random letters or bytes
    keyed: bool = False  # with keys of 8 bytes (part of record_size), in the partitions that Java's partitioner chooses
    target_partitions: int = PARTITIONS
    target_codec: str | None = None  # the compression.type of every mirror's producer, if they get one
    tls: bool = False  # mirrors use TLS with client certificates on both sides

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return f"bench-{self.name.lower()}"


@dataclass(frozen=True)
class LatencyWorkload:
    """Few records at a steady rate instead of a backlog."""

    name: str
    title: str
    warm_up: float  # seconds before the measurement
    seconds: float  # of the measurement
    rate: int = 500  # records a second
    record_size: int = 100
    partitions: int = PARTITIONS
    batch: int = 1  # records of a batch
    together: int = 1  # partitions in a request, with a batch for each
    codec: str = "none"
    tools: tuple[str, ...] = _DEFAULTS  # tools that are tuned for throughput have a higher latency by design
    fewer_runs: Mapping[str, int] = field(default_factory=lambda: _MM2_ONCE)


@dataclass(frozen=True)
class RestartWorkload:
    """The load of a latency workload, under which the mirror is killed and started again at once."""

    name: str
    title: str
    load: LatencyWorkload
    settle: float  # seconds between the first record and the kill
    tools: tuple[str, ...] = ("ours", "mm1")
    fewer_runs: Mapping[str, int] = field(default_factory=lambda: {"ours": 3, "mm1": 1})


@dataclass(frozen=True)
class StreamsWorkload:
    """A backlog that is copied with different numbers of streams, one after the other, to see what a stream needs."""

    name: str
    title: str
    backlog: Workload
    streams: tuple[int, ...] = (2, 3)
    tools: tuple[str, ...] = ("ours",)
    fewer_runs: Mapping[str, int] = field(default_factory=lambda: {"ours": 3})


@dataclass(frozen=True)
class IdleWorkload:
    """Partitions to which nobody writes."""

    name: str
    title: str
    partitions: int
    topics: int
    tools: tuple[str, ...] = ("ours", "mm1")
    fewer_runs: Mapping[str, int] = field(default_factory=lambda: {"ours": 1, "mm1": 1})


AnyWorkload = Workload | LatencyWorkload | RestartWorkload | StreamsWorkload | IdleWorkload


# MirrorMaker 2's first record is part of a goal. What the offset map costs shows with large and with small batches.
W1 = Workload(
    "W1",
    "2 M x 1 KB, uncompressed, 16 KB batches",
    2_000_000,
    1024,
    "none",
    16_384,
    limit=120,
    tools=_AND_WITHOUT_MAP,
    fewer_runs={"mm2": 2},
)
W2 = Workload("W2", "10 M x 100 B, lz4, 64 KB batches", 10_000_000, 100, "lz4", 65_536, limit=150, lines=True)
W3 = Workload(
    "W3",
    "2 M x 100 B, uncompressed, 1 to 5 records a batch",
    2_000_040,
    100,
    "none",
    None,
    limit=120,
    tools=_AND_WITHOUT_MAP,
)
W4 = replace(
    W1,
    name="W4",
    title="2 M x 1 KB with keys, uncompressed, 16 KB batches, from 8 to 12 partitions",
    tools=_ALL,
    fewer_runs=_MM2_ONCE,
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
L = LatencyWorkload("L", "500 records/s, 100 B", warm_up=10, seconds=20)
# A producer with linger.ms=5 makes such batches. Each partition's linger begins with its own first record, so a request has the
# batches of some of them.
W7 = LatencyWorkload(
    "W7",
    "20,000 records/s, 800 B, lz4, 6 records a batch, 16 partitions: the live end under load",
    warm_up=10,
    seconds=20,
    rate=20_000,
    record_size=800,
    partitions=16,
    batch=6,
    together=4,
    codec="lz4",
)
RESTART = RestartWorkload("R", "killed and started again under 500 records/s of 100 B", L, settle=5)
MEMORY = StreamsWorkload(
    "M",
    "memory with 2 and with 3 streams, 500 k records of W1's kind",
    replace(W1, name="M", title="500 k x 1 KB", records=500_000),
)
IDLE = IdleWorkload("I", "1,000 idle partitions in 10 topics", 1000, 10)


def _quick(work: Workload, size: str, records: int, tools: tuple[str, ...]) -> Workload:
    """Return the same workload with fewer records."""
    _, _, kind = work.title.partition(" x ")
    return replace(work, title=f"{size} x {kind}", records=records, limit=60, tools=tools)


FULL: tuple[AnyWorkload, ...] = (W1, W2, W3, W4, W5, W6, W7, H, L, RESTART, MEMORY, IDLE)
# To take eight minutes only, workloads leave out Java tools that no goal needs.
QUICK: tuple[AnyWorkload, ...] = (
    _quick(W1, "200 k", 200_000, (*_DEFAULTS, "ours-no-map")),
    _quick(W2, "1 M", 1_000_000, _DEFAULTS),
    _quick(W3, "150 k", 150_000, ("ours", "mm1", "ours-no-map")),
    _quick(W4, "200 k", 200_064, ("ours", "mm1")),
    _quick(W5, "1 M", 1_000_000, ("ours", "mm1")),
    _quick(W6, "200 k", 200_000, ("ours", "mm1")),
    replace(W7, warm_up=5, seconds=10, tools=("ours", "mm1")),
    _quick(H, "200 k", 200_000, ("ours-records", "ours-tables")),
    replace(L, warm_up=3, seconds=10, tools=("ours", "mm1")),
    replace(RESTART, settle=3, tools=("ours",)),
    replace(
        MEMORY,
        title="memory with 2 and with 3 streams, 100 k records of W1's kind",
        backlog=_quick(MEMORY.backlog, "100 k", 100_000, ()),
    ),
    replace(IDLE, title="100 idle partitions in 5 topics", partitions=100, topics=5, tools=("ours",)),
)
