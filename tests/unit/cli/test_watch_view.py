"""The live table of ``tidegauge watch``: what is left and done, where there is room for it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tidegauge.cli.watch_view import WatchView
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, Task
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.policies import Policy, Rule


@pytest.mark.parametrize(("width", "wide"), [(110, True), (109, False)])
def test_what_is_left_is_shown_where_there_is_room(width: int, wide: bool) -> None:
    pipeline = Pipeline(Settings(), serve=False)
    try:
        view = WatchView(pipeline, Policy(), contents=False)
        view._console = Console(width=width, file=io.StringIO())
        sink = pipeline.recorder.sink
        for agent in ("codex", "bare"):
            sink.run_started(RunStarted(run=agent, agent=agent, conversation="session"))
            sink.step_issued(Step(agent, (Call("look"),)))
        seen = Outcome("codex", (CallResult("a, b"),), place="src", exits=("a", "b"))
        sink.step_observed(seen._replace(tasks=(Task("fix"),), progress=0.75))
        sink.step_observed(Outcome("bare", (CallResult("no"),)))
        with view._console.capture() as captured:
            view._console.print(view._frame())
    finally:
        pipeline.shutdown()
    shown = captured.get()
    [row] = [line.split() for line in shown.splitlines() if line.startswith("codex")]
    [bare] = [line.split() for line in shown.splitlines() if line.startswith("bare")]
    assert ("frontier" in shown) == wide
    assert ("75%" in row) == wide
    assert len(row) - len(bare) == (3 if wide else 0)
    assert "…" not in shown


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut_of_what_the_policy_did_and_would_have_done(width: int) -> None:
    rules = [Rule("steps", 2, "nudge"), Rule("loop_repeats", 1, "block"), Rule("steps", 6, "stop")]
    pipeline = Pipeline(Settings(rules=tuple(rules)), serve=False)
    try:
        view = WatchView(pipeline, Policy(rules), contents=False)
        view._console = Console(width=width, file=io.StringIO())
        sink = pipeline.recorder.sink
        for agent, observed in (("copilot", False), ("mini-swe-agent", True)):
            started = RunStarted(run=agent, agent=agent, conversation="0123456789")
            sink.run_started(replace(started, observe_only=observed))
            for _ in range(7):
                sink.step_issued(Step(agent, (Call("look"),), blockable=True))
                sink.step_observed(Outcome(agent, (CallResult("no"),)))
        with view._console.capture() as captured:
            view._console.print(view._table(view._live.runs))
    finally:
        pipeline.shutdown()
    shown = captured.get()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    words = " ".join(shown.split())
    for name in ("copilot", "mini-swe-agent", "01234567", "rounds", "state", "stopped"):
        assert name in words
    assert ("novelty" in words) == (width == 120)
    assert "(would)" in words
    assert words.count("refused 4,") == words.count("stopped 1") == 2
