"""From an agent's first repeated action to the webhook: real Prometheus, real Alertmanager."""

from __future__ import annotations

import importlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tidegauge
from benchmarks.measure import Line
from tidegauge.dashboards import rule_files

SERVERS = 3
LOOPS = 5
EVERY = "1s"
MARK_SECONDS = 2.0

TESTS = Path(__file__).parents[1] / "tests"
"""Where the servers and the agent are: the tests start the same ones."""


def measure() -> list[Line]:
    """Seconds of 15 loops, at scrapes a second apart."""
    missing = [name for name in ("prometheus", "prometheus-alertmanager") if not shutil.which(name)]
    if missing:
        print(f"alert_delay: skipped, because {' and '.join(missing)} is missing", file=sys.stderr)
        return []
    sys.path.insert(0, str(TESTS))
    delays: list[float] = []
    pipeline = tidegauge.configure(metrics_port=0)
    try:
        assert pipeline.metrics_url is not None
        for number in range(SERVERS):
            with tempfile.TemporaryDirectory() as folder:
                delays += _delays(pipeline.metrics_url, Path(folder), f"agent {number}")
    finally:
        pipeline.shutdown()
    note = f"of {len(delays)} loops, first repeated action to webhook, {EVERY} scrapes"
    return [
        Line("alert: median", statistics.median(delays), "s", MARK_SECONDS, note=note),
        Line("alert: maximum", max(delays), "s", MARK_SECONDS, note="of the same loops"),
    ]


def _delays(metrics_url: str, folder: Path, name: str) -> list[float]:
    """Of several loops with one Prometheus: how its scrapes and its evaluations lie to each other
    is drawn when it starts."""
    prometheus = importlib.import_module("support.prometheus")
    alertmanager = importlib.import_module("support.alertmanager")
    rules = folder / "alerts.yaml"
    rules.write_text(rule_files()["tidegauge-alerts.yaml"])
    with (
        alertmanager.notifying(folder) as webhook,
        prometheus.scraping(
            metrics_url,
            folder,
            rule_files=[rules],
            every=EVERY,
            alertmanager=webhook.alertmanager,
        ) as server,
    ):
        server.wait_for("up", bool)
        return [_delay(webhook, f"{name}.{number}") for number in range(LOOPS)]


def _delay(webhook: Any, name: str) -> float:
    looping_agent = importlib.import_module("support.looping_agent")
    time.sleep(random.random())  # at any moment between two scrapes
    agent = looping_agent.LoopingAgent(name, "web")
    try:
        notice = webhook.wait_for("firing", alertname="TidegaugeLoopOnset", agent=name)
    finally:
        agent.stop()
    return float(notice.arrived - agent.repeated_at)
