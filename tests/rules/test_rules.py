"""Prometheus takes the rules, and each fires when it should and not when it should not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.prometheus import find_binary
from tidegauge.dashboards import ALERTS, rule_files
from tidegauge.dashboards.ratios import recording_groups

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*_test.yaml"))
RULES = sorted((HERE.parents[1] / "dashboards" / "rules").glob("*.yaml"))


def promtool(*arguments: object) -> None:
    done = subprocess.run(
        [find_binary("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expectations(kind: str) -> list[dict[str, Any]]:
    """Every expectation of this kind in the stories."""
    return [
        expectation
        for path in STORIES
        for story in yaml.safe_load(path.read_text())["tests"]
        for expectation in story.get(kind, ())
    ]


def test_prometheus_takes_the_rules() -> None:
    assert {path.name for path in RULES} == set(rule_files())
    promtool("check", "rules", *RULES)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_rules_do_as_the_story_says(story: Path) -> None:
    promtool("test", "rules", story)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_is_seen_firing_and_not_firing(alert: Any) -> None:
    seen = {
        bool(case["exp_alerts"])
        for case in expectations("alert_rule_test")
        if case["alertname"] == alert.name
    }
    assert seen == {True, False}


def test_each_recording_rule_is_in_a_story() -> None:
    expressions = "\n".join(case["expr"] for case in expectations("promql_expr_test"))
    records = [rule["record"] for group in recording_groups() for rule in group["rules"]]
    assert [name for name in records if name not in expressions] == []
