"""A LangGraph agent begins to loop: Prometheus sees it, Alertmanager sends it, and its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidegauge
from support.alertmanager import notifying
from support.looping_agent import LoopingAgent
from support.prometheus import free_port, scraping
from tidegauge.dashboards import rule_files
from tidegauge.testing import capture

pytestmark = pytest.mark.system

KEPT = 20.0
"""Seconds that the alert fires for after the loop (``keep_firing_for``)."""


def looped(agent: str, steps: int = 6) -> None:
    """A run that loops and ends at once."""
    with tidegauge.run(agent=agent, task_group="web") as run:
        for _ in range(steps):
            run.act("look", state="here")
            run.observe("nothing")


def test_loops_that_end_between_two_scrapes_are_heard_of(tmp_path: Path) -> None:
    rules = tmp_path / "alerts.yaml"
    rules.write_text(rule_files()["tidegauge-alerts.yaml"])
    port = free_port()
    with (
        capture(serve_metrics=True, metrics_port=port),
        notifying(tmp_path) as webhook,
        scraping(
            f"http://127.0.0.1:{port}/metrics",
            tmp_path,
            rule_files=[rules],
            every="2s",
            alertmanager=webhook.alertmanager,
        ) as prometheus,
    ):
        looped("first of the process")  # Prometheus scrapes only some seconds after its start
        webhook.wait_for("firing", agent="first of the process")
        looped("known", steps=1)
        prometheus.wait_for('tidegauge_lasting_loops_total{agent="known"}', bool)
        looped("known")
        looped("first of its group")
        for agent in ("known", "first of its group"):
            notice = webhook.wait_for("firing", agent=agent)
            assert notice.annotations["summary"] == (
                f"{agent} (web) is looping: 1 cycle was repeated at least twice."
            )
        seen = prometheus.query("max_over_time(tidegauge_lasting_loops_active[10m])")
        assert {sample.value for sample in seen} == {0.0}, "no scrape saw a loop"
        looped("retries", steps=2)
        prometheus.wait_for('tidegauge_loops_total{agent="retries",kind="loop"} == 1', bool)
        prometheus.wait_for('tidegauge_loops_total{agent="retries"} offset 3s', bool)
        assert "retries" not in {notice.labels["agent"] for notice in webhook.notices}


def test_the_webhook_hears_of_a_loop_and_of_its_end(tmp_path: Path) -> None:
    rules = tmp_path / "alerts.yaml"
    rules.write_text(rule_files()["tidegauge-alerts.yaml"])
    port = free_port()
    with (
        capture(serve_metrics=True, metrics_port=port),
        notifying(tmp_path) as webhook,
        scraping(
            f"http://127.0.0.1:{port}/metrics",
            tmp_path,
            rule_files=[rules],
            alertmanager=webhook.alertmanager,
        ) as prometheus,
    ):
        prometheus.wait_for("up", bool)
        agent = LoopingAgent("shopper", "web")
        try:
            fired = webhook.wait_for("firing", alertname="TidegaugeLoopOnset")
        finally:
            agent.stop()
        assert fired.arrived > agent.repeated_at > 0
        assert fired.labels["agent"] == "shopper"
        assert fired.labels["task_group"] == "web"
        assert fired.labels["severity"] == "warning"
        summary = fired.annotations["summary"]
        assert summary.startswith("shopper (web) is looping: 1 cycle was repeated at least twice. ")
        assert re.search(r"Run \w+ has repeated its cycle \d+ times", summary)
        assert fired.annotations["runbook_url"].endswith("loop-onset.md")
        assert fired.annotations["dashboard_url"].endswith("&var-agent=shopper&var-task_group=web")
        resolved = webhook.wait_for("resolved", alertname="TidegaugeLoopOnset")
        assert resolved.arrived - fired.arrived > KEPT
        assert resolved.labels == fired.labels
        assert {notice.labels["alertname"] for notice in webhook.notices} == {"TidegaugeLoopOnset"}
