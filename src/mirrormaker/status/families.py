"""Series of one name with their labels and values, as Prometheus' client library wants them."""

from __future__ import annotations

from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Rows = list[tuple[Any, ...]]  # label values, and the value of the series at the end


def counters(name: str, help_text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    """Return a counter, whose name will end with _total."""
    return _filled(CounterMetricFamily(f"mirrormaker_{name}", help_text, labels=labels), rows)


def gauges(name: str, help_text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    """Return a gauge."""
    return _filled(GaugeMetricFamily(f"mirrormaker_{name}", help_text, labels=labels), rows)


def _filled(family: Any, rows: Rows) -> Metric:
    for row in rows:
        family.add_metric(row[:-1], row[-1])
    return family  # type: ignore[no-any-return]
