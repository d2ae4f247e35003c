"""Every query of every panel finds something in a Prometheus that scrapes agents at work."""

from __future__ import annotations

import contextlib
import contextvars
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import tidegauge
from dashboards.queries import wilson_interval
from support.grafana import panels, reasons_to_be_empty
from support.prometheus import Prometheus, Sample
from support.servers import SharedPrometheus
from tidegauge.dashboards import dashboard_files, rule_files
from tidegauge.events import Task
from tidegauge.testing import capture

pytestmark = pytest.mark.system

TRUE_HERE = {
    "when all runs are exported",
    "without calibrated thresholds",
    "when no runs are judged",
    "when every step can be compared",
    "when no such spans are read",
    "when nothing is recorded",
    "without a receiver that measures",
    "without a decisions server",
    "without a gateway",
    "without a receiver",
    "without a worker",
    "without tidegauge watch",
}
"""The reasons for which panels say that they may be empty, as far as they hold for these runs."""


class Live(NamedTuple):
    prometheus: Prometheus
    run: str
    bare_run: str

    def find(self, query: str, **variables: str) -> list[Sample]:
        """What a panel's query finds now, its variables substituted."""
        values = {"agent": "worker|looper", "task_group": ".*", "run": self.run, "window": "1m"}
        values |= {"steps": "1m", "__interval": "1m", "__range": "1m"} | variables
        return self.prometheus.query(re.sub(r"\$(\w+)", lambda name: values[name[1]], query))


def search(run: tidegauge.Run) -> None:
    """Looks around a house, comes back to a lead, uses what it saw long ago."""
    for place, exits in (("hall", ["kitchen", "attic"]), ("kitchen", ["hall"]), ("hall", [])):
        run.act("go", {"to": place}, tokens=5, mentions=["knife"])
        run.observe("there", place=place, exits=exits, tasks=[Task("cook")])
    run.act("go", {"to": "attic"}, uses=["knife"])
    run.observe("room 4", place="attic", progress=0.5)


def circle(run: tidegauge.Run) -> None:
    """Goes in circles."""
    for _ in range(4):
        for place in ("hall", "kitchen"):
            run.act("go", {"to": place}, state=place, tokens=5, entropy=0.2)
            run.observe("there", place=place)


def ask(run: tidegauge.Run) -> None:
    """Reports nothing but its steps."""
    for number in range(3):
        run.act("ask", {"what": number % 2})
        run.observe("no")


def a_day() -> None:
    """One run of every kind."""
    with tidegauge.run(agent="bare") as run:
        ask(run)
    for memory in ("on", "off"):
        for success in (True, False):
            with tidegauge.run(
                agent="worker",
                task="tidy up",
                task_group="house",
                t_max=30,
                memory=memory,
                operations=9,
            ) as run:
                search(run)
                if not success:
                    circle(run)
                run.finish(success=success)
    with (
        contextlib.suppress(tidegauge.RunStopped),
        tidegauge.run(agent="looper", task_group="house", t_max=30) as run,
    ):
        while True:
            circle(run)


