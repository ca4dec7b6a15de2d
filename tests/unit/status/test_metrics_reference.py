"""docs/metrics.md lists the series that `/metrics` serves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.status.metrics import Metrics
from mirrormaker.status.metrics_reference import rewritten
from tests.support.made_up_mirror import MadeUpMirror

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the series of the process come from /proc"
)


def test_the_page_is_as_the_code_has_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run python -m mirrormaker.status.metrics_reference docs/metrics.md"


def test_the_page_names_every_series_once() -> None:
    text = Metrics(10).of(MadeUpMirror(3).snapshot())().decode()
    families = text_string_to_metric_families(text)
    served = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    named = re.findall(r"^- \*\*`(\w+)`\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(served)


def test_a_page_without_a_place_for_the_list_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the series"):
        rewritten("# Metrics\n")
