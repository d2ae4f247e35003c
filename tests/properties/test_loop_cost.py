"""What loops cost, as a batch, at every prefix of a run whose results come late, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.records import IssuedStep
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start
from tidegauge.streaming_metrics.step_history import EventLog

from . import batch, streams

MAX_STEPS = 24


class Spent(NamedTuple):
    """A step of a script: what it is, and what it reports when."""

    state: bytes
    action: bytes
    at_issue: float | None
    at_result: float | None
    seconds: float | None


@st.composite
def scripts(draw: Any) -> tuple[list[Spent], list[int]]:
    """Steps, and when each is issued (its index) and has its result (-1 - its index), if ever."""
    amounts = streams.amounts()
    pairs = draw(streams.pairs())[:MAX_STEPS]
    steps = [
        Spent(state, action, draw(amounts), draw(amounts), draw(amounts)) for state, action in pairs
    ]
    moments: list[int] = []
    waiting: list[int] = []
    for t in range(len(steps)):
        moments.append(t)
        waiting.append(t)
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 4]))):
            if waiting:
                moments.append(-1 - waiting.pop(draw(st.sampled_from([-1, -1, 0]))))
    return steps, moments


def looping_steps(steps: Sequence[Spent]) -> tuple[set[int], int]:
    """The loop steps so far, and the first one of the loop that the run is in; -1, none."""
    issued = [IssuedStep(t, step.state, step.action) for t, step in enumerate(steps)]
    flags = batch.loop_flags(issued)
    return {t for t, looped in enumerate(flags) if looped}, batch.loops(issued)["first_step"]


def costs(steps: Sequence[Spent], observed: set[int], own: set[int]) -> tuple[Any, ...]:
    """Steps, tokens and seconds of these steps, as far as they were reported."""
    tokens = [steps[t].at_issue for t in own] + [steps[t].at_result for t in own if t in observed]
    seconds = [steps[t].seconds for t in own if t in observed]
    return len(own), total(tokens), total(seconds)


def total(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def made() -> Engine:
    return Engine(clock=None, event_log=EventLog())


def moved(engine: Engine) -> Engine:
    """Another engine that holds the run, which came as JSON."""
    run = engine.get("r")
    assert run is not None
    state = orjson.loads(orjson.dumps(save_run(run)))
    other = made()
    other.run_started(saved_start(state))
    found = other.get("r")
    assert found is not None
    load_run(found, state)
    return other


@examples(1)
@given(scripts(), st.data())
def test_the_cost_of_loops_is_counted_from_their_first_repeated_step(
    script: tuple[list[Spent], list[int]], data: Any
) -> None:
    steps, moments = script
    moves = data.draw(st.integers(0, len(moments)), label="moves after")
    engine = made()
    engine.run_started(RunStarted(run="r"))
    issued, observed, looped, first = 0, set[int](), set[int](), -1
    for count, moment in enumerate(moments):
        if count == moves:
            engine = moved(engine)
        if moment >= 0:
            step = steps[moment]
            call = Call(step.action.decode())
            engine.step_issued(Step("r", (call,), step.state.decode(), tokens=step.at_issue))
            issued += 1
            looped, first = looping_steps(steps[:issued])
        else:
            t = -1 - moment
            step, result = steps[t], (CallResult("same"),)
            engine.step_observed(
                Outcome("r", result, t, tokens=step.at_result, seconds=step.seconds)
            )
            observed.add(t)
        run = engine.get("r")
        assert run is not None
        report = run.report()
        lost = (report.loop_steps, report.lost_tokens, report.lost_seconds)
        assert lost == costs(steps, observed, looped)
        totals = run.totals
        assert (sum(totals.loop_steps.values()), totals.loop_tokens, totals.loop_seconds) == tuple(
            amount or 0 for amount in lost
        )
        current = {t for t in looped if t >= first} if first >= 0 else set[int]()
        cost = (report.loop_cost_steps, report.loop_cost_tokens, report.loop_cost_seconds)
        assert cost == costs(steps, observed, current)
        assert report.loop_first_step == (first if first >= 0 else None)
        signals = run.signals()
        assert cost == (
            signals.loop_cost_steps,
            signals.loop_cost_tokens,
            signals.loop_cost_seconds,
        )
        if moves > count and run.history is not None:  # a history does not move
            marked = {step.step for step in run.history.steps() if step.looped}
            assert marked == looped
