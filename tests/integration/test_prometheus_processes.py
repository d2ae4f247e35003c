"""A real Prometheus and several processes: the sums that ``docs/fleets.md`` asks for are those of
a replay of all their recordings together; exemplars lead to traces."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from support.grafana import panels
from support.processes import without_otel
from support.prometheus import Prometheus, free_port, scraping
from tidegauge.cli.main import cli

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[2] / "docs" / "fleets.md"
WORKERS = [("shopper", "shop"), ("shopper", "shop"), ("coder", "repository")]
FINISHED = [5, 6, 8]  # runs of each worker
OPEN = [1, 2, 3]  # and those that have not ended
RUNS = sum(FINISHED) + sum(OPEN)

# As a server that forks its workers does it: each of them is configured after the fork.
PROGRAM = """
import contextvars, json, os, pathlib, random, sys
import tidegauge
from opentelemetry.sdk.trace import TracerProvider
from tidegauge.events import Task

folder, workers, finished = pathlib.Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
TASKS = {(1, 1): [Task("chest", (("key",),))], (2, 2): [Task("key", ((),))]}

def configured():
    pipeline = tidegauge.configure(
        metrics_port=0,
        record_to=folder / "runs-{pid}.jsonl",
        tracer_provider=TracerProvider(shutdown_on_exit=False),
    )
    target = pipeline.metrics_url.removeprefix("http://").removesuffix("/metrics")
    found = folder / "targets" / f"{os.getpid()}.json"
    found.with_suffix(".new").write_text(json.dumps([{"targets": [target]}]))
    found.with_suffix(".new").replace(found)
    return pipeline

def beside(place):
    x, y = place
    found = [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)]
    return [place for place in found if 0 <= min(place) and max(place) < 3]

def walk(run, chance, steps):
    ways = [(0, 0)]
    for t in range(steps):
        # at last it goes to and fro
        ways.append(chance.choice(beside(ways[-1])) if t < steps - 6 else ways[-2])
        run.act("go", {"to": ways[-1]})
        seen = {"exits": beside(ways[-1]), "tasks": TASKS.get(ways[-1], ())}
        run.observe(f"at {ways[-1]}", place=ways[-1], **seen)

def agents(number):
    agent, task_group = workers[number]
    chance = random.Random(number)
    start = {"agent": agent, "task_group": task_group, "place": (0, 0), "exits": beside((0, 0))}
    for attempt in range(finished[number]):
        arm = ("on", "off")[attempt % 2]
        with tidegauge.run(**start, memory=arm, t_max=20, goal="chest") as run:
            walk(run, chance, 7 + attempt + number)
            run.finish(success=chance.random() < 0.6)
    opened = []  # a run that is freed ends
    for still in range(number + 1):
        opened.append(contextvars.Context().run(tidegauge.run(**start).__enter__))
        walk(opened[-1], chance, 8 + 2 * still)
    return opened

configured()  # what the parent has before it forks does not disturb
children = []
for number in range(len(workers)):
    going, stop = os.pipe()
    child = os.fork()
    if not child:
        os.close(stop)
        pipeline = configured()
        opened = agents(number)
        os.read(going, 1)  # until it is to end, or the parent is gone
        os._exit(0)
    os.close(going)
    children.append((child, stop))
def end_one():
    child, stop = children.pop()
    os.close(stop)
    os.waitpid(child, 0)

for line in sys.stdin:
    end_one()
while children:
    end_one()
