"""The engine says of loops, streaks and failed rounds what their plain definitions say.

``benchmarks/guards/reference.py`` has the definitions, written by another hand than the engine and
than ``batch.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.guards.agents import AGENTS, Agent
from benchmarks.guards.reference import (
    Taken,
    empty_streak,
    failed_rounds,
    looping,
    preset,
    stretches,
    stuck_streak,
)
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import ABSENT, Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.policies import guard_rules
from tidegauge.streaming_metrics import Engine

GOLDEN = Path(__file__).parents[1] / "golden" / "live_loops.jsonl"
NOTHING = ("", [], "no results found")

Given = tuple[str, str, Any, bool | None, Any]  # tool, arguments, result, failed, state

steps = st.tuples(
    st.sampled_from(["search", "read", "append"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["page 1", "page 2", "denied", *NOTHING]),
    st.sampled_from([True, False, False, None]),
    st.sampled_from([ABSENT, ABSENT, ABSENT, "here", "there"]),
)
parts = st.lists(st.tuples(st.lists(steps, min_size=1, max_size=7), st.integers(1, 5)), max_size=6)
"""Cycles, each with a number of rounds: independent steps would hardly ever loop."""


def taken(step: Given) -> Taken:
    tool, arguments, result, failed, state = step
    return Taken(
        action=(tool, arguments),
        result=json.dumps(result),
        failed=failed,
        state=None if state is ABSENT else ("reported", state),
        empty=result in NOTHING,
        changed=tool == "append" and not failed,
    )


def expected(walk: list[Taken]) -> list[Any]:
    known = any(step.failed is not None for step in walk)
    loop = looping(walk)[-1]
    return [
        *(loop.period, loop.repeats, pytest.approx(loop.evidence)),
        stuck_streak(walk),
        empty_streak(walk),
        failed_rounds(walk) if known else None,
    ]


def play(walk: list[Given]) -> tuple[Engine, list[list[Any]]]:
    engine = Engine(
        clock=None, normaliser=None, declarations={"append": ToolDeclaration(mutates=True)}
    )
    engine.run_started(RunStarted(run="r"))
    found = []
    for tool, arguments, result, failed, state in walk:
        issued = engine.step_issued(Step("r", (Call(tool, arguments),), state))
        observed = engine.step_observed(Outcome("r", (CallResult(result, failed),)))
        assert issued is not None
        assert observed is not None
        loop = [issued.loop_period, issued.loop_repeats, issued.loop_evidence]
        rest = [observed.stuck_streak, observed.empty_streak, observed.failed_rounds]
        found.append([*loop, *rest])
    return engine, found


@examples(3)
@given(parts)
def test_the_engine_at_every_step(walks: list[tuple[list[Given], int]]) -> None:
    walk = [step for cycle, rounds in walks for _ in range(rounds) for step in cycle]
    engine, found = play(walk)
    known = [taken(step) for step in walk]
    for t, numbers in enumerate(found):
        assert numbers == expected(known[: t + 1])
    run = engine.get("r")
    assert run is not None
    assert [tuple(loop) for loop in run.report().loops] == stretches(known)


def test_the_reference_equals_the_golden_vectors() -> None:
    for line in GOLDEN.read_text().splitlines():
        run = json.loads(line)
        walk = [
            Taken(action, state=(t, "unknown") if state is None else state)
            for t, (state, action) in enumerate(zip(run["states"], run["actions"], strict=True))
        ]
        loops = looping(walk)
        assert [loop.period for loop in loops] == run["period"]
        assert [loop.repeats for loop in loops] == run["repeats"]
        assert [loop.evidence for loop in loops] == pytest.approx(run["evidence"], abs=1e-5)
        assert [stretch._asdict() for stretch in stretches(walk)] == run["loops"]


def in_order(agent: Agent) -> bool:
    return not any(turn.late for turn in agent.turns())


@pytest.mark.parametrize(
    "agent", [pytest.param(one, id=name) for name, one in AGENTS.items() if in_order(one)]
)
def test_the_preset_of_everyday_agents(agent: Agent) -> None:
    """Compared exactly, with several calls in a turn, without tools that only think, or wait."""
    engine = Engine(clock=None, normaliser=None, detect_polls=False)
    engine.run_started(RunStarted(run="r"))
    walk = []
    stopped = None
    rules = [rule for rule in guard_rules("stuck") if rule.action == "stop"]
    for turn in agent.turns()[:60]:
        if turn.calls[0].tool == "think":
            continue
        calls = tuple(Call(call.tool, call.arguments) for call in turn.calls)
        results = [CallResult(call.result, call.failed) for call in turn.calls]
        issued = engine.step_issued(Step("r", calls))
        observed = engine.step_observed(Outcome("r", tuple(results)))
        for moment in (issued, observed):
            for rule in rules:
                value = rule.value(moment)
                if stopped is None and value is not None and value >= rule.threshold:
                    stopped = (rule.signal, len(walk))
        pairs = sorted(
            (json.dumps([call.tool, call.arguments]), json.dumps(call.result))
            for call in turn.calls
        )
        walk.append(
            Taken(
                tuple(action for action, _ in pairs),
                tuple(result for _, result in pairs),
                all(call.failed for call in turn.calls),
            )
        )
    assert (preset(walk) or [None])[:2] == (stopped or [None])
