"""What the live page costs: the history of a step, and the response to a poll."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from benchmarks.measure import Line, medians
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.exporters.page import Asked, LiveReading
from tidegauge.exporters.page.runs import read_fleet
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine, EventLog

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


def _run(event_log: Callable[[], EventLog | None]) -> Callable[[], None]:
    steps = _steps("r", STEPS, STEPS)

    def subject() -> None:
        sink = EngineSink(Engine(event_log=event_log()), Policy())
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
        issue, observe = sink.step_issued, sink.step_observed
        for step, outcome in steps:
            issue(step)
            observe(outcome)

    return subject


def _fleet() -> tuple[Engine, EventLog]:
    """As many active runs as one process may well have; one in 25 loops."""
    event_log = EventLog()
    engine = Engine(event_log=event_log)
    for number in range(RUNS):
        run = f"{number:032x}"
        engine.run_started(RunStarted(run=run, agent=f"agent {number % 20}", task_group="shop"))
        for step, outcome in _steps(run, STEPS_A_RUN, 3 if number % 25 == 0 else STEPS):
            engine.step_issued(step)
            engine.step_observed(outcome)
    return engine, event_log


def measure() -> list[Line]:
    """Ratio of the steps, milliseconds and kilobytes of an answer."""
    engine, event_log = _fleet()
    live = LiveReading(engine, event_log, digest=bytes.hex)
    asked = Asked(rows=ROWS, run=1)

    def answer() -> bytes:
        return orjson.dumps(live.read(asked))

    taken = medians(
        {
            "plain": _run(lambda: None),
            "watched": _run(EventLog),
            "fleet": lambda: read_fleet(engine.held(), spent={}),
            "answer": answer,
        }
    )
    extra = (taken["watched"] - taken["plain"]) / STEPS
    milliseconds = (taken["fleet"] + taken["answer"]) * 1_000
    return [
        Line("a step with the live page / without", taken["watched"] / taken["plain"]),
        Line("what the history of a step adds", extra * 1e6, "µs"),
        Line(f"a response to the page, {RUNS:,} active runs", milliseconds, "ms"),
        Line("its size", len(answer()) / 1_000, "kB"),
    ]