@pytest.fixture(scope="module")
def live(prometheus: SharedPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with (
        capture(serve_metrics=True, metrics_port=prometheus.port, stop_on_loop=6, repetition=True),
        prometheus.evaluating(tmp_path_factory.mktemp("rules"), rule_files()),
    ):
        a_day()
        scraped_again = 'count_over_time(tidegauge_steps_total{agent="looper"}[1m]) >= %d'
        prometheus.wait_for(scraped_again % 2, bool)
        a_day()
        # Still going on while the tests look: in a context of its own, as it is not theirs.
        context, stack = contextvars.copy_context(), contextlib.ExitStack()
        bare_run = context.run(stack.enter_context, tidegauge.run(agent="bare"))
        context.run(ask, bare_run)
        going_on = tidegauge.run(agent="looper", task_group="house", t_max=30)
        run = context.run(stack.enter_context, going_on)
        context.run(search, run)
        context.run(circle, run)
        prometheus.wait_for(scraped_again % 6, bool)
        prometheus.wait_for(f'tidegauge_run_steps{{run="{run.id}"}}', bool)
        yield Live(prometheus, run.id, bare_run.id)
        context.run(stack.close)


@pytest.mark.parametrize("panel", panels())
def test_a_panel_has_data(live: Live, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        query = target["expr"]
        found = live.find(query)
        if reasons_to_be_empty(panel) & TRUE_HERE:
            assert not found, f"it has data, and says: {panel['description']}"
            continue
        assert found, query
        if "histogram_quantile" not in query:
            assert not any(math.isnan(sample.value) for sample in found), query
        named = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        assert all(named <= set(sample.labels) for sample in found), query


@pytest.mark.parametrize("panel", panels())
def test_a_panel_that_is_empty_for_an_agent_that_reports_little_says_so(
    live: Live, panel: dict[str, Any]
) -> None:
    for target in panel["targets"]:
        if not live.find(target["expr"], agent="bare", run=live.bare_run):
            assert reasons_to_be_empty(panel), target["expr"]


def test_the_variables_have_values(live: Live) -> None:
    board = json.loads(dashboard_files()["tidegauge-run.json"])
    asked = [v for v in board["templating"]["list"] if v["type"] == "query"]
    assert {variable["name"] for variable in asked} == {"agent", "task_group", "run"}
    for variable in asked:
        query = variable["query"]["query"]
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        series = re.sub(r"\$\w+", ".*", series)
        values = live.prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": series})
        wanted = {"agent": "looper", "task_group": "house", "run": live.run}
        assert wanted[label] in values, query


def test_places_have_names_of_their_own(live: Live) -> None:
    seen = live.prometheus.query(f'tidegauge_run_place{{run="{live.run}"}}')
    assert seen
    assert all(sample.labels["place"] for sample in seen)


def test_onsets_and_stops_are_marked(live: Live) -> None:
    board = json.loads(dashboard_files()["tidegauge-fleet.json"])
    onsets, stops = (
        {found.labels["agent"] for found in live.find(one["expr"])}
        for one in board["annotations"]["list"]
    )
    assert onsets == {"looper", "worker"}
    assert stops == {"looper"}


def test_looping_now_is_a_share(live: Live) -> None:
    board = json.loads(dashboard_files()["tidegauge-fleet.json"])
    [panel] = [p for p in board["panels"] if p["title"] == "Looping now"]
    [looping] = live.find(panel["targets"][0]["expr"])
    assert 0 < looping.value <= 1


def test_the_bounds_of_auv_hold_it(live: Live) -> None:
    board = json.loads(dashboard_files()["tidegauge-fleet.json"])
    [panel] = [p for p in board["panels"] if p["title"] == "AUV, with its bounds"]
    most, auv, least = (live.find(target["expr"])[0].value for target in panel["targets"])
    # One run of the looper goes on: its group alone has other bounds than all groups together.
    assert 0 < least < auv < most < 1
    assert most < live.find('tidegauge_auv_upper{agent="worker"}')[0].value


def test_the_places_of_a_run_are_those_where_it_was_for_longest(live: Live) -> None:
    board = json.loads(dashboard_files()["tidegauge-run.json"])
    [panel] = [p for p in board["panels"] if p["title"] == "Places"]
    [target] = panel["targets"]
    [here] = live.find(target["expr"])
    [place] = live.prometheus.query(f'tidegauge_run_place{{run="{live.run}"}}')
    assert here.labels == {"place": place.labels["place"]}


def test_every_ratio_is_recorded_within_its_range(live: Live) -> None:
    live.prometheus.wait_for('{__name__="agent_task_group:tidegauge_loop_ratio:rate5m"}', bool)
    found = live.prometheus.query('{__name__=~".+:tidegauge_.+:rate.+"}')
    for sample in found:
        assert not math.isnan(sample.value), sample
        if "seconds" not in sample.labels["__name__"]:
            assert -1 <= sample.value <= 1, sample


def test_the_interval_of_a_share_is_that_of_wilson(live: Live) -> None:
    bounds = [
        live.prometheus.value(wilson_interval("vector(8)", "vector(10)", upper=upper))
        for upper in (False, True)
    ]
    assert bounds == pytest.approx([0.4902, 0.9433], abs=1e-4)
    assert live.prometheus.value(wilson_interval("vector(0)", "vector(0)", upper=True)) is None
