"""What `python -m bench grow` varies, one thing at a time: the axes, and the points on them."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Point:
    """A backlog and a mirror."""

    partitions: int = 8
    record_size: int = 1024
    streams: int = 2
    sources: int = 1
    round_trip: int | None = None  # milliseconds from the mirror to each cluster, through a proxy; None without one
    megabytes: int = 1000  # of all sources together

    @property
    def per_batch(self) -> int:
        """Return how many records a batch has: as many as fit into a `batch.size` of 16 KB."""
        return max(1, 16_000 // self.record_size)

    @property
    def batches(self) -> int:
        """Return how many batches each partition of each source has."""
        of_partition = self.megabytes * 1_000_000 // (self.sources * self.partitions)
        return max(1, of_partition // (self.per_batch * self.record_size))

    @property
    def records(self) -> int:
        """Return the number of records of all sources."""
        return self.sources * self.partitions * self.batches * self.per_batch


@dataclass(frozen=True)
class Axis:
    """Points that differ in one thing, by their labels, and the figures that a chart of them shows."""

    name: str
    title: str
    points: dict[str, Point]
    panels: tuple[tuple[str, str, float], ...]  # a figure, its title, and the factor for the chart
    remark: str = ""  # for the documentation


_CPU = ("cpu_s_per_gb", "CPU seconds per GB", 1.0)
_SPEED = ("records_per_s", "thousand records/s", 1e-3)
_MEMORY = ("peak_mb", "peak MB", 1.0)
_BASE = Point()

AXES = {
    axis.name: axis
    for axis in (
        Axis(
            "partitions",
            "partitions",
            {f"{count:,}": replace(_BASE, partitions=count) for count in (8, 100, 1000, 5000)},
            (_CPU, _SPEED, _MEMORY),
        ),
        Axis(
            "record-size",
            "record size",
            {
                # Java needs longest for the smallest records.
                "100 B": replace(_BASE, record_size=100, megabytes=300),
                "1 KB": _BASE,
                "10 KB": replace(_BASE, record_size=10_000),
                "1 MB": replace(_BASE, record_size=1_000_000),
            },
            (_CPU, ("cpu_s_per_million", "CPU seconds per million records", 1.0), _SPEED),
        ),
        Axis(
            "streams",
            "streams",
            {str(count): replace(_BASE, streams=count) for count in (1, 2, 4)},
            (_CPU, _SPEED, _MEMORY),
        ),
        Axis(
            "sources",
            "source clusters",
            {str(count): replace(_BASE, sources=count) for count in (1, 3)},
            (_CPU, _SPEED, _MEMORY),
            "One process of ours reads from all sources. The Java MirrorMaker reads from one: it runs once for each.",
        ),
        Axis(
            "round-trip",
            "round trip in ms",
            {str(time): replace(_BASE, round_trip=time) for time in (0, 20, 100, 200)},
            (_CPU, _SPEED, _MEMORY),
            "A proxy delays both directions of every connection of the mirror, to the source and to the target, by half of "
            "the round trip. Its CPU does not count, but takes its share of the cores, also with 0 ms; nothing is marked.",
        ),
    )
}


def small(axis: Axis) -> Axis:
    """Return the first two points of an axis with a tenth of the records, to see whether everything works."""
    few = list(axis.points.items())[:2]
    return replace(axis, points={label: replace(point, megabytes=point.megabytes // 10) for label, point in few})
