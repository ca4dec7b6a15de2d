"""The possible outcomes for a record when both sides are compared: their names, and the words for them."""

from __future__ import annotations

SAME = "same"

# Causes for which only one side has a record without any difference.
NOT_YET_MIRRORED = "not_yet_mirrored"
STILL_ARRIVING = "still_arriving"
DELETED_ON_SOURCE = "deleted_on_source"
DELETED_ON_TARGET = "deleted_on_target"
COMPACTED = "compacted"
BEFORE_THE_MIRROR = "before_the_mirror"
OTHER_WRITERS = "other_writers"

# Kinds of differences.
MISSING = "missing"
CHANGED = "changed"
DOUBLED = "doubled"
EXTRA = "extra"
OUT_OF_ORDER = "out_of_order"

# The names are keys of the JSON output; the texts are columns of the table, in this order.
CAUSES = {
    NOT_YET_MIRRORED: "not yet mirrored",
    STILL_ARRIVING: "still arriving",
    DELETED_ON_SOURCE: "deleted on the source",
    DELETED_ON_TARGET: "deleted on the target",
    COMPACTED: "compacted away",
    BEFORE_THE_MIRROR: "from before the mirror",
    OTHER_WRITERS: "of other writers",
}
DIFFERENCES = {
    MISSING: "missing",
    CHANGED: "changed",
    DOUBLED: "twice",
    EXTRA: "unknown to the source",
    OUT_OF_ORDER: "out of order",
}
