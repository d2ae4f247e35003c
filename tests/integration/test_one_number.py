"""One number, one meaning: what a few runs cost is the same wherever it is read."""

from __future__ import annotations

import base64
import contextlib
import contextvars
import functools
import gzip
import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegauge
from support.grafana import shown_panels
from support.servers import SharedPrometheus
from tidegauge import ToolDeclaration
from tidegauge.cli.main import cli
from tidegauge.dashboards import dashboard_files
from tidegauge.fleet.sink import FleetSink
from tidegauge.policies import Policy, Rule
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.testing import Capture, capture

pytestmark = pytest.mark.system

SERIES = {
    "steps": "tidegauge_steps_total",
    "loop_steps": "tidegauge_loop_steps_total",
    "lost_tokens": "tidegauge_loop_tokens_total",
    "lost_seconds": "tidegauge_loop_seconds_total",
}
LOST = ("steps", "tokens", "seconds")
GROUP = "one number"
RULES = [Rule("loop_repeats", 1, "stop", agent="stopped")]
TOOLS = {"status": ToolDeclaration(poll=10)}
BOARDS = {
    name: {panel["title"]: panel for panel in shown_panels(json.loads(dashboard_files()[name]))}
    for name in ("tidegauge-fleet.json", "tidegauge-run.json")
}
started = functools.partial(tidegauge.run, task_group=GROUP)


def step(run: tidegauge.Run, tool: str, result: str | None, **arguments: Any) -> None:
    """A step of 10 tokens for its choice, and 5 for its result."""
    run.act(tool, arguments, tokens=10)
    if result is not None:
        run.observe(result, tokens=5)


def fixture_runs() -> None:
    """A loop that ends in the middle of a round, a stop at an onset, and what is no loop."""
    with started(agent="looper", run_id="looper") as run:
        for turn in range(10):
            where = ("hall", "attic", "cellar")[turn % 3]
            step(run, "go", where, to=where)
        run.act("go", {"to": "attic"}, tokens=10)  # has no result
        run.finish(success=False)
    with (
        contextlib.suppress(tidegauge.RunStopped),
        started(agent="stopped", run_id="stopped") as run,
    ):
        for _ in range(9):
            step(run, "search", "nothing", query="red shoes")
    with started(agent="poller", run_id="poller") as run:
        for _ in range(6):
            step(run, "status", "building", job=7)
        step(run, "status", "done", job=7)
        run.finish(success=True)
    with started(agent="rewording", run_id="rewording") as run:
        for number in range(6):
            step(run, "search", f"nothing for {number}", query=f"red shoes size {number}")
        run.finish(success=False)
    with started(agent="outer", run_id="outer") as outer:
        step(outer, "plan", "two parts")
        with started(agent="inner", run_id="inner") as inner:
            for _ in range(3):
                step(inner, "look", "dust")
            inner.finish(success=True)
        step(outer, "answer", "done")
        outer.finish(success=True)


@contextlib.contextmanager
def going_on() -> Iterator[str]:
    """A run that loops, and stays open meanwhile. Its id."""
    context, stack = contextvars.copy_context(), contextlib.ExitStack()  # it is not the caller's
    run = context.run(stack.enter_context, started(agent="open", run_id="open"))
    for turn in range(9):
        where = ("hall", "attic")[turn % 2]
        context.run(step, run, "go", where, to=where)
    yield run.id
    context.run(stack.close)


def scraped(url: str) -> dict[str, float]:
    """Sums over all groups, from ``/metrics``."""
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    return {
        name: sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if re.match(rf"{series}[{{ ]", line)
        )
        for name, series in SERIES.items()
    }


def shown(seen: Capture) -> tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]:
    """The fleet, and every ended run, from the live page."""

    def ask(query: str) -> Any:
        with urllib.request.urlopen(f"{seen.pipeline.page_url}page/live{query}") as response:
            return json.load(response)

    page = ask("")
    keys = {event["key"] for event in page["events"] if event["what"] == "ended"}
    chosen = [ask(f"?run={key}")["chosen"] for key in keys]
    return page["fleet"], {run["run"]: run for run in chosen}


