"""Compare source and target: look, scan, match, and look closer where that is not enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from mirrormaker.errors import CannotTell
from mirrormaker.verification import naming, record_diff, scan
from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.matching import Matched, matched
from mirrormaker.verification.plan import EVERYTHING, TARGET, TopicPlan
from mirrormaker.verification.spans import Job, spans
from mirrormaker.verification.survey import Survey
from mirrormaker.verification.verdict import TopicResult, Verdict

_TIMES = 3  # that a topic is read anew because retention has removed what was to be looked at again


class Comparison:
    """One comparison, in a Spark session that is there already."""

    def __init__(self, spark: SparkSession, look: Survey, other_writers: bool = False) -> None:
        self.spark, self.look, self.other_writers = spark, look, other_writers
        self.cores = spark.sparkContext.defaultParallelism

    def run(self, names: Sequence[str]) -> Verdict:
        """All that is there of these topics now."""
        started = time.monotonic()
        results: dict[str, TopicResult] = {}
        pending = list(names)
        for _ in range(_TIMES):
            if not pending:
                break
            plans = self.look.run(self.look.plans(pending))
            found = self._round(plans)
            results |= found
            pending = [name for name in pending if name not in found]
        if pending:
            raise CannotTell(f"{pending[0]}: retention removes its records quicker than they can be read twice")
        for result in results.values():
            if result.had_records and not result.same and not result.different:
                result.notes.append("nothing of it was compared: there is no record that both sides have")
        return Verdict(
            [results[name] for name in names], time.monotonic() - started, notes=list(dict.fromkeys(self.look.notes))
        )

    def _round(self, plans: Sequence[TopicPlan]) -> dict[str, TopicResult]:
        """The results of all topics, but for those that have changed under our hands."""
        sorted_out = self._scanned([self._comparable(plan) for plan in plans])
        results = {plan.name: _result(plan, found) for plan, found in sorted_out}
        unclear = [(plan, found) for plan, found in sorted_out if found.left or found.right]
        if unclear:
            self._look_closer([plan for plan, _ in unclear], [found for _, found in unclear], results)
        return results

    def _comparable(self, plan: TopicPlan) -> TopicPlan:
        if self.look.window == EVERYTHING:
            return plan
        if plan.compacted:
            raise CannotTell(
                f"{plan.name} is compacted, or may be: what has superseded a record may lie outside of --from and --to; leave"
                " them out, or leave it out with --topics"
            )
        if not plan.timestamps:
            raise CannotTell(
                f"{plan.name} has not the source's timestamps on the target (message.timestamp.type=LogAppendTime, or Kafka before"
                " 0.10): --from and --to have no meaning for it; leave it out with --topics"
            )
        return plan

    def _scanned(self, plans: Sequence[TopicPlan]) -> list[tuple[TopicPlan, Matched]]:
        chunks = scan.run(self.spark, self._job(plans), self.cores)
        by_topic: dict[str, list[Chunk]] = {plan.name: [] for plan in plans}
        for chunk in chunks:
            by_topic[chunk.line.topic].append(chunk)
        stamped = {chunk.line.topic for chunk in chunks if chunk.line.side == TARGET and chunk.stamped}
        again = [plan for plan in plans if plan.timestamps and plan.name in stamped]
        if again:  # the topic's setting was another one when they came
            fixed = self._scanned([self._comparable(replace(plan, timestamps=False)) for plan in again])
            rest = [plan for plan in plans if plan not in again]
            return fixed + [self._matched(plan, by_topic[plan.name]) for plan in rest]
        return [self._matched(plan, by_topic[plan.name]) for plan in plans]

    def _matched(self, plan: TopicPlan, chunks: Sequence[Chunk]) -> tuple[TopicPlan, Matched]:
        plan = self.look.run(self.look.log_starts(plan))
        return plan, matched(plan, chunks)

    def _job(self, plans: Sequence[TopicPlan]) -> Job:
        return Job(self.look.endpoints, tuple(plans), self.look.window, tuple(spans(plans, self.cores)))

    def _look_closer(
        self, plans: Sequence[TopicPlan], found: Sequence[Matched], results: dict[str, TopicResult]
    ) -> None:
        job = replace(self._job(plans), spans=())
        look = record_diff.RecordDiff(self.spark, job, found, self.cores, self.other_writers)
        counts, differences = look.run()
        for (name, cause), number in counts.items():
            known = results[name].counts
            known[cause] = known.get(cause, 0) + number
        for number, plan in enumerate(plans):
            if plan.compacted:  # all of it was looked at
                results[plan.name].counts["same"] = counts.get((plan.name, "same"), 0)
            since = self.look.run(self.look.log_starts(plan))
            moved = {
                (part.side, part.partition): part.log_start
                for part, before in zip((*since.sources, *since.targets), (*plan.sources, *plan.targets), strict=True)
                if part.log_start != before.log_start
            }
            if any(
                span.topic == number and moved.get((span.side, span.partition), 0) > span.start for span in look.spans
            ):
                del results[plan.name]
        for difference in differences:
            if difference.topic in results:
                results[difference.topic].shown.append(naming.text(difference, job))


def _result(plan: TopicPlan, found: Matched) -> TopicResult:
    counts = {
        "same": found.records,
        "not_yet_mirrored": plan.unmirrored,
        "deleted_on_target": found.gone_from_target,
        "deleted_on_source": found.gone_from_source,
    }
    notes = list(plan.notes)
    if not plan.timestamps and not any("timestamps are not compared" in note for note in notes):
        notes.append("timestamps are not compared: the target's broker sets its own (LogAppendTime)")
    had_records = any(part.end > 0 for part in (*plan.sources, *plan.targets))
    return TopicResult(plan.name, len(plan.sources), len(plan.targets), counts, [], notes, had_records)
