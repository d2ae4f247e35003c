"""Observers: what they learn, and that they hurt neither the agent nor one another."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import CallBlocked, RunStopped
from tidegauge.events import (
    Call,
    CallResult,
    Decision,
    Outcome,
    RunEnded,
    RunObserver,
    RunStarted,
    Step,
)
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.policies import Rule
from tidegauge.safety.guard import internal_errors

ROOT = Path(__file__).parents[2]
RULES = (Rule("loop_repeats", 1, "block"), Rule("loop_repeats", 2, "stop"))


class Listener(RunObserver):
    """Keeps what it learns."""

    name = "listener"

    def __init__(self, also: Callable[[], object] = lambda: None) -> None:
        self.events: list[Any] = []
        self._also = also

    def _keep(self, *event: Any) -> None:
        self._also()
        self.events.append(event)

    def run_started(self, event: RunStarted) -> None:
        self._keep("start", event.run, event.task)

    def step_issued(self, event: Step, decision: Decision) -> None:
        self._keep("issued", event.calls[0].action, decision.signals.step, decision.action)

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        self._keep("observed", event.results[0].outcome, decision.signals.step, decision.action)

    def run_ended(self, event: RunEnded) -> None:
        self._keep("end", event.run, event.outcome, event.reason)


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline(Settings(rules=RULES, max_runs=2), serve=False)
    yield made
    made.shutdown()


def loop(pipeline: Pipeline, run: str = "r") -> list[Decision]:
    """A run that repeats itself; what it is answered."""
    sink, answers = pipeline.recorder.sink, []
    sink.run_started(RunStarted(run=run, task="find"))
    for _ in range(3):
        answers.append(sink.step_issued(Step(run, (Call("look"),), blockable=True)))
        if not answers[-1].block:
            answers.append(sink.step_observed(Outcome(run, (CallResult("none"),))))
    sink.run_ended(RunEnded(run=run, outcome="stopped", reason="loop"))
    return answers


def test_an_observer_learns_what_the_engine_took(pipeline: Pipeline) -> None:
    listener = Listener()
    pipeline.observe(listener)
    loop(pipeline)
    assert listener.events == [
        ("start", "r", "find"),
        *[("issued", "look", 0, "go_on"), ("observed", "none", 0, "go_on")],
        *[("issued", "look", 1, "go_on"), ("observed", "none", 1, "go_on")],
        ("issued", "look", 2, "block"),
        ("end", "r", "stopped", "loop"),
    ]


def test_nothing_is_reported_of_what_the_engine_did_not_take(pipeline: Pipeline) -> None:
    listener, sink = Listener(), pipeline.recorder.sink
    pipeline.observe(listener)
    sink.step_issued(Step("unknown", (Call("look"),)))
    sink.step_observed(Outcome("unknown", (CallResult("none"),)))
    sink.run_ended(RunEnded(run="unknown"))
    assert listener.events == []


def test_the_end_of_a_run_that_made_room_is_reported(pipeline: Pipeline) -> None:
    listener, sink = Listener(), pipeline.recorder.sink
    pipeline.observe(listener)
    for run in ("one", "two", "three"):
        sink.run_started(RunStarted(run=run))
    assert [event[:2] for event in listener.events] == [
        *[("start", "one"), ("start", "two")],
        *[("end", "one"), ("start", "three")],
    ]


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("broken"),
        RunStopped("another", step=1, reason="steps", message="it is long"),
        CallBlocked("look", advice="do something else"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_fails_in_an_observer_is_counted_and_hurts_nobody(
    pipeline: Pipeline, faults_are_swallowed: None, fault: Exception
) -> None:
    def fails() -> None:
        raise fault

    expected = loop(pipeline, "alone")
    listener, before = Listener(), internal_errors.counts().get("listener", 0)
    pipeline.observe(Listener(fails))
    pipeline.observe(listener)
    answers = loop(pipeline)
    assert [(one.action, one.reason) for one in answers] == [
        (one.action, one.reason) for one in expected
    ]
    assert len(listener.events) == 2 + len(answers)
    assert internal_errors.counts()["listener"] - before == len(listener.events)


def test_no_lock_of_the_run_is_held_meanwhile(pipeline: Pipeline) -> None:
    """Else an observer that waits for another thread could wait for ever."""
    free: list[bool] = []

    def try_lock() -> None:
        run = pipeline.engine.get("r")
        lock = measured if run is None else run.lock
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    def elsewhere() -> None:
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()

    sink = pipeline.recorder.sink
    sink.run_started(RunStarted(run="r"))
    measured = pipeline.engine.get("r").lock
    pipeline.observe(Listener(elsewhere))
    sink.step_issued(Step("r", (Call("look"),)))
    sink.step_observed(Outcome("r", (CallResult("none"),)))
    sink.run_ended(RunEnded(run="r"))
    assert free == [True] * 3


def test_nothing_replaces_the_sink_of_a_recorder() -> None:
    """Who stands before it would measure under another lock, in another order."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "tests", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if ".sink" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr == "sink"
        and isinstance(node.ctx, ast.Store)
        and "recorder" in ast.unparse(node.value)
    ]
    assert found == []
