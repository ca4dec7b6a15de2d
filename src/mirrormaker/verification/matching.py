"""Which chunks of the source are on the target, in which order; and what has to be looked at more closely.

Pure: chunks in, chunks out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mirrormaker.verification.chunks import Chunk, Line
from mirrormaker.verification.plan import TARGET, TopicPlan

Pair = tuple[Chunk, Chunk]


@dataclass
class Matched:
    """One topic's chunks, sorted out."""

    pairs: list[Pair] = field(default_factory=list)  # on both sides, in order
    left: list[Chunk] = field(default_factory=list)  # of the source; the target has nothing of that checksum
    right: list[Chunk] = field(default_factory=list)
    gone_from_target: int = 0  # records that need no closer look: retention has taken their counterparts
    gone_from_source: int = 0
    # How many more each log can have lost: no more records than there are offsets before its start.
    target_losses: dict[int, int] = field(default_factory=dict)  # by target partition
    source_losses: dict[tuple[int, int], int] = field(default_factory=dict)  # by side and partition

    @property
    def records(self) -> int:
        return sum(left.records for left, _ in self.pairs)


def matched(plan: TopicPlan, chunks: Iterable[Chunk]) -> Matched:
    """Pair what is equal, target partition by target partition."""
    lefts, rights = defaultdict(list), defaultdict(list)
    for chunk in chunks:
        if chunk.line.side == TARGET:
            rights[chunk.line.partition].append(chunk)
        else:
            lefts[chunk.line.number].append(chunk)
    found = Matched(
        target_losses={part.partition: part.log_start for part in plan.targets},
        source_losses={(part.side, part.partition): part.log_start for part in plan.sources},
    )
    from_end = behead(plan)
    for place in sorted({*lefts, *rights}):
        pairs, left, right = _paired(lefts[place], rights[place], from_end)
        if not plan.compacted:
            left, right = _without_what_retention_took(plan, place, pairs, left, right, found)
        found.pairs += pairs
        found.left += left
        found.right += right
    return found


def behead(plan: TopicPlan) -> bool:
    """Of equal records the last ones belong together, where a log may have lost its first ones."""
    return any(part.log_start > 0 for part in (*plan.sources, *plan.targets))


def _paired(left: list[Chunk], right: list[Chunk], from_end: bool) -> tuple[list[Pair], list[Chunk], list[Chunk]]:
    waiting: dict[tuple[int, int], list[Chunk]] = defaultdict(list)
    for chunk in sorted(right, key=lambda c: c.first, reverse=not from_end):
        waiting[chunk.checksum, chunk.records].append(chunk)
    by_line: dict[Line, list[Pair]] = defaultdict(list)
    for chunk in sorted(left, key=lambda c: (c.line, c.first), reverse=from_end):
        found = waiting.get((chunk.checksum, chunk.records))
        if found:
            by_line[chunk.line].append((chunk, found.pop()))
    pairs = [pair for line in by_line.values() for pair in in_order(sorted(line, key=lambda p: p[0].first))]
    ours, theirs = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    # A chunk that is there once more than its equals have counterparts: which of them it is, a closer look will tell.
    alone = {(c.checksum, c.records) for c in (*left, *right) if c not in ours and c not in theirs}
    pairs = [pair for pair in pairs if (pair[0].checksum, pair[0].records) not in alone]
    ours, theirs = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    return pairs, [c for c in left if c not in ours], [c for c in right if c not in theirs]


def in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """The most pairs that keep the source's order on the target: the others have moved."""
    ends: list[int] = []  # the smallest target offset that a sequence of each length ends with
    tips: list[int] = []
    before = [-1] * len(pairs)
    for number, (_, target) in enumerate(pairs):
        length = bisect_left(ends, target.first)
        before[number] = tips[length - 1] if length else -1
        ends[length : length + 1], tips[length : length + 1] = [target.first], [number]
    kept, at = [], tips[-1] if tips else -1
    while at >= 0:
        kept.append(pairs[at])
        at = before[at]
    return kept[::-1]


def _without_what_retention_took(
    plan: TopicPlan, place: int, pairs: Sequence[Pair], left: list[Chunk], right: list[Chunk], found: Matched
) -> tuple[list[Chunk], list[Chunk]]:
    """Chunks from before the other log's start need no closer look, but for those right before the first equal one.

    Those may be there in part, cut by the log's start, or may have been changed.
    """
    first: dict[Line, Pair] = {}
    for pair in pairs:
        known = first.get(pair[0].line)
        if known is None or pair[0].first < known[0].first:
            first[pair[0].line] = pair
    keep_left, keep_right = list(left), list(right)
    if any(part.log_start > 0 for part in plan.targets if part.partition == place):
        for line in sorted({chunk.line for chunk in left}):
            low = first[line][0].first if line in first else 1 << 63
            mine = sorted((c for c in left if c.line == line and c.last < low), key=lambda c: c.first)
            margin = _count(c for c in right if line not in first or c.last < first[line][1].first)
            gone = _all_but_the_last(mine, margin, found.target_losses[place])
            found.gone_from_target += _count(gone)
            found.target_losses[place] -= _count(gone)
            keep_left = [c for c in keep_left if c not in gone]
    for line, (ours, theirs) in first.items():
        source = next(p for p in plan.sources if (p.side, p.partition) == (line.side, line.partition))
        if source.log_start > 0:
            producers = {pair[1].line for pair in pairs if pair[0].line == line}
            mine = sorted(
                (c for c in right if c.last < theirs.first and (plan.one_to_one or c.line in producers)),
                key=lambda c: c.first,
            )
            margin = _count(c for c in left if c.line == line and c.last < ours.first)
            gone = _all_but_the_last(mine, margin, found.source_losses[line.side, line.partition])
            found.gone_from_source += _count(gone)
            found.source_losses[line.side, line.partition] -= _count(gone)
            keep_right = [c for c in keep_right if c not in gone]
    return keep_left, keep_right


def _all_but_the_last(chunks: Sequence[Chunk], margin: int, most: int) -> set[Chunk]:
    """All but so many that twice the margin is among the rest, and one more; with `most` records together."""
    rest, at = 0, len(chunks)
    while at > 0 and rest <= 2 * margin:
        at -= 1
        rest += chunks[at].records
    counts = accumulate(chunk.records for chunk in chunks[: max(0, at - 1)])
    return {chunk for chunk, count in zip(chunks, counts, strict=False) if count <= most}


def _count(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.records for chunk in chunks)
