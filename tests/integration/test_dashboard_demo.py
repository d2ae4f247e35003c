"""Every panel shows something of the demo, after a minute of it, or says why it may be empty.

The demo hurries here, and is scraped as often: what Prometheus has of it is a minute all the same.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from support.grafana import View, reasons_to_be_empty, shown_panels
from support.history import EVERY, knowing
from support.processes import PATIENCE
from support.prometheus import Prometheus, free_port
from tidegauge.dashboards import dashboard_files

pytestmark = [pytest.mark.slow, pytest.mark.system]

MINUTE = 60.0
HASTE = 10.0
"""How much faster than usual the agents think and act, and are scraped."""

HURRIED = f"""
from tidegauge.cli import demo
from tidegauge.cli.main import main

demo._TURN_SECONDS /= {HASTE}
main()
"""
DEMO = [sys.executable, "-c", HURRIED, "demo"]
BOARDS = {
    name: json.loads(text) for name, text in dashboard_files().items() if name.endswith(".json")
}
TRUE_OF_THE_DEMO = {
    "when all runs are exported",
    "for agents that do not report operations",
    "when agents do not report what it needs",
    "for agents that report no places",
    "for agents that report no entropy",
    "for agents that report none",
    "for agents that report neither places nor entities",
    "for agents that report no tasks",
    "until runs of both kinds have ended (memory=on and memory=off)",
    "until runs with loops and runs without have ended and reported a t_max",  # one kind an agent
    "until the first one",
    "for agents that report no progress",
    "for agents that report no log-probabilities",
    "until the first intervention",
    "when every step can be compared",
    "when no such spans are read",
    "when nothing is recorded",
    "while no run loops",  # any more
    "while nothing runs",  # any more
    "without a receiver that measures",
    "without a decisions server",
    "without a gateway",
    "without a receiver",
    "without a worker",
    "without tidegauge watch",
    "without calibrated thresholds",
    "when no runs are judged",
    "without progress and without t_max",  # it reports no progress
}
"""The reasons for which panels say that they may be empty, as far as they hold for the demo."""


class Watched(NamedTuple):
    """The demo, a minute later."""

    prometheus: Prometheus
    now: float
    run: str

    def view(self, board: Any) -> View:
        return View(board, self.prometheus, self.now, run=self.run)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    pages, now = list(minute_of_the_demo()), time.time()
    with knowing(pages, tmp_path_factory.mktemp("demo"), end=now) as prometheus:
        # The one that an operator would look at: it has repeated itself most often.
        repeats = "topk(1, max_over_time(tidegauge_run_loop_repeats[5m]))"
        [run] = prometheus.query(repeats, at=now)
        yield Watched(prometheus, now, run.labels["run"])


def minute_of_the_demo() -> Iterator[str]:
    """What its metrics say until a minute after its first step, in haste."""
    port = free_port()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Accept": "text/plain"}
    )
    command = [*DEMO, "--serve", "--no-alerts", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as demo:
        try:
            left = int(MINUTE / EVERY)
            following = time.monotonic()
            until = following + MINUTE
            while left >= 0:
                assert demo.poll() is None
                assert time.monotonic() < until
                with contextlib.suppress(OSError):  # it has not begun to serve
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        page = answer.read().decode()
                    yield page
                    left -= "\ntidegauge_steps_total{" in page
                following += EVERY / HASTE
                time.sleep(max(0.0, following - time.monotonic()))
        finally:
            demo.send_signal(signal.SIGINT)


def panels() -> list[Any]:
    return [
        pytest.param(name, panel, id=f"{name}: {panel['title']}")
        for name, board in BOARDS.items()
        for panel in shown_panels(board)
    ]


@pytest.mark.parametrize(("name", "panel"), panels())
def test_a_panel_has_data_or_says_why_it_may_have_none(
    watched: Watched, name: str, panel: Any
) -> None:
    view = watched.view(BOARDS[name])
    for target in panel["targets"]:
        found = view.find(panel, target)
        if not found:
            assert reasons_to_be_empty(panel) & TRUE_OF_THE_DEMO, target["expr"]
        named = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        assert all(named <= set(series.labels) for series in found)


def test_the_variables_offer_what_there_is(watched: Watched) -> None:
    for board in BOARDS.values():
        view = watched.view(board)
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                values = view.values_of(variable)
                wanted = {"agent": "looper-twin", "task_group": "documents", "run": watched.run}
                assert wanted[variable["name"]] in values
