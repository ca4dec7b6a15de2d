"""What came out of it, for people and for programs. No content of any record is ever shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SAME, DIFFERENT, UNKNOWN = 0, 1, 2  # exit codes

# Records that only one side has through no fault of the mirror, and how the table calls them.
CAUSES = {
    "not_yet_mirrored": "not yet mirrored",
    "still_arriving": "still arriving",
    "deleted_on_source": "deleted on the source",
    "deleted_on_target": "deleted on the target",
    "compacted": "compacted away",
    "before_the_mirror": "from before the mirror",
    "other_writers": "of other writers",
}
DIFFERENCES = {
    "missing": "missing",
    "changed": "changed",
    "doubled": "twice",
    "extra": "unknown to the source",
    "out_of_order": "out of order",
}


@dataclass
class TopicResult:
    """One topic."""

    name: str
    source_partitions: int
    target_partitions: int
    counts: dict[str, int] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    had_records: bool = True  # on any side, at any time

    @property
    def same(self) -> int:
        return self.counts.get("same", 0) - self.counts.get("out_of_order", 0)

    @property
    def different(self) -> int:
        return sum(self.counts.get(kind, 0) for kind in DIFFERENCES)


@dataclass
class Verdict:
    """All topics."""

    topics: list[TopicResult]
    seconds: float = 0.0
    timestamps_from: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        return sum(topic.same for topic in self.topics)

    @property
    def different(self) -> int:
        return sum(topic.different for topic in self.topics)

    @property
    def exit_code(self) -> int:
        if self.different:
            return DIFFERENT
        if not self.topics or (not self.compared and any(topic.had_records for topic in self.topics)):
            return UNKNOWN
        return SAME

    @property
    def line(self) -> str:
        where = f"{_plural(len(self.topics), 'topic')}, {_plural(self.compared, 'equal record')}"
        if self.exit_code == DIFFERENT:
            kinds = [
                f"{sum(topic.counts.get(kind, 0) for topic in self.topics):,} {text}"
                for kind, text in DIFFERENCES.items()
                if any(topic.counts.get(kind) for topic in self.topics)
            ]
            return f"different: {', '.join(kinds)} ({where})"
        if self.exit_code == UNKNOWN:
            return "could not tell: " + (
                "no topic matches" if not self.topics else "there is nothing that both sides have"
            )
        return f"same: {where}"

    def table(self) -> list[str]:
        """One line per topic; columns that are empty everywhere are left out."""
        titles = {"same": "same", **CAUSES, **DIFFERENCES}
        used = [key for key in titles if key == "same" or any(topic.counts.get(key) for topic in self.topics)]
        rows = [["topic", "partitions", *(titles[key] for key in used)]]
        for topic in self.topics:
            here, there = topic.source_partitions, topic.target_partitions
            numbers = [topic.same if key == "same" else topic.counts.get(key, 0) for key in used]
            rows.append(
                [topic.name, str(here) if here == there else f"{here} -> {there}", *(f"{n:,}" for n in numbers)]
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(
                text.ljust(w) if n == 0 else text.rjust(w) for n, (text, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]

    def details(self) -> list[str]:
        lines = [f"  {text}" for topic in self.topics for text in topic.shown]
        notes = [*self.notes, *(f"{topic.name}: {note}" for topic in self.topics for note in topic.notes)]
        return lines + [f"note: {note}" for note in notes]

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": ("same", "different", "could not tell")[self.exit_code],
            "line": self.line,
            "seconds": round(self.seconds, 1),
            "notes": self.notes,
            "topics": [
                {
                    "topic": topic.name,
                    "source_partitions": topic.source_partitions,
                    "target_partitions": topic.target_partitions,
                    "same": topic.same,
                    **{key: topic.counts.get(key, 0) for key in (*CAUSES, *DIFFERENCES)},
                    "differences": topic.shown,
                    "notes": topic.notes,
                }
                for topic in self.topics
            ],
        }


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text(verdict: Verdict) -> Sequence[str]:
    return [verdict.line, *(verdict.table() if verdict.topics else []), *verdict.details()]
