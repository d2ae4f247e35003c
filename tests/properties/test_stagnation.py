"""The combined score: what its definition gives from a run's steps, at every moment of it."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import drawn_runs
from tidegauge.events import ABSENT, Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.policies import SCORES
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

from . import batch, streams

STAGNATION = SCORES["stagnation"]

requests = st.sampled_from(
    ["red shoes", "Red shoes, size 9", "shoes: red", "blue boots", "", "größe 9", "red red"]
)
results = st.tuples(
    st.sampled_from(["nothing found", "page 1", "page 2", ABSENT]),
    st.sampled_from([True, False, False, None]),
)
steps = st.tuples(st.sampled_from(["search", "click"]), requests, results)
walks = st.lists(st.tuples(steps, st.sampled_from([1, 1, 2, 4])), max_size=8).map(
    lambda stretches: [step for step, times in stretches for _ in range(times)]
)


def words(action: str, request: str) -> frozenset[Any]:
    return frozenset([f"@{action}", *re.findall(r"\w+", request.lower())])


def moments_of(walk, observed: int):
    """The moments of a run of which so many outcomes were observed."""
    received: list[Any] = []
    seen = set()
    for t, (action, request, (outcome, _)) in enumerate(walk):
        received.append(("issue", streams.chosen(t, words(action, request)), False))
        if t < observed and outcome is not ABSENT:
            received.append(("observe", t, outcome not in seen))
            seen.add(outcome)
    return received


def loop_repeats(walk) -> int:
    """States are the outcomes before; one that was not observed equals no other."""
    states: list[Any] = [f"unknown {t}" for t in range(len(walk) + 1)]
    for t, (_, _, (outcome, _)) in enumerate(walk):
        if outcome is not ABSENT:
            states[t + 1] = outcome
    issued = [IssuedStep(t, states[t], walk[t][:2]) for t in range(len(walk))]
    return batch.loops(issued)["repeats"]


def trailing(values, of) -> int:
    count = 0
    for value in reversed(values):
        if not of(value):
            break
        count += 1
    return count


def expected(walk, observed: int) -> float:
    done = walk[:observed]
    repetition = batch.repetition(moments_of(walk, observed))
    streak = batch.result_streak(
        [
            ObservedStep(
                t,
                action=(action, request),  # type: ignore[arg-type]
                outcome=None if outcome is ABSENT else outcome,
                failed=error,
                negative=outcome == "nothing found",
            )
            for t, (action, request, (outcome, error)) in enumerate(done)
        ]
    )["value"]
    return (
        observed
        + 3 * repetition["total"]
        + 3 * repetition["current"]
        + loop_repeats(walk)
        + 0.5 * (streak or 0)
        + 0.5 * trailing([error for _, _, (_, error) in done], lambda error: error is True)
    )


@given(walks)
def test_it_is_what_its_definition_gives_at_every_prefix(walk):
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    for t, (action, request, (outcome, error)) in enumerate(walk):
        issued = engine.step_issued(Step("r", (Call(action, request),)))
        assert STAGNATION.read(issued) == pytest.approx(expected(walk[: t + 1], t))
        observed = engine.step_observed(Outcome("r", (CallResult(outcome, error),)))
        assert STAGNATION.read(observed) == pytest.approx(expected(walk[: t + 1], t + 1))
        assert observed.completed_steps == t + 1


@given(walks, st.data())
def test_an_outcome_that_comes_late_pays_off_its_own_action_alone(walk, data):
    """Every outcome once all actions were issued, in any order: repetition is as defined."""
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    moments: list[Any] = []
    seen = set()
    for t, (action, request, _) in enumerate(walk):
        engine.step_issued(Step("r", (Call(action, request),)))
        moments.append(("issue", streams.chosen(t, words(action, request)), False))
    for done, t in enumerate(data.draw(st.permutations(range(len(walk)))), 1):
        outcome, error = walk[t][2]
        signals = engine.step_observed(Outcome("r", (CallResult(outcome, error),), step=t))
        if outcome is not ABSENT:
            moments.append(("observe", t, outcome not in seen))
            seen.add(outcome)
        expected = batch.repetition(moments)
        assert signals.repetition == pytest.approx(expected["total"])
        assert signals.similarity == pytest.approx(expected["current"])
        assert signals.completed_steps == done


@given(st.lists(st.tuples(requests, st.sampled_from(["pending", "still pending"])), max_size=12))
def test_a_poller_within_its_allowance_adds_nothing(polls):
    engine = Engine(clock=None, repetition=True, declarations={"wait": ToolDeclaration(poll=99)})
    engine.run_started(RunStarted(run="r"))
    for request, outcome in polls:
        issued = engine.step_issued(Step("r", (Call("wait", request),)))
        assert STAGNATION.read(issued) == 0
        observed = engine.step_observed(Outcome("r", (CallResult(outcome, False),)))
        assert STAGNATION.read(observed) == 0


@given(drawn_runs.runs())
def test_it_never_falls_below_the_steps_that_were_completed(events):
    engine = Engine(clock=None, repetition=True)
    for event in events:
        signals = None
        if isinstance(event, Step):
            signals = engine.step_issued(event)
        elif isinstance(event, Outcome):
            signals = engine.step_observed(event)
        else:
            drawn_runs.feed(cast("Any", engine), event)
        if signals is not None:
            assert STAGNATION.read(signals) >= SCORES["steps"].read(signals)


def test_without_the_words_it_is_not_measured():
    engine = Engine(clock=None, repetition=False)
    engine.run_started(RunStarted(run="r"))
    signals = engine.step_issued(Step("r", (Call("look"),)))
    assert (signals.repetition, signals.similarity) == (None, None)
    assert STAGNATION.read(signals) is None
    assert STAGNATION.explain(signals) == ""
