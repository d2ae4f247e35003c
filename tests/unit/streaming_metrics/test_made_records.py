"""Records that are made of a tuple at every step have all their fields."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Signals, Step
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run import Issued

STEP = Step("r", (Call("move", {"place": "hall 3"}),), tokens=7.0, entropy=0.5, time=10.0)
OUTCOME = Outcome("r", (CallResult("a hall", False),), progress=0.5, tokens=3.0, time=12.5)


def test_every_record_of_a_step_is_of_its_class_and_has_all_its_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine()
    engine.run_started(RunStarted(run="r", agent="a", task_group="g"))
    records: list[Any] = []
    for metric in (Loops, ResultStreak):
        update = metric.update

        def taken(self, step, update=update):
            records.append(step)
            update(self, step)

        monkeypatch.setattr(metric, "update", taken)
    records.append(engine.digester.step(STEP))
    records.append(engine.digester.outcome(OUTCOME))
    records.append(engine.step_issued(STEP))
    records.append(Issued(*engine.get("r").open_steps[0]))
    records.append(engine.step_observed(OUTCOME))

    kinds = [DigestedStep, DigestedOutcome, IssuedStep, Signals, Issued, ObservedStep, Signals]
    assert [type(record) for record in records] == kinds
    assert all(len(record) == len(type(record)._fields) for record in records)


def test_what_was_reported_is_found_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.run_started(RunStarted(run="r", agent="a", task_group="g"))
    observed: list[ObservedStep] = []
    monkeypatch.setattr(ResultStreak, "update", lambda self, step: observed.append(step))

    issued = engine.step_issued(STEP)
    waiting = Issued(*engine.get("r").open_steps[0])
    engine.step_observed(OUTCOME)

    assert (issued.run, issued.agent, issued.tool) == ("r", "a", "move")
    assert (issued.task_group, issued.tokens, issued.completed_steps) == ("g", 7.0, 0)
    assert (waiting.name, waiting.tokens, waiting.entropy, waiting.time) == ("move", 7.0, 0.5, 10.0)
    (step,) = observed
    assert (step.t, step.calls, step.failed, step.tokens) == (0, 1, False, 10.0)
    assert (step.seconds, step.progress, step.entropy) == (2.5, 0.5, 0.5)
    assert (step.looped, step.place, step.tasks) == (False, None, ())
