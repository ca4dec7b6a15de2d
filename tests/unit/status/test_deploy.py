"""The alert rules and the dashboard in `deploy/`: they ask only for what exists, and the rules fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirrormaker.status.metrics import Metrics
from tests.support.made_up_mirror import MadeUpMirror
from tests.support.promtool import PROMTOOL, needs_promtool

DEPLOY = Path(__file__).parents[3] / "deploy"


def exposed() -> dict[str, set[str]]:
    """Every series that there is, and its labels."""
    text = Metrics(10).of(MadeUpMirror(3).snapshot())().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {name: set().union(*(s.labels for s in samples if s.name == name)) for name in {s.name for s in samples}}


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-dashboard.json", "alerts_test.yml"])
def test_only_series_and_labels_are_used_that_exist(name: str) -> None:
    text, there = (DEPLOY / name).read_text().replace('\\"', '"'), exposed()
    used = set(re.findall(r"\b(?:mirrormaker|process)_[a-z_]+\b", text))
    assert len(used) > 8
    assert used <= there.keys(), f"{name} asks for what is not there: {used - there.keys()}"
    from_prometheus = {"job", "instance"}
    for series, selector in re.findall(r"\b((?:mirrormaker|process)_[a-z_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
        assert labels <= there[series] | from_prometheus, f"{name}: {series} has no {labels - there[series]}"


def test_every_series_of_ours_is_on_the_dashboard() -> None:
    text = (DEPLOY / "grafana-dashboard.json").read_text()
    ours = {name for name in exposed() if name.startswith("mirrormaker_")}
    missing = {name for name in ours if re.sub("_(sum|count|bucket)$", "", name) not in text}
    assert not missing


def test_the_dashboard_is_one() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in board["panels"])
    variables = {variable["name"] for variable in board["templating"]["list"]}
    asked = set(re.findall(r"\$(\w+)", " ".join(t["expr"] for p in board["panels"] for t in p["targets"])))
    assert asked <= variables | {"__rate_interval"}


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_agrees_with_the_rules_and_they_fire_for_lag_stall_and_loss(command: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *command], cwd=DEPLOY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_what_is_exposed_is_what_prometheus_expects() -> None:
    assert PROMTOOL is not None
    text = Metrics(10).of(MadeUpMirror(3).snapshot())()
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.strip(), done.stderr.decode()
