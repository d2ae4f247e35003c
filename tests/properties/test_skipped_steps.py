"""Steps that only wait or think: for every signal, it is as if they had not been there.

Every signal that the registry knows is asked, so that a new one cannot forget them.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Signals, Step, ToolDeclaration
from tidegauge.pipeline.engine_sink import EngineSink
from tidegauge.policies import Policy, Rule
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.registry import SIGNALS

TOOLS = {
    "job": ToolDeclaration(poll=10_000),
    "note": ToolDeclaration(thinks=True),
    "append": ToolDeclaration(mutates=True),
}
ASKED = [name for name, signal in SIGNALS.items() if not signal.of_skipped]

steps = st.tuples(
    st.sampled_from(["search", "read", "append"]),
    st.sampled_from(["red shoes", "red shoes, size 9", "blue hats"]),
    st.sampled_from(["nothing found", "page 1", "page 2", "denied"]),
    st.sampled_from([True, False, None]),
)
waits = st.tuples(
    st.sampled_from(["job", "think", "note"]),
    st.sampled_from(["red shoes", "blue hats"]),
    st.sampled_from(["running", "done", "page 1"]),
    st.sampled_from([True, False, None]),
)


class Played:
    """An engine with one run."""

    def __init__(self) -> None:
        self.engine = Engine(clock=None, repetition=True, declarations=TOOLS)
        self.engine.run_started(RunStarted(run="r"))

    def play(self, *calls: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        """Every signal as the step is issued and as it is observed."""
        chosen = tuple([Call(tool, request) for tool, request, _, _ in calls])
        results = tuple([CallResult(result, failed) for _, _, result, failed in calls])
        issued = self.engine.step_issued(Step("r", chosen))
        observed = self.engine.step_observed(Outcome("r", results))
        return asked(issued), asked(observed)


def asked(signals: Signals | None) -> list[Any]:
    assert signals is not None
    found = [getattr(signals, name) for name in ASKED]
    return [round(one, 9) if isinstance(one, float) else one for one in found]


@examples(2)
@given(st.lists(st.tuples(st.lists(waits, max_size=4), steps), max_size=14))
def test_every_signal_is_that_of_the_run_without_them(
    walk: list[tuple[list[tuple[Any, ...]], tuple[Any, ...]]],
) -> None:
    plain, waiting = Played(), Played()
    before: list[Any] | None = None
    for between, step in walk:
        for one in between:
            issued, observed = waiting.play(one)
            assert issued == observed
            assert before is None or observed == before
        expected = plain.play(step)
        assert waiting.play(step) == expected
        before = expected[1]


thoughts = st.tuples(
    st.sampled_from(["think", "note"]),
    st.sampled_from(["red shoes", "blue hats", "green coats"]),
    st.sampled_from(["", "noted", "nothing found"]),
    st.sampled_from([True, False, None]),
)


@examples(2)
@given(
    st.lists(
        st.tuples(
            st.lists(thoughts, max_size=2),
            st.lists(steps, min_size=1, max_size=2),
            st.lists(thoughts, max_size=2),
        ),
        max_size=14,
    )
)
def test_every_signal_is_that_of_the_turns_without_their_thoughts(
    walk: list[tuple[list[tuple[Any, ...]], ...]],
) -> None:
    plain, thinking = Played(), Played()
    of_texts = ASKED.index("near_streak")  # read where a result stands alone
    for before, calls, after in walk:
        for one, other in zip(
            plain.play(*calls), thinking.play(*before, *calls, *after), strict=True
        ):
            one[of_texts] = other[of_texts] = None
            assert one == other


def test_thoughts_count_exactly_where_the_paper_s_number_is() -> None:
    played = Played()
    for n in range(6):
        played.play(("think", f"hm {n}", "", False), ("search", "x", "nothing found", False))
    run = played.engine.get("r")
    assert run is not None
    report = run.report()
    assert (report.steps, report.loop_steps, report.tide_loop_steps) == (6, 4, 0)


def first_repeated(walk: list[tuple[Any, ...]]) -> int:
    return next((n for n, step in enumerate(walk) if n and step == walk[n - 1]), len(walk))


@given(st.lists(waits, min_size=1, max_size=8))
def test_no_rule_acts_on_a_step_that_waits(walk: list[tuple[Any, ...]]) -> None:
    """Also where the signal of its rule still holds from the step before."""
    rules = [
        Rule(name, 0.5 if SIGNALS[name].threshold != "whole" else 1, action)
        for name in ASKED
        for action in ("nudge", "stop")
        if not SIGNALS[name].falls
    ]
    engine = Engine(clock=None, repetition=True, declarations=TOOLS)
    sink = EngineSink(engine, Policy(rules))
    sink.run_started(RunStarted(run="r"))
    for tool, request, result, failed in walk:
        decisions = (
            sink.step_issued(Step("r", (Call(tool, request),), blockable=True)),
            sink.step_observed(Outcome("r", (CallResult(result, failed),))),
        )
        assert [decision.action for decision in decisions] == ["go_on", "go_on"]


def test_they_are_counted_where_steps_are() -> None:
    played = Played()
    for _ in range(6):
        played.play(("job", "x", "running", False))
    run = played.engine.get("r")
    assert run is not None
    report = run.report()
    assert (report.steps, report.skipped_steps, report.tide_loop_steps) == (6, 6, 4)
    assert (report.loop_steps, report.loop_ratio) == (0, 0)
    assert not math.isnan(report.loop_ratio)
