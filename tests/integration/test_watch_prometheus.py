"""A real Prometheus scrapes ``tidegauge watch`` while a session loops: the row, and the alert."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.grafana import shown_panels
from support.hook_payloads import PAYLOADS, patient_hook
from support.processes import stopped_in_the_end, wait_until_ready, without_otel
from support.requirements import needs
from support.servers import SharedPrometheus
from tidegauge.dashboards import dashboard_files, rule_files

pytestmark = [
    pytest.mark.system,
    needs(hasattr(socket, "AF_UNIX"), "this platform has no Unix sockets"),
]

ROW = "Coding agents: "


def hook(folder: Path, kind: str, call_id: str = "c") -> bool:
    """Whether the watcher answers to a hook of Codex with more than nothing."""
    ran = subprocess.run(
        [sys.executable, "-SE", str(patient_hook(folder)), "codex"],
        input=json.dumps(PAYLOADS["codex"](kind, call_id)).encode(),
        env={"XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        check=True,
    )
    return bool(ran.stdout) and b"deny" in ran.stdout


def loop(folder: Path, calls: int) -> None:
    hook(folder, "prompt")
    for number in range(calls):
        if not hook(folder, "call", f"c{number}"):
            hook(folder, "result", f"c{number}")


@pytest.fixture(scope="module")
def scraped(
    prometheus: SharedPrometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedPrometheus]:
    folder = tmp_path_factory.mktemp("watch")
    log = folder / "log"
    program = "from tidegauge.cli.main import main; main()"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", program, "watch", "--act"),
                *("--metrics-port", str(prometheus.port)),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=without_otel(XDG_RUNTIME_DIR=str(folder), HOME=str(folder)),
        )
    soon = {name: text.replace("for: 2m", "for: 1s") for name, text in rule_files().items()}
    with (
        stopped_in_the_end(process),
        prometheus.evaluating(tmp_path_factory.mktemp("rules"), soon),
    ):
        wait_until_ready(process, log, lambda: "end it with Ctrl-C" in log.read_text())
        loop(folder, 4)  # two are made, one is nudged, one is refused
        hook(folder, "end")
        twice = 'count_over_time(tidegauge_refused_calls_total{agent="codex"}[1m]) >= %d'
        prometheus.wait_for(twice % 2, bool)
        loop(folder, 4)
        prometheus.wait_for('tidegauge_refused_calls_total{agent="codex"} == 2', bool)
        prometheus.wait_for(twice % 6, bool)
        hook(folder, "call", "c9")
        yield prometheus
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()


def row() -> list[Any]:
    board = json.loads(dashboard_files()["tidegauge-fleet.json"])
    panels = [each for each in shown_panels(board) if each["title"].startswith(ROW)]
    assert len(panels) == 4
    return [pytest.param(each, id=each["title"].removeprefix(ROW)) for each in panels]


@pytest.mark.parametrize("panel", row())
def test_a_panel_has_the_data_of_the_session(
    scraped: SharedPrometheus, panel: dict[str, Any]
) -> None:
    values = {"agent": "codex", "task_group": ".*", "__interval": "1m"}
    [target] = panel["targets"]
    query = re.sub(r"\$(\w+)", lambda name: values[name[1]], target["expr"])
    [found] = scraped.query(query)
    assert found.labels == {"agent": "codex"}
    if "tokens" not in panel["title"]:  # hooks report none
        assert found.value > 0


def test_the_alert_fires_for_the_session(scraped: SharedPrometheus) -> None:
    firing = 'ALERTS{alertname="TidegaugeSessionLooping", alertstate="firing"}'
    [alert] = scraped.wait_for(firing, bool)
    assert (alert.labels["agent"], alert.labels["severity"]) == ("codex", "warning")
    assert alert.labels["run"]
