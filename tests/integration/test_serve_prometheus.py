"""A real Prometheus scrapes ``tidegauge serve`` while 200 runs are live.

What the queries of the docs say is what ``tidegauge replay`` says of the same steps.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.prometheus import Sample
from support.serve import Ports, Server, serving
from support.servers import SharedPrometheus
from support.wire_runs import ACTING, TOKENS, WireRun, batches, interleaved, step_events
from tidegauge.policies import DEFAULT_RULES

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"
RUNS = 200


class Watched(NamedTuple):
    """The server with all runs live, who watches it, and what replay says of their steps.

    Attributes:
        complete: when all was scraped, and no run was over; in seconds of the epoch.
    """

    server: Server
    prometheus: SharedPrometheus
    complete: float
    runs: list[WireRun]
    recording: Path
    replayed: list[dict[str, Any]]

    def query(self, expression: str) -> list[Sample]:
        """What a query found then."""
        return self.prometheus.query(expression, at=self.complete)

    def value(self, expression: str) -> float | None:
        """What a query of one series found then."""
        return self.prometheus.value(expression, at=self.complete)

    def total(self, key: str, agent: str | None = None) -> float:
        """The sum of a number of every replayed run."""
        return sum(run[key] for run in self.replayed if agent in (None, run["agent"]))


@pytest.fixture(scope="module")
def watched(
    prometheus: SharedPrometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("fleet")
    runs = [WireRun(number) for number in range(RUNS)]
    recording = directory / "runs.jsonl"
    recording.write_text(step_events(runs))
    # The same runs once before: ``rate`` needs a first value of every counter.
    before = [WireRun(number, wave=1) for number in range(RUNS)]
    with serving(directory, ports=Ports.free()._replace(metrics=prometheus.port)) as server:
        server.send(batches(interleaved([run.spans for run in before])))
        server.wait_for("tidegauge_runs_finished_total", lambda found: found == RUNS)
        prometheus.wait_for(
            "sum(tidegauge_runs_finished_total)", lambda found: found and found[0].value == RUNS
        )
        prometheus.forget()  # how they came: what it knows begins with what they came to
        prometheus.wait_for(
            "count_over_time(tidegauge_evicted_runs_total[1m])",
            lambda found: found and found[0].value >= 2,
        )
        server.send_grpc(batches(interleaved([run.inner for run in runs])))
        replayed = replay(recording)
        steps = sum(len(run.turns) for run in [*runs, *before])
        prometheus.wait_for(
            "sum(tidegauge_steps_total)", lambda found: found and found[0].value == steps
        )
        yield Watched(server, prometheus, time.time(), runs, recording, replayed)


def replay(recording: Path, *options: str) -> list[dict[str, Any]]:
    """Every run of ``tidegauge replay``."""
    program = "from tidegauge.cli.main import main; main()"
    command = [sys.executable, "-c", program, "replay", str(recording), "--json", *options]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return found


def query(title: str, number: int = 0) -> str:
    """The query of the docs that follows these words, or one after that."""
    _, found, rest = DOCS.read_text().partition(title)
    assert found, title
    return re.findall(r"```promql\n(.*?)```", rest, re.DOTALL)[number].strip()


def test_all_runs_are_live(watched: Watched) -> None:
    assert watched.value("sum(tidegauge_runs_active)") == RUNS
    assert watched.prometheus.scrape_error() == ""


RATIOS = {
    "Loop ratio": "loop_steps",
    "Cycle ratio": "tide_cycle_steps",
}


@pytest.mark.parametrize("title", RATIOS)
def test_the_ratios_of_the_docs_are_those_of_the_replay(title: str, watched: Watched) -> None:
    expected = watched.total(RATIOS[title]) / watched.total("steps")
    assert watched.value(query(title)) == pytest.approx(expected, rel=1e-9)
    by_agent = query(title).replace("sum(", "sum by (agent) (")
    found = {each.labels["agent"]: each.value for each in watched.query(by_agent)}
    agents = {run.agent for run in watched.runs}
    assert found == pytest.approx(
        {
            agent: watched.total(RATIOS[title], agent) / watched.total("steps", agent)
            for agent in agents
        },
        rel=1e-9,
    )


def test_the_share_of_looping_runs(watched: Watched) -> None:
    looping = [run for run in watched.replayed if run["loops"]]  # every script ends in its loop
    assert 0 < len(looping) < RUNS
    title = "Share of active runs that are in a loop now"
    assert watched.value(query(title)) == pytest.approx(len(looping) / RUNS)


def test_mean_seconds_and_the_tokens_of_loops(watched: Watched) -> None:
    assert watched.value(query("Mean and p95 of a step's duration, in seconds")) == pytest.approx(
        ACTING / 1e9
    )
    reported = watched.value("sum(tidegauge_loop_tokens_total)")
    assert reported == TOKENS * 2 * sum(run["lost_in_loops"]["steps"] for run in watched.replayed)
    found = watched.query(query("Tokens that loops cost within an hour"))
    assert {each.labels["agent"] for each in found} == {run.agent for run in watched.runs}


def test_the_runs_that_a_policy_would_have_stopped(watched: Watched) -> None:
    would_stop = watched.query(query("runs that a policy would have stopped", 1))
    found: dict[tuple[str, str], float] = {
        (each.labels["agent"], each.labels["reason"]): each.value for each in would_stop
    }
    expected: dict[tuple[str, str], float] = {}
    for rule in DEFAULT_RULES:
        policy = f"{rule.signal}={rule.threshold}"
        for run in replay(watched.recording, "--policy", policy):
            if run["stopped"] is not None:
                key = run["agent"], run["stopped"]["reason"]
                expected[key] = expected.get(key, 0) + 2
    assert expected
    assert found == expected


def test_the_quantile_of_the_docs(watched: Watched) -> None:
    title = "Mean and p95 of a step's duration, in seconds"
    found = watched.value(query(title, 1))
    assert found is not None
    assert 0 < found <= 2 * ACTING / 1e9


def test_exemplars_arrive_and_lead_to_their_traces(watched: Watched) -> None:
    """It ends the runs: others ask for what was before that."""
    watched.server.send(batches([run.root for run in watched.runs]))
    watched.prometheus.wait_for(
        "sum(tidegauge_runs_finished_total)",
        lambda found: found and found[0].value == 2 * RUNS,
    )
    watched.prometheus.wait_for("sum(tidegauge_runs_active)", lambda found: found[0].value == 0)
    known = {run.trace_id.hex() for run in watched.runs}
    known |= {WireRun(number, wave=1).trace_id.hex() for number in range(RUNS)}
    found = watched.prometheus.get(
        "/api/v1/query_exemplars",
        query="tidegauge_finished_run_steps_bucket",
        start=str(watched.prometheus.since),
        end=str(time.time() + 600),
    )
    traces = {each["labels"]["trace_id"] for series in found for each in series["exemplars"]}
    assert traces
    assert traces <= known
