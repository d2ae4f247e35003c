"""Prometheus takes the rules, and each fires when it should and not when it should not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import ALERTS
from dashboards.ratios import recording_groups
from support.prometheus import find_binary
from tidegauge.dashboards import dashboard_files, rule_files

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*_test.yaml"))
FOLDER = "../../src/tidegauge/dashboards/rules/"
RULES = sorted((HERE.parents[1] / "src" / "tidegauge" / "dashboards" / "rules").glob("*.yaml"))


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
def test_rules_do_as_the_story_says(story: Path, tmp_path: Path) -> None:
    """The stories say nothing of links: they depend on settings, and on the order of panels."""
    for name, text in rule_files().items():
        rules = yaml.safe_load(text)
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            if "annotations" in rule:
                rule["annotations"] = {"summary": rule["annotations"]["summary"]}
        (tmp_path / name).write_text(yaml.safe_dump(rules))
    assert FOLDER in story.read_text()
    (tmp_path / story.name).write_text(story.read_text().replace(FOLDER, f"{tmp_path}/"))
    promtool("test", "rules", tmp_path / story.name)


def test_links_lead_to_the_runbook_and_to_the_panel_of_the_agent(tmp_path: Path) -> None:
    files = rule_files(runbooks="https://wiki.example/", grafana_url="https://grafana.example/")
    (tmp_path / "alerts.yaml").write_text(files["tidegauge-alerts.yaml"])
    board = json.loads(dashboard_files()["tidegauge-fleet.json"])
    [panel] = [panel for panel in board["panels"] if panel["title"] == "Most repeats now"]
    labels = {"agent": 'Eve & "Bob"', "task_group": ""}
    shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    story = {
        "rule_files": [str(tmp_path / "alerts.yaml")],
        "tests": [
            {
                "input_series": [
                    {"series": f"tidegauge_lasting_loops_active{{{shown}}}", "values": "1"},
                    {"series": f'tidegauge_run_loop_repeats{{{shown}, run="r1"}}', "values": "3"},
                ],
                "alert_rule_test": [
                    {
                        "alertname": "TidegaugeLoopOnset",
                        "eval_time": "0s",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "warning", "agent": labels["agent"]},
                                "exp_annotations": {
                                    "summary": 'Eve & "Bob" is looping: 1 cycle was repeated at '
                                    "least twice. Run r1 has repeated its cycle 3 times.",
                                    "runbook_url": "https://wiki.example/loop-onset.md",
                                    "dashboard_url": "https://grafana.example/d/tidegauge-fleet"
                                    f"?viewPanel={panel['id']}&var-agent=Eve+%26+%22Bob%22",
                                    "panel": "Most repeats now",
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "story.json").write_text(json.dumps(story))
    promtool("test", "rules", tmp_path / "story.json")


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
