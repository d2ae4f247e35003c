"""What the live page costs: a step that leaves its trail, and an answer to a page that looks."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from benchmarks.measure import Line, medians
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.exporters.page import Asked, LiveReading
from tidegauge.exporters.page.fleet import read_fleet
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Chronicle, Engine

STEPS = 2_000
RUNS = 1_000
STEPS_A_RUN = 60
ROWS = 18


def _steps(run: str, steps: int, states: int) -> list[tuple[Step, Outcome]]:
    return [
        (
            Step(run=run, calls=(Call("read_document", {"id": t % states, "page": 1}),), tokens=90),
            Outcome(run=run, results=(CallResult(f"{t % states:06d} " + "text " * 40, False),)),
        )
        for t in range(steps)
    ]


def _run(chronicle: Callable[[], Chronicle | None]) -> Callable[[], None]:
    steps = _steps("r", STEPS, STEPS)

    def subject() -> None:
        sink = EngineSink(Engine(chronicle=chronicle()), Policy())
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
        issue, observe = sink.step_issued, sink.step_observed
        for step, outcome in steps:
            issue(step)
            observe(outcome)

    return subject


def _fleet() -> tuple[Engine, Chronicle]:
    """As many active runs as one process may well have; one in 25 loops."""
    chronicle = Chronicle()
    engine = Engine(chronicle=chronicle)
    for number in range(RUNS):
        run = f"{number:032x}"
        engine.run_started(RunStarted(run=run, agent=f"agent {number % 20}", task_group="shop"))
        for step, outcome in _steps(run, STEPS_A_RUN, 3 if number % 25 == 0 else STEPS):
            engine.step_issued(step)
            engine.step_observed(outcome)
    return engine, chronicle


def measure() -> list[Line]:
    """Ratio of the steps, milliseconds and kilobytes of an answer."""
    engine, chronicle = _fleet()
    live = LiveReading(engine, chronicle, digest=bytes.hex)
    asked = Asked(rows=ROWS, run=1)

    def answer() -> bytes:
        return orjson.dumps(live.read(asked))

    taken = medians(
        {
            "plain": _run(lambda: None),
            "watched": _run(Chronicle),
            "fleet": lambda: read_fleet(engine.held()),
            "answer": answer,
        }
    )
    extra = (taken["watched"] - taken["plain"]) / STEPS
    milliseconds = (taken["fleet"] + taken["answer"]) * 1_000
    return [
        Line("a step with the live page / without", taken["watched"] / taken["plain"]),
        Line("what a step's trail adds", extra * 1e6, "µs"),
        Line(f"an answer to the page, {RUNS:,} active runs", milliseconds, "ms"),
        Line("its size", len(answer()) / 1_000, "kB"),
    ]
