"""Compare source and target: survey both, scan all records, match chunks, compare the rest record by record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from mirrormaker.errors import CannotTell
from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.differences import describe_difference
from mirrormaker.verification.matching import TopicMatch, match_chunks
from mirrormaker.verification.outcomes import DELETED_ON_SOURCE, DELETED_ON_TARGET, NOT_YET_MIRRORED, SAME
from mirrormaker.verification.plan import TARGET, TopicPlan
from mirrormaker.verification.record_diff import RecordDiff
from mirrormaker.verification.scan import scan
from mirrormaker.verification.spans import Span, TaskInput, plan_spans
from mirrormaker.verification.survey import Survey
from mirrormaker.verification.verdict import TopicResult, Verdict

_MAX_ROUNDS = (
    3  # how often a topic is read from the beginning because retention deleted records that had to be read twice
)


@dataclass
class _TopicMatched:
    """A topic after the scan; the record diff adds to its counts and differences."""

    plan: TopicPlan
    match: TopicMatch
    counts: dict[str, int]
    differences: list[str]

    def result(self) -> TopicResult:
        plan = self.plan
        notes = list(plan.notes)
        if plan.log_append_time and plan.keeps_timestamps:
            notes.append("timestamps are not compared: the target's broker sets its own (LogAppendTime)")
        had_records = any(part.end > 0 for part in (*plan.sources, *plan.targets))
        result = TopicResult(
            plan.name,
            len(plan.sources),
            len(plan.targets),
            self.counts,
            tuple(self.differences),
            tuple(notes),
            had_records,
        )
        if had_records and not result.same and not result.different:
            notes.append("nothing of it was compared: there is no record that both sides have")
        return replace(result, notes=tuple(notes))


class Comparison:
    """Compare topics in a Spark session whose SQL settings may be changed."""

    def __init__(self, spark: SparkSession, survey: Survey, allow_other_writers: bool = False) -> None:
        self._spark, self._survey, self._allow_other_writers = spark, survey, allow_other_writers
        self._cores = spark.sparkContext.defaultParallelism

    def run(self, names: Sequence[str]) -> Verdict:
        """Compare everything that these topics have now."""
        started = time.monotonic()
        results: dict[str, TopicResult] = {}
        pending = list(names)
        for _ in range(_MAX_ROUNDS):
            if not pending:
                break
            results |= self._compare(self._survey.run(self._survey.plans(pending)))
            pending = [name for name in pending if name not in results]
        if pending:
            raise CannotTell(f"{pending[0]}: retention removes its records quicker than they can be read twice")
        return Verdict(
            tuple(results[name] for name in names), time.monotonic() - started, tuple(dict.fromkeys(self._survey.notes))
        )

    def _compare(self, plans: Sequence[TopicPlan]) -> dict[str, TopicResult]:
        """Return the results of all topics, except those that must be read again because retention deleted records."""
        for plan in plans:
            self._check_window(plan)
        topics = self._scan(plans)
        unclear = [topic for topic in topics if not topic.match.is_complete]
        outdated = self._compare_records(unclear) if unclear else set()
        return {topic.plan.name: topic.result() for topic in topics if topic.plan.name not in outdated}

    def _check_window(self, plan: TopicPlan) -> None:
        """Raise CannotTell for a topic that cannot be compared by timestamps."""
        if self._survey.window.is_everything:
            return
        if plan.compacted:
            raise CannotTell(
                f"{plan.name} is compacted, or may be: a later record, outside of --from and --to, may have superseded"
                " another; leave out --from and --to, or leave out the topic with --topics"
            )
        if not plan.compares_timestamps:
            raise CannotTell(
                f"{plan.name} does not have the source's timestamps on the target (message.timestamp.type=LogAppendTime"
                ", or Kafka before 0.10), so --from and --to cannot be used; leave out the topic with --topics"
            )

    def _scan(self, plans: Sequence[TopicPlan]) -> list[_TopicMatched]:
        """Read all records once and match their chunks."""
        chunks = scan(self._spark, self._task_input(plans, plan_spans(plans, self._cores)), self._cores)
        by_topic: dict[str, list[Chunk]] = {plan.name: [] for plan in plans}
        for chunk in chunks:
            by_topic[chunk.series.topic].append(chunk)
        # The setting of a topic may have been LogAppendTime when records came, and another one now.
        stamped = {chunk.series.topic for chunk in chunks if chunk.series.side == TARGET and chunk.broker_stamped}
        again = [plan for plan in plans if plan.compares_timestamps and plan.name in stamped]
        matched = [self._match(plan, by_topic[plan.name]) for plan in plans if plan not in again]
        if again:
            again = [replace(plan, log_append_time=True) for plan in again]
            for plan in again:
                self._check_window(plan)
            matched = self._scan(again) + matched
        return matched

    def _match(self, plan: TopicPlan, chunks: Sequence[Chunk]) -> _TopicMatched:
        plan = self._survey.run(self._survey.refresh_log_starts(plan))
        match = match_chunks(plan, chunks)
        counts = {
            SAME: match.records,
            NOT_YET_MIRRORED: plan.unmirrored,
            DELETED_ON_TARGET: match.deleted_on_target,
            DELETED_ON_SOURCE: match.deleted_on_source,
        }
        return _TopicMatched(plan, match, counts, [])

    def _compare_records(self, topics: Sequence[_TopicMatched]) -> set[str]:
        """Add to the topics what their unmatched records are; return the names of topics that must be read again."""
        task = self._task_input([topic.plan for topic in topics])
        diff = RecordDiff(self._spark, task, [topic.match for topic in topics], self._cores, self._allow_other_writers)
        result = diff.run()
        by_name = {topic.plan.name: topic for topic in topics}
        for topic in topics:
            if topic.plan.compacted:
                # All records of a compacted topic were compared again.
                topic.counts[SAME] = 0
        for (name, outcome), number in result.counts.items():
            counts = by_name[name].counts
            counts[outcome] = counts.get(outcome, 0) + number
        outdated = {
            topic.plan.name
            for number, topic in enumerate(topics)
            if self._was_deleted(topic.plan, [span for span in diff.spans if span.plan == number])
        }
        for difference in result.differences:
            if difference.topic not in outdated:
                by_name[difference.topic].differences.append(describe_difference(difference, task))
        return outdated

    def _was_deleted(self, plan: TopicPlan, spans: Sequence[Span]) -> bool:
        """Return True if retention has deleted records of these spans since the scan."""
        now = self._survey.run(self._survey.refresh_log_starts(plan))
        moved = {
            (part.side, part.partition): part.log_start
            for part, before in zip((*now.sources, *now.targets), (*plan.sources, *plan.targets), strict=True)
            if part.log_start != before.log_start
        }
        return any(moved.get((span.side, span.partition), 0) > span.start for span in spans)

    def _task_input(self, plans: Sequence[TopicPlan], spans: Sequence[Span] = ()) -> TaskInput:
        return TaskInput(self._survey.endpoints, tuple(plans), self._survey.window, tuple(spans))
