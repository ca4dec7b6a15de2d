"""The lines at the start and at the end: what is about to happen, what is promised, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirrormaker.driver.flow import Flow
from mirrormaker.model.topic_filter import Filter
from mirrormaker.settings.clients import TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.wire.records.compression import CODECS

_NAMED = 5  # topics that a line names


def guarantee(target: TargetSettings, flows: Sequence[Flow], handler_is_deterministic: bool) -> tuple[str, str]:
    """Return what the mirror promises, and why."""
    if target.acks != -1:
        return "at least once", "acks=1: an acknowledged record can be lost"
    if any(flow.ready.is_set() and not flow.is_exact for flow in flows):
        reason = "the target is older than Kafka 0.11: it cannot tell which records it has, and takes no headers"
        return "at least once", reason
    if not handler_is_deterministic:
        return "at least once", "the message handler declares that it is not deterministic"
    return "exactly once, in order", "acks=all, one producer identity per source partition"


def opening_lines(
    options: RunOptions,
    filter: Filter,
    flows: Sequence[Flow],
    troubles: Mapping[int, str],
    target: TargetSettings,
    promise: tuple[str, str],
    spark_place: str,
) -> list[str]:
    """Return the summary at the start. `troubles` says why a source is not mirrored, by number."""
    lines: list[str] = []
    for flow in flows:
        if flow.ready.is_set():
            lines += _source_lines(flow, filter)
        else:
            lines.append(f"source     {name_of(flow)}: {troubles.get(flow.number, 'not yet')}")
    flow = next((flow for flow in flows if flow.ready.is_set()), flows[0])
    cluster = f" (cluster {flow.target.id})" if flow.target.id else ""
    per_source = " per source" if len(flows) > 1 else ""
    lines += [
        f"target     {flow.target.endpoint}{cluster}",
        f"streams    {options.num_streams}{per_source}, on Spark at {spark_place}",
        f"guarantee  {promise[0]} ({promise[1]})",
    ]
    if options.message_handler:
        lines.append(f"handler    {options.message_handler[0]}")
    if target.codec is not None:
        lines.append(f"packing    batches that are not {CODECS[target.codec]} are packed anew (compression.type)")
    return lines + [f"note       {note}" for note in target.notes]


def name_of(flow: Flow) -> str:
    """Return a source's brokers, or the ZooKeeper that knows them."""
    return str(flow.source.endpoint) or f"ZooKeeper {flow.settings.zookeeper}"


def _source_lines(flow: Flow, filter: Filter) -> list[str]:
    reset = flow.settings.auto_offset_reset
    start = "committed offsets; new partitions from their beginning"
    if flow.acquisition.first_start:
        reset_words = f"auto.offset.reset={reset}" if reset else "auto.offset.reset is unset: earliest"
        start = f"first start of this group: {reset_words}"
    cluster = f"cluster {flow.source.id}, " if flow.source.id else ""  # clusters before 0.10.1 have no id
    lines = [
        f"source     {flow.source.endpoint} ({cluster}group {flow.settings.group_id})",
        f"topics     {_topics(flow, filter)}",
        f"start      {start}",
    ]
    if flow.topic_sync.left_out:
        names = ", ".join(flow.topic_sync.left_out)
        lines.append(f"left out   {names}: internal topics belong to their own cluster")
    lines += [f"partitions {line}" for line in _partitioned_by_key(flow)]
    lines += [f"overtaken  {line}" for line in flow.acquisition.overtaken]
    return lines + [f"note       {note}" for note in flow.settings.notes]


def _topics(flow: Flow, filter: Filter) -> str:
    topics = {owned.position.topic for owned in flow.scheduler}
    if topics:
        return f"{len(topics)} ({_first_few(sorted(topics))}), {len(flow.scheduler.owned)} partitions"
    if flow.membership.topics:
        return f"{len(flow.membership.topics)}, all with other processes of the group until this one has its streams"
    return f"none yet that matches {filter.pattern}; they are mirrored as they appear"


def _partitioned_by_key(flow: Flow) -> list[str]:
    """Return a line about topics whose records change their partition; none if there are none."""
    topics = sorted({owned.position.topic for owned in flow.scheduler if owned.position.by_key})
    counts = [f"{t} {len(flow.source.topics[t].partitions)} to {len(flow.target.topics[t].partitions)}" for t in topics]
    return [f"by key, as Java's producer does it: {_first_few(counts)}"] if counts else []


def _first_few(texts: list[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more