"""


class Fleet(NamedTuple):
    """Processes with all their runs reported, what watches them, and the replay of all recordings.

    Attributes:
        complete: when all was scraped, and no process was gone; in seconds of the epoch.
    """

    prometheus: Prometheus
    complete: float
    processes: subprocess.Popen[str]
    recordings: list[Path]
    replayed: dict[str, Any]

    def total(self, key: str, of: str | None = None, **labels: str) -> float:
        """The sum of a number of all replayed runs, or of those with these labels."""
        found = [run for run in self.replayed["runs"] if labels.items() <= run.items()]
        return sum(run[key] if of is None else run[key][of] for run in found)

    @property
    def active(self) -> list[dict[str, Any]]:
        """The runs without an end."""
        return [run for run in self.replayed["runs"] if not run["finished"]]

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The others."""
        return [run for run in self.replayed["runs"] if run["finished"]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """All that was recorded."""
        for path in self.recordings:
            yield from map(json.loads, path.read_text().splitlines())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Processes that end when the tests do, once all that they count was scraped."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "targets").mkdir()
    program = [sys.executable, "-W", "ignore", "-u", "-c", PROGRAM]
    processes = subprocess.Popen(
        [*program, str(folder), json.dumps(WORKERS), json.dumps(FINISHED)],
        stdin=subprocess.PIPE,
        text=True,
        env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    )
    try:
        with scraping(None, folder, flags=["--enable-feature=exemplar-storage"]) as prometheus:
            lines = RUNS + sum(FINISHED) + steps_of_all()
            prometheus.wait_for(
                "sum(tidegauge_recorded_lines_total)",
                lambda found: found and found[0].value == lines,
            )
            recordings = [path for path in folder.glob("runs-*.jsonl") if path.stat().st_size]
            yield Fleet(prometheus, time.time(), processes, recordings, replay(recordings))
    finally:
        assert processes.stdin is not None
        processes.stdin.close()
        try:
            assert processes.wait(30) == 0
        finally:
            processes.kill()


def steps_of_all() -> int:
    """As many as the program takes."""
    return sum(
        sum(7 + attempt + number for attempt in range(FINISHED[number]))
        + sum(8 + 2 * still for still in range(OPEN[number]))
        for number in range(len(WORKERS))
    )


def replay(recordings: list[Path]) -> dict[str, Any]:
    """What ``tidegauge replay`` says of all recordings in one go."""
    files = map(str, recordings)
    ran = CliRunner().invoke(cli, ["replay", "--json", "--strict", *files])
    assert (ran.exit_code, ran.stderr) == (0, "")
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def documented() -> dict[str, str]:
    """The queries of the page's first part, by the comment above each."""
    first, _, _ = DOCS.read_text().partition("\n## One Kafka")
    [block] = re.findall(r"```promql\n(.*?)```", first, re.DOTALL)
    queries = (one.removeprefix("# ").split("\n", 1) for one in block.split("\n\n"))
    return {title: query.strip() for title, query in queries}


def of_groups(fleet: Fleet, value: Callable[..., float]) -> dict[tuple[str, ...], float]:
    """A number of each pair of agent and task group, by these labels."""
    return {(a, g): value(agent=a, task_group=g) for a, g in set(WORKERS)}


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def loop_ratio(fleet: Fleet, **labels: str) -> float:
    return fleet.total("loop_steps", **labels) / fleet.total("steps", **labels)


def auv(fleet: Fleet) -> float:
    """Of all groups and arms, which replay reports one by one."""
    reported = [group for group in fleet.replayed["groups"] if group["auv"] is not None]
    return sum(group["auv"] * group["runs"] for group in reported) / sum(
        g["runs"] for g in reported
    )


def error_rates(fleet: Fleet) -> dict[tuple[str, ...], float]:
    kinds = ("exploration", "exploitation")
    return {(kind,): fleet.total("errors", kind) / fleet.total("required", kind) for kind in kinds}


EXPECTED: dict[str, Callable[[Fleet], float | dict[tuple[str, ...], float]]] = {
    "Loop ratio": loop_ratio,
    "Loop ratio by agent and task group": lambda fleet: of_groups(
        fleet, lambda **labels: loop_ratio(fleet, **labels)
    ),
    "Success rate": lambda fleet: mean(run["success"] for run in fleet.finished),
    "Share of runs solved within 10 turns": lambda fleet: mean(
        run["success"] and run["steps"] <= 10 for run in fleet.finished
    ),
    "AUV": auv,
    "Memory index": lambda fleet: {
        (index["task_group"],): index["value"] for index in fleet.replayed["memory_index"]
    },
    "Exploration and exploitation error": error_rates,
    "Mean duration of a step, in seconds": lambda fleet: mean(
        line["seconds"] for line in fleet.lines() if line["type"] == "step"
    ),
    "Mean steps of a finished run": lambda fleet: mean(run["steps"] for run in fleet.finished),
    "Share of active runs that are in a loop": lambda fleet: mean(
        bool(run["loops"]) for run in fleet.active
    ),
    "Highest stale score of active runs": lambda fleet: max(
        run["stale_score"] for run in fleet.active
    ),
    "Mean stale score of active runs": lambda fleet: mean(
        run["stale_score"] for run in fleet.active
    ),
    "Loop ratio, including ended processes": loop_ratio,
}


def test_every_query_of_the_page_is_asked() -> None:
    assert EXPECTED.keys() == documented().keys()


def asked(
    fleet: Fleet, title: str, *, at: float | None = None
) -> float | dict[tuple[str, ...], float]:
    """What Prometheus says: one number, or by the values of labels in the query's order.

    Args:
        fleet: whom.
        title: what the query is called.
        at: when; left out, when all processes were there.
    """
    query = documented()[title]
    found = fleet.prometheus.query(query, at=fleet.complete if at is None else at)
    if by := re.search(r"by \((.+?)\)", query):
        labels = by[1].split(", ")
        return {tuple(one.labels[label] for label in labels): one.value for one in found}
    [one] = found
    return one.value


@pytest.mark.parametrize("title", EXPECTED)
def test_what_the_page_asks_is_what_the_replay_of_all_says(title: str, fleet: Fleet) -> None:
    expected = EXPECTED[title](fleet)
    for value in expected.values() if isinstance(expected, dict) else [expected]:
        assert value, "a number that is 0 anyhow shows nothing"
    # seconds are counted in grains of a millionth
    approximate = pytest.approx(expected, rel=1e-9, abs=1e-6 if "seconds" in title else 0)
    assert asked(fleet, title) == approximate


def test_the_dashboard_weights_the_stale_scores_by_active_runs(fleet: Fleet) -> None:
    [panel] = [
        panel
        for parameter in panels()
        for panel in parameter.values
        if panel["title"] == "Stale score of active runs"
    ]
    queries = {target["legendFormat"]: target["expr"] for target in panel["targets"]}
    for stat, title in (("max", "Highest"), ("mean", "Mean")):
        query = re.sub(r"\$\w+", ".*", queries[stat])
        expected = EXPECTED[f"{title} stale score of active runs"](fleet)
        assert fleet.prometheus.value(query, at=fleet.complete) == pytest.approx(expected), stat


def test_what_is_counted_is_what_was_recorded(fleet: Fleet) -> None:
    steps = fleet.total("steps")
    assert (steps, len(fleet.replayed["runs"])) == (steps_of_all(), RUNS)
    for expression, expected in {
        "sum(tidegauge_runs_started_total)": RUNS,
        "sum(tidegauge_runs_active)": sum(OPEN),
        "sum(tidegauge_steps_total)": steps,
        "sum(tidegauge_loop_steps_total)": fleet.total("loop_steps"),
        "sum(tidegauge_step_duration_seconds_count)": steps,
        "sum(tidegauge_dropped_lines_total)": 0,
    }.items():
        assert fleet.prometheus.value(expression, at=fleet.complete) == expected, expression


@pytest.mark.parametrize("title", ["AUV", "Success rate"])
def test_the_mean_of_what_each_process_says_is_another_number(title: str, fleet: Fleet) -> None:
    """Why the page says to divide the counters."""
    gauges = {"AUV": "tidegauge_auv", "Success rate": "tidegauge_success_rate"}
    single = fleet.prometheus.value(f"avg({gauges[title]})", at=fleet.complete)
    assert single is not None
    assert single != pytest.approx(asked(fleet, title), rel=1e-3)


def test_exemplars_are_traces_of_runs(fleet: Fleet) -> None:
    traces = {line["trace_id"] for line in fleet.lines() if line["type"] == "start"}
    assert len(traces) == RUNS
    now = time.time()
    for metric in ("tidegauge_loops_total", "tidegauge_step_duration_seconds_bucket"):
        found = fleet.prometheus.get(
            "/api/v1/query_exemplars", query=metric, start=str(now - 600), end=str(now + 60)
        )
        shown = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
        assert shown
        assert shown <= traces


def test_a_process_that_is_gone_counts_where_the_page_says_so(fleet: Fleet) -> None:
    """It ends a process: others ask for what was before that."""
    assert fleet.processes.stdin is not None
    title = "Loop ratio, including ended processes"
    before = asked(fleet, title)
    fleet.processes.stdin.write("\n")
    fleet.processes.stdin.flush()
    fleet.prometheus.wait_for("count(up == 0)", lambda found: found and found[0].value == 1)
    now = time.time()
    assert asked(fleet, title, at=now) == before
    assert asked(fleet, "Loop ratio", at=now) != pytest.approx(before)


ON_ONE_PORT = """
import logging, sys
import tidegauge

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
agent, port, folder = sys.argv[1:]
pipeline = tidegauge.configure(metrics_port=int(port), metrics_targets=folder)
with tidegauge.run(agent=agent) as run:
    run.act("look")
    run.observe("dust")
print(pipeline.metrics_url, flush=True)
sys.stdin.read()
"""


def test_two_agents_that_are_given_one_port_are_both_scraped(tmp_path: Path) -> None:
    port, targets = free_port(), tmp_path / "targets"
    with contextlib.ExitStack() as stack:
        urls = []
        for agent in ("first", "second"):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", ON_ONE_PORT, agent, str(port), str(targets)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=without_otel(),
                )
            )
            stack.callback(process.stdin.close)
            said = []
            while not said or not said[-1].startswith("http"):
                line = process.stdout.readline()
                assert line
                said.append(line.strip())
            urls.append(said[-1])
            in_use = f"tidegauge: port {port} is in use, so the metrics are at {urls[-1]}; "
            assert said[:-1] == [f"{in_use}Prometheus finds them in {targets}"] * (len(urls) - 1)
        assert urls[0] == f"http://127.0.0.1:{port}/metrics" != urls[1]
        prometheus = stack.enter_context(scraping(None, tmp_path))
        found = prometheus.wait_for("tidegauge_steps_total", lambda found: len(found) == 2)
        scraped = {one.labels["agent"]: one.labels["instance"] for one in found}
        hosts = [url.removeprefix("http://").removesuffix("/metrics") for url in urls]
        assert scraped == dict(zip(("first", "second"), hosts, strict=True))
        assert [one.value for one in found] == [1.0, 1.0]
    assert list(targets.iterdir()) == []
