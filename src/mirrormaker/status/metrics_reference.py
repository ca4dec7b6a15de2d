"""Generate the list of series in docs/metrics.md: `python -m mirrormaker.status.metrics_reference docs/metrics.md`.

The list comes from the text that `/metrics` serves for a mirror of one partition, so it cannot differ from the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.model.group_sync import State
from mirrormaker.status.counts import Counts
from mirrormaker.status.metrics import Metrics
from mirrormaker.status.snapshot import FLOWING, GroupFigures, Partition, Snapshot, Source, Stream

_BEGIN = "<!-- series: written by python -m mirrormaker.status.metrics_reference -->"
_END = "<!-- series: end -->"
_PARTITIONS, _SOURCES, _STREAMS, _PROCESS = "Partitions", "Sources", "Streams", "The driver's process"
_MOST_VALUES = 4  # of a label that are named in the list
_FIRST = ("source", "topic", "partition", "stream")  # labels in this order; the others follow


def rewritten(page: str) -> str:
    """Return the page with its list of series as the code has it; everything outside of the markers stays."""
    if _BEGIN not in page or _END not in page:
        raise ValueError(f"the page has no place for the series: {_BEGIN} and {_END} are missing")
    before, after = page[: page.index(_BEGIN)], page[page.index(_END) :]
    return f"{before}{_BEGIN}\n\n{_sections(_families())}\n\n{after}"


def _families() -> list[Metric]:
    """Return every series that `/metrics` serves, as a scraper reads it."""
    counts = Counts()
    counts.streams[0].arrived()
    counts.add(("orders", 0), 1, 100, None)
    source = Source(
        name="source",
        address="old1:9092",
        group="mirror",
        cluster="source-cluster",
        member="host-0",
        trouble="",
        is_assigned=True,
        topics_left_out=(),
        dropped=0,
        lost=0,
        counts=counts,
        groups=GroupFigures(states={state.value: 0 for state in State}),
    )
    partition = Partition(
        source="source", topic="orders", partition=0, stream=0, state=FLOWING, why="", offset=1, lag=0
    )
    snapshot = Snapshot(
        sources=(source,),
        target="new1:9092",
        target_cluster="target-cluster",
        guarantee="exactly once, in order",
        why="acks=all",
        buffer_limit=32 << 20,
        streams=(Stream(source="source", number=0, partitions=1, figures=counts.streams[0]),),
        partitions=(partition,),
    )
    text = Metrics(1).of(snapshot)().decode()
    return list(text_string_to_metric_families(text))


def _sections(families: Iterable[Metric]) -> str:
    sections: dict[str, list[str]] = {name: [] for name in (_PARTITIONS, _SOURCES, _STREAMS, _PROCESS)}
    for family in families:
        sections[_section(family)].append(_entry(family))
    return "\n\n".join(f"### {title}\n\n" + "\n".join(entries) for title, entries in sections.items() if entries)


def _section(family: Metric) -> str:
    labels = _labels(family)
    if family.name.startswith("process_"):
        return _PROCESS
    if "stream" in labels:
        return _STREAMS
    return _PARTITIONS if "topic" in labels else _SOURCES


def _entry(family: Metric) -> str:
    labels = ", ".join(_label(name, values) for name, values in _labels(family).items())
    name = f"{family.name}_total" if family.type == "counter" else family.name
    kind = f"{family.type}; {labels}" if labels else family.type
    lines = [f"- **`{name}`** ({kind}):", f"  {family.documentation.rstrip('.')}."]
    if family.type == "histogram":
        bounds = dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)
        lines.append(f"  Buckets, in seconds: {', '.join(f'{float(bound):g}' for bound in bounds if bound != '+Inf')}.")
    return "\n".join(lines)


def _label(name: str, values: list[str]) -> str:
    """Return a label; one with a fixed set of values names them."""
    is_list = 1 < len(values) <= _MOST_VALUES
    return f"`{name}`: {' or '.join(f'`{value}`' for value in values)}" if is_list else f"`{name}`"


def _labels(family: Metric) -> dict[str, list[str]]:
    """Return the values of each label. The sample has one of everything, so several values are all that there are."""
    found: dict[str, list[str]] = {}
    for sample in family.samples:
        for name, value in sample.labels.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    found.pop("le", None)  # a histogram's bound, not a label of ours
    order = [*(name for name in _FIRST if name in found), *(name for name in found if name not in _FIRST)]
    return {name: found[name] for name in order}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
