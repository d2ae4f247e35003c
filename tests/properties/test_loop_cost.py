"""What loops cost, as a batch, at every prefix of a run whose results come late, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.event_log import EventLog
from tidegauge.streaming_metrics.records import IssuedStep
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

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


def looping_steps(steps: Sequence[Spent]) -> list[range]:
    """Of each loop, the steps from its first repeated one on, for as long as the cycle goes on."""
    pairs = [(step.state, step.action) for step in steps]
    issued = [IssuedStep(t, *pair) for t, pair in enumerate(pairs)]
    found = []
    for first, period, repeats in batch.loops(issued)["loops"]:
        end = first + period * repeats
        while end < len(pairs) and pairs[end] == pairs[end - period]:
            end += 1
        found.append(range(first, end))
    return found


def costs(
    steps: Sequence[Spent], observed: set[int], loops: Sequence[range], exempt: set[int]
) -> tuple[Any, ...]:
    """Steps, tokens and seconds of these loops, as far as they were reported.

    Steps that may repeat cost nothing.
    """
    own = [t for loop in loops for t in loop if t not in exempt]
    tokens = [steps[t].at_issue for t in own] + [steps[t].at_result for t in own if t in observed]
    seconds = [steps[t].seconds for t in own if t in observed]
    return len(own), total(tokens), total(seconds)


def total(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def made() -> Engine:
    poller = ToolDeclaration(poll=2)
    return Engine(clock=None, event_log=EventLog(), declarations={"x": poller})


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
    issued, observed, loops, exempt = 0, set[int](), list[range](), set[int]()
    for count, moment in enumerate(moments):
        if count == moves:
            engine = moved(engine)
        if moment >= 0:
            step = steps[moment]
            call = Call(step.action.decode())
            engine.step_issued(Step("r", (call,), step.state.decode(), tokens=step.at_issue))
            issued += 1
            loops = looping_steps(steps[:issued])
            now = engine.get("r")
            if now is not None and now.report().exempt_steps:
                exempt.add(moment)
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
        lost = (report.lost_steps, report.lost_tokens, report.lost_seconds)
        assert lost == costs(steps, observed, loops, exempt)
        totals = run.totals
        assert (totals.lost_steps, totals.loop_tokens, totals.loop_seconds) == tuple(
            amount or 0 for amount in lost
        )
        current = loops[-1:] if loops and loops[-1].stop == issued else []
        cost = (report.loop_cost_steps, report.loop_cost_tokens, report.loop_cost_seconds)
        assert cost == costs(steps, observed, current, exempt)
        assert report.loop_first_step == (current[0].start if current else None)
        signals = run.signals()
        assert cost == (
            signals.loop_cost_steps,
            signals.loop_cost_tokens,
            signals.loop_cost_seconds,
        )
        if moves > count and run.history is not None:  # a history does not move
            marked = {step.step for step in run.history.steps() if step.looped}
            assert marked - exempt == {t for loop in loops for t in loop} - exempt
