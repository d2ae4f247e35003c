"""One number, one meaning: what a few runs cost is the same wherever it is read."""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import json
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegauge
from support.servers import SharedPrometheus
from tidegauge import ToolDeclaration
from tidegauge.cli.main import cli
from tidegauge.policies import Rule
from tidegauge.testing import Capture, capture

pytestmark = pytest.mark.system

SERIES = {
    "steps": "tidegauge_steps_total",
    "loop_steps": "tidegauge_loop_steps_total",
    "lost_steps": "tidegauge_lost_steps_total",
    "lost_tokens": "tidegauge_loop_tokens_total",
    "lost_seconds": "tidegauge_loop_seconds_total",
}
LOST = ("steps", "tokens", "seconds")


def step(run: tidegauge.Run, tool: str, result: str | None, **arguments: Any) -> None:
    """A step of 10 tokens for its choice, and 5 for its result."""
    run.act(tool, arguments, tokens=10)
    if result is not None:
        run.observe(result, tokens=5)


def fixture_runs() -> None:
    """A loop that ends in the middle of a round, a stop at an onset, and what is no loop."""
    with tidegauge.run(agent="looper", run_id="looper") as run:
        for turn in range(10):
            where = ("hall", "attic", "cellar")[turn % 3]
            step(run, "go", where, to=where)
        run.act("go", {"to": "attic"}, tokens=10)  # has no result
        run.finish(success=False)
    with (
        contextlib.suppress(tidegauge.RunStopped),
        tidegauge.run(agent="stopped", run_id="stopped") as run,
    ):
        for _ in range(9):
            step(run, "search", "nothing", query="red shoes")
    with tidegauge.run(agent="poller", run_id="poller") as run:
        for _ in range(6):
            step(run, "status", "building", job=7)
        step(run, "status", "done", job=7)
        run.finish(success=True)
    with tidegauge.run(agent="rewording", run_id="rewording") as run:
        for number in range(6):
            step(run, "search", f"nothing for {number}", query=f"red shoes size {number}")
        run.finish(success=False)
    with tidegauge.run(agent="outer", run_id="outer") as outer:
        step(outer, "plan", "two parts")
        with tidegauge.run(agent="inner", run_id="inner") as inner:
            for _ in range(3):
                step(inner, "look", "dust")
            inner.finish(success=True)
        step(outer, "answer", "done")
        outer.finish(success=True)


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
    settings: dict[str, Any] = {
        "rules": [Rule("loop_repeats", 1, "stop", agent="stopped")],
        "tools": {"status": ToolDeclaration(poll=10)},
        "record_to": recording,
    }
    with capture(serve_metrics=True, metrics_port=prometheus.port, **settings) as seen:
        fixture_runs()
        totals = scraped(str(seen.pipeline.metrics_url))
        fleet, on_page = shown(seen)
        for name, series in SERIES.items():
            prometheus.wait_for(
                f"sum({series})",
                functools.partial(_is, totals[name]),
            )
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
    assert set(spans) == set(entries) == set(on_page) == set(in_report)
    for run, entry in entries.items():
        lost = [entry["lost_in_loops"][name] for name in LOST]
        span, shown_run, reported_run = spans[run], on_page[run], in_report[run]
        assert lost[:2] == [shown_run[f"lost_{name}"] for name in LOST[:2]], run
        assert lost == [reported_run[f"lost_{name}"] for name in LOST], run
        assert lost[:2] == [span.get(f"tidegauge.loop.lost_{name}") for name in LOST[:2]], run
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
    assert entries["looper"]["loop_steps"] == 6  # complete repetitions
    assert entries["stopped"]["lost_in_loops"] == {"steps": 1, "tokens": 10, "seconds": None}
    assert entries["rewording"]["lost_in_loops"]["steps"] == 0
    sums = {
        "steps": sum(entry["steps"] for entry in entries.values()),
        "loop_steps": sum(entry["loop_steps"] for entry in entries.values()),
        **{
            f"lost_{name}": sum(entry["lost_in_loops"][name] or 0 for entry in entries.values())
            for name in LOST
        },
    }
    assert totals == {name: pytest.approx(value, abs=1e-3) for name, value in sums.items()}
    assert (fleet["steps"], fleet["lost_steps"], fleet["lost_tokens"]) == (
        totals["steps"],
        totals["lost_steps"],
        totals["lost_tokens"],
    )
    assert fleet["loop_ratio"] == pytest.approx(totals["loop_steps"] / totals["steps"])
