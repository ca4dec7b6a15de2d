"""What may become of a record that the other side does not have."""

from __future__ import annotations

from dataclasses import dataclass

# What becomes of a record that the other side does not have. The first six are nobody's fault.
UNMIRRORED, ARRIVING, GONE_FROM_TARGET, GONE_FROM_SOURCE, COMPACTED, BEFORE, OTHERS = (
    "not_yet_mirrored", "still_arriving", "deleted_on_target", "deleted_on_source", "compacted", "before_the_mirror",
    "other_writers",
)  # fmt: skip
MISSING, EXTRA, DOUBLED, CHANGED, MOVED = "missing", "extra", "doubled", "changed", "out_of_order"
DIFFERENT = (MISSING, CHANGED, DOUBLED, EXTRA, MOVED)


@dataclass(frozen=True)
class Difference:
    """One record that is not the same: where it is, or should be."""

    kind: str
    topic: str
    place: int  # the target partition
    side: int
    partition: int
    source_offset: int | None
    target_offset: int | None
    near: int | None = None  # on the side that has no such record: the one before it; of a doubled record the source's
