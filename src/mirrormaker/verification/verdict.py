"""The result of a comparison, for people and for programs. It never contains the content of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrormaker.verification.outcomes import CAUSES, DIFFERENCES, OUT_OF_ORDER, SAME

EXIT_SAME, EXIT_DIFFERENT, EXIT_CANNOT_TELL = 0, 1, 2


@dataclass(frozen=True)
class TopicResult:
    """The result for one topic."""

    name: str
    source_partitions: int
    target_partitions: int
    # How many records came to which outcome: "same", a cause such as "not_yet_mirrored", or a kind of difference such
    # as "missing". `outcomes.CAUSES` and `outcomes.DIFFERENCES` list them. Records out of order are in "same",
    # too.
    counts: Mapping[str, int] = field(default_factory=dict)
    # The first few differences in words.
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # True if any side has ever had a record.
    had_records: bool = True

    @property
    def same(self) -> int:
        """Return the number of records that are equal and in order on both sides."""
        return self.counts.get(SAME, 0) - self.counts.get(OUT_OF_ORDER, 0)

    @property
    def different(self) -> int:
        """Return the number of records that are not the same on both sides."""
        return sum(self.counts.get(kind, 0) for kind in DIFFERENCES)


@dataclass(frozen=True)
class Verdict:
    """The result of comparing source and target."""

    topics: tuple[TopicResult, ...]
    seconds: float = 0.0  # how long the comparison took
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> int:
        """Return the number of records that are equal and in order on both sides."""
        return sum(topic.same for topic in self.topics)

    @property
    def different(self) -> int:
        """Return the number of records that are not the same on both sides."""
        return sum(topic.different for topic in self.topics)

    @property
    def exit_code(self) -> int:
        """Return 0 if both sides are the same, 1 if they are different, 2 if nothing could be compared."""
        if self.different:
            return EXIT_DIFFERENT
        if not self.topics or (not self.same and any(topic.had_records for topic in self.topics)):
            return EXIT_CANNOT_TELL
        return EXIT_SAME

    @property
    def is_same(self) -> bool:
        """Return True if records were compared, or there are none, and no difference was found."""
        return self.exit_code == EXIT_SAME

    @property
    def line(self) -> str:
        """Return the verdict in one line."""
        scope = f"{_plural(len(self.topics), 'topic')}, {_plural(self.same, 'equal record')}"
        if self.exit_code == EXIT_DIFFERENT:
            totals = {kind: sum(topic.counts.get(kind, 0) for topic in self.topics) for kind in DIFFERENCES}
            kinds = [f"{total:,} {DIFFERENCES[kind]}" for kind, total in totals.items() if total]
            return f"different: {', '.join(kinds)} ({scope})"
        if self.exit_code == EXIT_CANNOT_TELL:
            reason = "there is nothing that both sides have" if self.topics else "no topic matches"
            return f"could not tell: {reason}"
        return f"same: {scope}"

    def table(self) -> list[str]:
        """Return one line per topic below a line of titles, without columns that are empty everywhere."""
        titles = {SAME: SAME, **CAUSES, **DIFFERENCES}
        used = [key for key in titles if key == SAME or any(topic.counts.get(key) for topic in self.topics)]
        rows = [["topic", "partitions", *(titles[key] for key in used)]]
        for topic in self.topics:
            ours, theirs = topic.source_partitions, topic.target_partitions
            partitions = str(ours) if ours == theirs else f"{ours} -> {theirs}"
            numbers = [topic.same if key == SAME else topic.counts.get(key, 0) for key in used]
            rows.append([topic.name, partitions, *(f"{number:,}" for number in numbers)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]

    def text(self) -> str:
        """Return the verdict as the command prints it: the line, the table, the first differences, the notes."""
        table = self.table() if self.topics else []
        differences = [f"  {difference}" for topic in self.topics for difference in topic.differences]
        notes = [*self.notes, *(f"{topic.name}: {note}" for topic in self.topics for note in topic.notes)]
        return "\n".join([self.line, *table, *differences, *(f"note: {note}" for note in notes)])

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as `--json` prints it."""
        return {
            "verdict": {EXIT_SAME: "same", EXIT_DIFFERENT: "different", EXIT_CANNOT_TELL: "could not tell"}[
                self.exit_code
            ],
            "line": self.line,
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
            "topics": [
                {
                    "topic": topic.name,
                    "source_partitions": topic.source_partitions,
                    "target_partitions": topic.target_partitions,
                    "same": topic.same,
                    **{key: topic.counts.get(key, 0) for key in (*CAUSES, *DIFFERENCES)},
                    "differences": list(topic.differences),
                    "notes": list(topic.notes),
                }
                for topic in self.topics
            ],
        }


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
