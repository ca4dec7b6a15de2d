"""Pair the chunks of source and target that are equal. No input or output."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from mirrormaker.verification.chunks import Chunk, Series
from mirrormaker.verification.plan import TARGET, TopicPlan

Pair = tuple[Chunk, Chunk]  # equal chunks of the source and of the target

_NEVER = 1 << 63  # after every offset


@dataclass
class TopicMatch:
    """One topic's chunks: equal ones in pairs, and those that must be compared record by record."""

    pairs: list[Pair] = field(default_factory=list)  # in the same order on both sides
    source_only: list[Chunk] = field(default_factory=list)
    target_only: list[Chunk] = field(default_factory=list)
    # Records whose counterparts retention has deleted for certain.
    deleted_on_target: int = 0
    deleted_on_source: int = 0
    # How many more records each log can have lost: as many as there are offsets before its start.
    target_losses: dict[int, int] = field(default_factory=dict)  # by target partition
    source_losses: dict[tuple[int, int], int] = field(default_factory=dict)  # by side and partition

    @property
    def is_complete(self) -> bool:
        """Return True if every chunk has a counterpart."""
        return not self.source_only and not self.target_only

    @property
    def records(self) -> int:
        """Return the number of records in equal chunks."""
        return _count(source for source, _ in self.pairs)

    def edge_pairs(self) -> list[Pair]:
        """Return the first and the last of equal chunks that follow each other without a gap on both sides."""
        # The offsets at which unpaired chunks begin.
        source_gaps, target_gaps = defaultdict(list), defaultdict(list)
        for chunk in self.source_only:
            source_gaps[chunk.series].append(chunk.first)
        for chunk in self.target_only:
            target_gaps[chunk.series.partition].append(chunk.first)
        for offsets in (*source_gaps.values(), *target_gaps.values()):
            offsets.sort()

        def run(pair: Pair) -> tuple[Series, int, int]:
            source, target = pair
            return (
                source.series,
                bisect_left(source_gaps[source.series], source.first),
                bisect_left(target_gaps[target.series.partition], target.first),
            )

        edges: list[Pair] = []
        for _, group in groupby(sorted(self.pairs, key=lambda pair: (pair[0].series, pair[0].first)), key=run):
            pairs = list(group)
            edges += pairs if len(pairs) < 2 else [pairs[0], pairs[-1]]
        return edges


def match_chunks(plan: TopicPlan, chunks: Iterable[Chunk]) -> TopicMatch:
    """Pair equal chunks, target partition by target partition."""
    source_chunks, target_chunks = defaultdict(list), defaultdict(list)
    for chunk in chunks:
        if chunk.series.side == TARGET:
            target_chunks[chunk.series.partition].append(chunk)
        else:
            source_chunks[chunk.series.selector].append(chunk)
    match = TopicMatch(
        target_losses={part.partition: part.log_start for part in plan.targets},
        source_losses={(part.side, part.partition): part.log_start for part in plan.sources},
    )
    for partition in sorted({*source_chunks, *target_chunks}):
        pairs, source_only, target_only = _pair(
            source_chunks[partition], target_chunks[partition], plan.has_deleted_records
        )
        if not plan.compacted:
            source_only, target_only = _drop_deleted(plan, partition, pairs, source_only, target_only, match)
        match.pairs += pairs
        match.source_only += source_only
        match.target_only += target_only
    return match


def _pair(source: list[Chunk], target: list[Chunk], from_end: bool) -> tuple[list[Pair], list[Chunk], list[Chunk]]:
    """Return pairs of equal chunks in order, and the chunks of each side that are in no pair."""
    waiting: dict[tuple[int, int], list[Chunk]] = defaultdict(list)
    for chunk in sorted(target, key=lambda c: c.first, reverse=not from_end):
        waiting[_content(chunk)].append(chunk)
    by_series: dict[Series, list[Pair]] = defaultdict(list)
    for chunk in sorted(source, key=lambda c: (c.series, c.first), reverse=from_end):
        equals = waiting.get(_content(chunk))
        if equals:
            by_series[chunk.series].append((chunk, equals.pop()))
    pairs = [p for found in by_series.values() for p in longest_in_order(sorted(found, key=lambda p: p[0].first))]
    paired = {chunk for pair in pairs for chunk in pair}
    # If one of several equal chunks is unpaired, it is unclear which one. All of them are compared record by record.
    unclear = {_content(chunk) for chunk in (*source, *target) if chunk not in paired}
    pairs = [pair for pair in pairs if _content(pair[0]) not in unclear]
    paired = {chunk for pair in pairs for chunk in pair}
    return pairs, [c for c in source if c not in paired], [c for c in target if c not in paired]