def on_dashboards(prometheus: SharedPrometheus) -> dict[str, dict[str, float]]:
    """What each panel's first query finds, its variables substituted, by its label or ``""``."""
    values = {"agent": ".*", "task_group": GROUP, "run": "open"}
    found: dict[str, dict[str, float]] = {}
    for panels in BOARDS.values():
        for title, panel in panels.items():
            query = re.sub(
                r"\$(\w+)", lambda name: values.get(name[1], "5m"), panel["targets"][0]["expr"]
            )
            found[title] = {
                next(iter(sample.labels.values()), ""): sample.value
                for sample in prometheus.query(query)
            }
    return found


def summaries(recording: Path) -> dict[str, Mapping[str, Any]]:
    """The summaries that a worker of a fleet produces for the recorded steps."""
    produced: dict[str, Mapping[str, Any]] = {}

    def produce(kind: str, run: str, record: bytes) -> None:
        if kind == "summary":
            produced[run] = json.loads(record)

    def finished(report: Any) -> None:
        sink.run_finished(report)

    engine = Engine(clock=None, declarations=TOOLS, on_finished=finished)
    sink = FleetSink(engine, Policy(RULES), produce)
    replay = Replay(sink)
    with recording.open("rb") as file:
        for line in read_lines(file):
            replay.take(line, recording.name)
    return produced


def active(seen: Capture) -> Mapping[str, Any]:
    """The only active run, from the live page."""
    page = json.load(urllib.request.urlopen(f"{seen.pipeline.page_url}page/live"))
    [row] = page["runs"]["rows"]
    with urllib.request.urlopen(f"{seen.pipeline.page_url}page/live?run={row['key']}") as response:
        chosen = json.load(response)["chosen"]
    assert isinstance(chosen, dict)
    return chosen


def reported(path: Path) -> dict[str, Mapping[str, Any]]:
    """Every run of a report."""
    packed = re.search(r'<template id="data">(.*?)</template>', path.read_text("utf-8"), re.DOTALL)
    assert packed is not None
    runs = json.loads(gzip.decompress(base64.b64decode(packed[1])))["runs"]
    return {run["run"]: run for run in runs}


def command(*arguments: str) -> str:
    ran = CliRunner().invoke(cli, list(arguments))
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _is(expected: float, found: Any) -> bool:
    return bool(found) and found[0].value == pytest.approx(expected)


