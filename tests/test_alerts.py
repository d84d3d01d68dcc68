"""Alert rules and the runbook name what there is: metrics, labels, parts, log events; and each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from service.logs import EventName
from service.metrics import METRICS, ROUTES, Metric
from service.settings import VARIABLES
from service.wire.health import PartName

ROOT = Path(__file__).parent.parent
ALERTS = ROOT / "deploy" / "alerts.yml"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES: dict[str, Metric[Any]] = {
    metric.name + suffix: metric for metric in METRICS for suffix in _SUFFIXES[metric.kind]
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_names_metrics_labels_and_values_that_there_are(rule: dict[str, Any]) -> None:
    used = re.findall(r"\b(advisor_\w+)(?:\{([^}]*)\})?", rule["expr"])
    assert used
    for name, selectors in used:
        metric = SERIES[name]
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selectors):
            known = metric.labels[label]
            assert known is ROUTES or set(value.split("|")) <= set(known), f"{name}: {label}"
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_metrics_of_the_whole_service_are_not_summed_over_processes() -> None:
    for rule in RULES:
        for call in re.findall(r"\bsum(?: by \([^)]*\))? *\((?:rate|increase)\((advisor_\w+)", rule["expr"]):
            assert SERIES[call].scope == "own", rule["alert"]


def test_every_alert_has_a_heading_in_the_runbook_and_every_heading_its_alert() -> None:
    headings = re.findall(r"^## (Advisor\w+)$", RUNBOOK, re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_the_runbook_names_metrics_events_parts_and_settings_that_there_are() -> None:
    named = re.findall(r"`([^`\s]+)`", RUNBOOK)
    metrics = {name.partition("{")[0] for name in named if name.startswith("advisor_")}
    assert metrics <= set(SERIES) | {metric.name for metric in METRICS}
    dotted = {name for name in named if re.fullmatch(r"[a-z]+\.[a-z_]+", name)}
    assert dotted - {"request.failed"} <= set(get_args(EventName))
    assert {name for name in named if name.startswith("ADVISOR_")} <= set(VARIABLES)
    parts = set(re.findall(r"^\| `(\w+)` \|", RUNBOOK, re.MULTILINE))
    assert parts == set(get_args(PartName)) - {"hub"}


@pytest.mark.full
def test_prometheus_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("no promtool: install `prometheus`")
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