def _content(chunk: Chunk) -> tuple[int, int]:
    return chunk.checksum, chunk.records


def longest_in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence of pairs that keeps the source's order on the target."""
    ends: list[int] = []  # for each length, the smallest target offset that a subsequence of this length ends with
    last_pairs: list[int] = []
    previous = [-1] * len(pairs)
    for number, (_, target) in enumerate(pairs):
        length = bisect_left(ends, target.first)
        previous[number] = last_pairs[length - 1] if length else -1
        ends[length : length + 1], last_pairs[length : length + 1] = [target.first], [number]
    kept, at = [], last_pairs[-1] if last_pairs else -1
    while at >= 0:
        kept.append(pairs[at])
        at = previous[at]
    return kept[::-1]


def _drop_deleted(
    plan: TopicPlan,
    partition: int,
    pairs: Sequence[Pair],
    source_only: list[Chunk],
    target_only: list[Chunk],
    match: TopicMatch,
) -> tuple[list[Chunk], list[Chunk]]:
    """Return the unpaired chunks without those that the other log has deleted, which are counted in `match`.

    Chunks right before the first equal one stay: the log's start may have cut them in two, or they may have been
    changed.
    """
    first_pairs: dict[Series, Pair] = {}
    for pair in pairs:
        known = first_pairs.get(pair[0].series)
        if known is None or pair[0].first < known[0].first:
            first_pairs[pair[0].series] = pair
    kept_source, kept_target = list(source_only), list(target_only)
    if any(part.log_start > 0 for part in plan.targets if part.partition == partition):
        for series in sorted({chunk.series for chunk in source_only}):
            source_first, target_first = _NEVER, _NEVER
            if series in first_pairs:
                source_first, target_first = (chunk.first for chunk in first_pairs[series])
            before = [c for c in source_only if c.series == series and c.last < source_first]
            margin = _count(c for c in target_only if c.last < target_first)
            deleted = _certainly_deleted(before, margin, match.target_losses[partition])
            match.deleted_on_target += _count(deleted)
            match.target_losses[partition] -= _count(deleted)
            kept_source = [c for c in kept_source if c not in deleted]
    for series, (source, target) in first_pairs.items():
        key = series.side, series.partition
        log_start = next(part.log_start for part in plan.sources if (part.side, part.partition) == key)
        if log_start > 0:
            producers = {pair[1].series for pair in pairs if pair[0].series == series}
            before = [c for c in target_only if c.last < target.first and (plan.is_one_to_one or c.series in producers)]
            margin = _count(c for c in source_only if c.series == series and c.last < source.first)
            deleted = _certainly_deleted(before, margin, match.source_losses[key])
            match.deleted_on_source += _count(deleted)
            match.source_losses[key] -= _count(deleted)
            kept_target = [c for c in kept_target if c not in deleted]
    return kept_source, kept_target


def _certainly_deleted(chunks: Sequence[Chunk], margin: int, most: int) -> set[Chunk]:
    """Return the first chunks, with at most `most` records together.

    The last chunks stay: as many as have more than twice `margin` records, and one more.
    """
    chunks = sorted(chunks, key=lambda c: c.first)
    kept, at = 0, len(chunks)
    while at > 0 and kept <= 2 * margin:
        at -= 1
        kept += chunks[at].records
    counts = accumulate(chunk.records for chunk in chunks[: max(0, at - 1)])
    return {chunk for chunk, count in zip(chunks, counts, strict=False) if count <= most}


def _count(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.records for chunk in chunks)
