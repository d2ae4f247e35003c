"""The metrics in servers of somebody else: ASGI, WSGI, a registry; and faults in each of them."""

from __future__ import annotations

import asyncio
import random
from wsgiref.util import setup_testing_defaults

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

import tidegauge
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters import reading
from tidegauge.exporters.prometheus import TidegaugeCollector, asgi_app, wsgi_app
from tidegauge.exporters.reading import MAX_RUNS, Reader, read_families
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.declaration import Measured
from tidegauge.streaming_metrics.registry import METRICS
from tidegauge.testing import capture

ACTIVE = 'tidegauge_runs_active{agent="a",task_group=""} 1.0'
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def engine() -> Engine:
    """A run that is in a loop, with a trace."""
    engine = Engine()
    engine.run_started(RunStarted(run="r", agent="a", trace_id=TRACE, t_max=9, place="hall"))
    for _ in range(5):
        engine.step_issued(Step("r", (Call("look"),)))
        engine.step_observed(Outcome("r", (CallResult("nothing", True),), place="hall"))
    engine.intervened("r", "would_stop", "loop_repeats", 4)
    return engine


def asked(app: object, path: str = "/metrics", **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://agents") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/metrics", "/"])
def test_an_asgi_application_answers_a_scrape(engine: Engine, path: str) -> None:
    answer = asked(asgi_app(Reader(engine)), path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert ACTIVE in answer.text


def test_an_asgi_application_has_exemplars_and_filters(engine: Engine) -> None:
    answer = asked(asgi_app(Reader(engine)), accept=OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert f'trace_id="{TRACE}"' in answer.text
    assert list(parse_openmetrics(answer.text))
    filtered = asked(asgi_app(Reader(engine)), "/metrics?name[]=tidegauge_runs_active")
    assert [line for line in filtered.text.splitlines() if line[0] != "#"] == [ACTIVE]


def test_a_wsgi_application_answers_a_scrape(engine: Engine) -> None:
    transport = httpx.WSGITransport(app=wsgi_app(Reader(engine)))
    with httpx.Client(transport=transport, base_url="http://agents") as client:
        assert ACTIVE in client.get("/metrics").text
        answer = client.get("/", headers={"accept": OPENMETRICS})
        assert f'trace_id="{TRACE}"' in answer.text


def test_a_registry_of_your_own_shows_the_metrics_until_the_end() -> None:
    registry = CollectorRegistry()
    with capture(registry=registry) as seen, tidegauge.run(agent="a"):
        assert seen.pipeline.metrics_url is None
        assert ACTIVE in generate_latest(registry).decode()
    assert generate_latest(registry) == b""


class Broken:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name}")


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("table", ["OF_GROUPS", "OF_ARMS", "OF_RUNS"])
def test_a_fault_in_one_metric_costs_that_metric(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    def fails(subject: object) -> float:
        raise RuntimeError("out of order")

    whole = {family.metric for family in read_families(engine)}
    measured = getattr(reading, table)
    for one in measured:
        with_fault = [Measured(one.metric, fails) if other is one else other for other in measured]
        monkeypatch.setattr(reading, table, with_fault)
        left = {family.metric for family in read_families(engine)}
        assert left >= whole - {one.metric}
        assert one.metric not in left
    assert set(internal_errors.counts()) == {"exporters"}


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("broken", ["_by_labels", "_WITH_EXEMPLARS", "label_value", "_by_severity"])
def test_a_fault_within_never_makes_a_scrape_fail(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(reading, broken, Broken())
    for headers in ({}, {"accept": OPENMETRICS}):
        answer = asked(asgi_app(Reader(engine)), **headers)
        assert answer.status_code == 200
    assert internal_errors.counts()["exporters"] > 0
    registry = CollectorRegistry()
    registry.register(TidegaugeCollector(Reader(engine)))
    list(parse_openmetrics(generate_openmetrics(registry).decode()))


def bound(groups: int, actions: int, reasons: int, arms: int) -> int:
    """Series that an engine can have at most, whatever agents do."""
    values = {"action": actions + 1, "memory": arms + 2, "place": 1, "run": MAX_RUNS}
    total = 0
    for metric in METRICS:
        if "run" in metric.labels:
            total += MAX_RUNS
            continue
        each = 1
        for label in metric.labels:
            if label == "agent":
                each *= groups + 1  # with the task group it is one pair
            elif label in ("action", "memory") and metric.labels[-1] == label:
                each *= values[label]
            elif label == "reason":
                each *= reasons
            elif label == "action":
                each *= 4
        each *= max(len(metric.values), 1)
        total += each * (32 if metric.kind == "histogram" else 1)
        total += each * 16 if "operations" in metric.labels else 0
    return total


@pytest.mark.slow
def test_a_hostile_stream_has_no_more_series_than_were_allowed() -> None:
    """Every step is of a new run, agent, group, arm, tool, place and entity."""
    engine = Engine(max_groups=8, max_actions=5, max_runs=300)
    reasons = ("loop_repeats", "steps")
    draw = random.Random(1)
    counts = []
    for n in range(100_000):
        run = f"run {n}"
        start = RunStarted(
            run=run, agent=f"agent {n}", task_group=f"group {n}", memory=f"arm {n}", t_max=9,
            place=f"{n}/hall", exits=(f"{n}/attic",), operations=n, trace_id=f"{n:032x}",
        )  # fmt: skip
        engine.run_started(start)
        engine.step_issued(Step(run, (Call(f"tool {n}", {"n": n}),), uses=(f"key {n}",)))
        engine.step_observed(Outcome(run, (CallResult(n),), place=f"{n}/attic"))
        engine.intervened(run, "would_stop", reasons[n % 2], 0)
        if draw.random() < 0.5:
            engine.run_ended(RunEnded(run=run, success=n % 3 == 0))
        if n % 20_000 == 19_999:
            counts.append(series(engine))
    assert max(counts) <= bound(8, 5, len(reasons), 10)
    assert counts[-1] == counts[-2]  # it has stopped to grow


def series(engine: Engine) -> int:
    return sum(
        len(value.counts) + 2 if isinstance(value, Buckets) else 1
        for family in read_families(engine, place_label=str)
        for _, value in family.rows
    )


def test_setup_of_wsgi_is_what_servers_give(engine: Engine) -> None:
    environ: dict[str, object] = {"PATH_INFO": "/metrics", "QUERY_STRING": "name[]=tidegauge_steps"}
    setup_testing_defaults(environ)
    received: list[str] = []
    wsgi_app(Reader(engine))(environ, lambda status, headers, error=None: received.append(status))
    assert received == ["200 OK"]
