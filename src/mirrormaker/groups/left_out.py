"""Topics that a group reads and that are not mirrored: its consumers find nothing of them on the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from mirrormaker.groups.readiness import ReadinessQuestion
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import GroupOffsets

_MOST_NAMES = 5  # in one line; JSON has all


def left_out(
    offsets: Mapping[str, GroupOffsets | Exception], is_mirrored: Callable[[str], bool]
) -> dict[str, tuple[str, ...]]:
    """Return for each group the topics in which it has committed an offset, and which are not mirrored."""
    found: dict[str, tuple[str, ...]] = {}
    for group, answer in offsets.items():
        if isinstance(answer, Exception) or answer.error:
            continue
        others = sorted(
            topic
            for topic, part in answer.topics.items()
            if not is_mirrored(topic) and any(row.offset >= 0 for row in part.rows().values())
        )
        if others:
            found[group] = tuple(others)
    return found


def not_mirrored(
    committed: Mapping[str, GroupOffsets], known: Collection[TopicPartition], question: ReadinessQuestion
) -> dict[str, tuple[str, ...]]:
    """Return the topics of each group that the map does not know, and that the mirror does not choose."""
    mapped, is_chosen = {topic for topic, _ in known}, question.is_mirrored
    return left_out(committed, lambda topic: topic in mapped or (is_chosen is not None and is_chosen(topic)))


def also_reads(group: str, topics: Collection[str], reason: str) -> str:
    """Return one line; `reason` says of one topic, or of several, why it is left out."""
    names = ", ".join(sorted(topics)[:_MOST_NAMES])
    more = f" and {len(topics) - _MOST_NAMES} more" if len(topics) > _MOST_NAMES else ""
    return f"{group} also reads {names}{more}, which {'is' if len(topics) == 1 else 'are'} {reason}"