def test_every_surface_has_the_same_numbers(prometheus: SharedPrometheus, tmp_path: Path) -> None:
    recording, page = tmp_path / "runs.jsonl", tmp_path / "report.html"
    settings: dict[str, Any] = {"rules": RULES, "tools": TOOLS, "record_to": recording}
    with capture(serve_metrics=True, metrics_port=prometheus.port, **settings) as seen:
        fixture_runs()
        totals = scraped(str(seen.pipeline.metrics_url))
        fleet, on_page = shown(seen)
        for name, series in SERIES.items():
            prometheus.wait_for(f"sum({series})", functools.partial(_is, totals[name]))
        ended = on_dashboards(prometheus)
        with going_on() as run:
            prometheus.wait_for(f'tidegauge_run_steps{{run="{run}"}} == 9', bool)
            during = on_dashboards(prometheus)
            still = active(seen)
    spans = {
        str(attributes["tidegauge.run.id"]): attributes
        for span in seen.spans
        if "tidegauge.steps" in (attributes := span.attributes or {})
    }
    entries = {
        entry["run"]: entry
        for entry in json.loads(command("replay", "--json", str(recording)))["runs"]
    }
    command("report", str(recording), "-o", str(page))
    in_report = reported(page)
    of_fleet = summaries(recording)
    assert set(spans) == set(entries) == set(in_report) == set(of_fleet) == {*on_page, "open"}
    del entries["open"]
    for run, entry in entries.items():
        lost = [entry["lost_in_loops"][name] for name in LOST]
        span, shown_run, reported_run = spans[run], on_page[run], in_report[run]
        without_policy = {**of_fleet[run], "stopped": None}  # replay has none
        assert {name: without_policy[name] for name in entry} == entry
        assert lost[:2] == [shown_run[f"lost_{name}"] for name in LOST[:2]], run
        keys = ("loop_steps", "lost_tokens", "lost_seconds")
        assert lost == [reported_run[key] for key in keys], run
        on_span = ("tidegauge.loop.steps", "tidegauge.loop.lost_tokens")
        assert lost[:2] == [span.get(name) for name in on_span], run
        assert lost[2] == pytest.approx(span.get("tidegauge.loop.lost_seconds")), run
        for one in (shown_run["steps"], reported_run["steps"], span["tidegauge.steps"]):
            assert one == entry["steps"], run
        for ratio in (shown_run, reported_run, {"loop_ratio": span["tidegauge.loop.ratio"]}):
            assert ratio["loop_ratio"] == pytest.approx(entry["loop_ratio"]), run
    # from the definition: step 0 has an unknown state, steps 1 to 3 are a round, 4 to 10 repeat it;
    # 10 has no result
    assert entries["looper"]["lost_in_loops"]["steps"] == 7
    assert entries["looper"]["lost_in_loops"]["tokens"] == 6 * 15 + 10
    assert on_page["looper"]["loop"]["steps"] == 7
    assert entries["looper"]["loop_steps"] == 7
    assert entries["stopped"]["lost_in_loops"] == {"steps": 1, "tokens": 10, "seconds": None}
    assert entries["poller"]["lost_in_loops"]["steps"] == 0
    assert not entries["poller"]["lost_in_loops"]["tokens"]
    assert entries["poller"]["loop_steps"] == 0  # its repeats are declared
    assert entries["rewording"]["lost_in_loops"]["steps"] == 0
    sums = {
        "steps": sum(entry["steps"] for entry in entries.values()),
        "loop_steps": sum(entry["loop_steps"] for entry in entries.values()),
        **{
            f"lost_{name}": sum(entry["lost_in_loops"][name] or 0 for entry in entries.values())
            for name in ("tokens", "seconds")
        },
    }
    assert totals == {name: pytest.approx(value, abs=1e-3) for name, value in sums.items()}
    assert (fleet["steps"], fleet["lost_steps"], fleet["lost_tokens"]) == (
        totals["steps"],
        totals["loop_steps"],
        totals["lost_tokens"],
    )
    assert fleet["loop_ratio"] == pytest.approx(totals["loop_steps"] / totals["steps"])
    # the dashboards, while nothing runs
    for name in LOST:
        assert ended[f"{name.capitalize()} lost in loops"] == pytest.approx(
            {run: entry["lost_in_loops"][name] or 0 for run, entry in entries.items()},
            abs=1e-4 if name == "seconds" else 1e-9,  # recordings have microseconds
        )
    assert ended["Loop ratio by agent"] == pytest.approx(
        {run: entry["loop_ratio"] for run, entry in entries.items()}
    )
    assert ended["Loop ratio"] == {"": pytest.approx(fleet["loop_ratio"])}
    assert ended["Success rate"] == {"": pytest.approx(fleet["success_rate"])}
    assert ended["Interventions"] == {"stop": fleet["interventions"]["stop"]}
    outcomes = Counter(one["outcome"] for one in on_page.values())
    assert {name: n for name, n in ended["Runs ended, by outcome"].items() if n} == outcomes
    assert ended["Loop onsets"]["loop"] == 3  # the poller's is none
    assert ended["Running now"] == {"": 0}
    # and while a run loops
    loop = still["loop"]
    assert (loop["period"], loop["repeats"], loop["steps"]) == (2, 3, 6)
    assert during["Running now"] == {"": 1}
    assert during["Looping now"] == {"": 1.0}
    assert during["Most repeats now"] == {"open": loop["repeats"]}
    assert during["Loop repeats"] == {"": loop["repeats"]}
    assert during["Steps"] == {"": still["steps"]}
    assert during["Stale score"] == {"": still["stale"] or 0}
