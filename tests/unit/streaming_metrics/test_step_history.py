"""The trail of a run and the event_log of an engine: what is kept, in which order, how much."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidegauge.events import (
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    ToolDeclaration,
)
from tidegauge.streaming_metrics import Engine, EventLog, StaleScore
from tidegauge.streaming_metrics.digested import MAX_CONTENT
from tidegauge.streaming_metrics.step_history import MAX_ENDED, MAX_EVENTS, MAX_STEPS, HistoryStep


class Watched:
    """An engine with a event_log, and one open run."""

    def __init__(self, *, contents: bool = False, **settings: object) -> None:
        self.event_log = EventLog(contents=contents, clock=lambda: 100.0)
        self.engine = Engine(event_log=self.event_log, **settings)  # type: ignore[arg-type]
        self.engine.run_started(RunStarted(run="r", agent="a"))

    def step(self, what: object, outcome: object = None, *, error: bool | None = None) -> None:
        self.engine.step_issued(Step("r", (Call("look", what),), tokens=10))
        result = CallResult(what if outcome is None else outcome, error)
        self.engine.step_observed(Outcome("r", (result,), seconds=0.5))

    def trail(self) -> list[HistoryStep]:
        run = self.engine.get("r")
        assert run is not None
        assert run.history is not None
        return run.history.steps()

    def logged(self) -> list[tuple[str, int, str]]:
        return [(one.what, one.step, one.why) for one in self.event_log.events()]


def test_a_step_has_what_was_measured_of_it() -> None:
    watched = Watched()
    watched.step("attic", error=True)
    watched.engine.step_issued(Step("r", (Call("go"), Call("look")), tokens=3))
    first, second = watched.trail()
    assert first._replace(action=b"", outcome=b"") == HistoryStep(
        0, "look", b"", False, True, b"", True, 10, 0.5
    )
    assert len(first.action) == len(first.outcome or b"") == 16
    assert (second.step, second.tool, second.observed, second.tokens) == (1, "go+look", False, None)


def test_the_last_steps_are_kept_in_order_and_late_outcomes_find_theirs() -> None:
    watched = Watched()
    for number in range(MAX_STEPS + 7):
        watched.engine.step_issued(Step("r", (Call("look", number),)))
    watched.engine.step_observed(Outcome("r", (CallResult("late"),), step=MAX_STEPS))
    watched.engine.step_observed(Outcome("r", (CallResult("too late"),), step=2))
    steps = watched.trail()
    assert [step.step for step in steps] == list(range(7, MAX_STEPS + 7))
    assert [step.step for step in steps if step.observed] == [MAX_STEPS]


def test_stale_scores_are_those_of_the_last_observed_steps() -> None:
    watched = Watched()
    for number in range(MAX_STEPS + 5):
        watched.step(number % 2)
    watched.engine.step_issued(Step("r", (Call("look"),)))
    run = watched.engine.get("r")
    assert run is not None
    assert run.history is not None
    scores = run.history.stale_scores()
    assert len(scores) == MAX_STEPS - 1
    assert scores[-1] == run.of(StaleScore).current
    assert scores == sorted(scores, key=lambda score: score or 0)


def test_the_steps_of_a_loop_are_marked_when_it_is_known() -> None:
    watched = Watched()
    for what in ("x", "a", "b", "c", "a", "b"):
        watched.step(what)
    assert not any(step.looped for step in watched.trail())
    watched.engine.step_issued(Step("r", (Call("look", "c"),)))
    watched.engine.step_observed(Outcome("r", (CallResult("c"),)))
    watched.engine.step_issued(Step("r", (Call("look", "a"),)))
    steps = watched.trail()
    assert [step.step for step in steps if step.looped] == [5, 6, 7]
    assert watched.logged() == [("loop", 7, "")]


def test_streaks_interventions_and_the_end_are_reported() -> None:
    watched = Watched()
    for number in range(3):
        watched.step(number, outcome="no such file", error=True)
    watched.engine.intervened("r", "would_stop", "failed_rounds", 2)
    watched.engine.intervened("r", "would_stop", "failed_rounds", 2)  # counted once, reported once
    watched.engine.intervened("r", "nudge", "result_streak", 2)
    watched.engine.run_ended(RunEnded(run="r", success=False))
    assert watched.logged() == [
        ("result_streak", 2, ""),
        ("failed_rounds", 2, ""),
        ("would_stop", 2, "failed_rounds"),
        ("nudge", 2, "result_streak"),
        ("ended", 3, "failure"),
    ]
    numbers = [one.number for one in watched.event_log.events()]
    assert numbers == [1, 2, 3, 4, 5]
    assert [one.number for one in watched.event_log.events(after=3)] == [4, 5]


def test_what_a_declared_poller_repeats_is_no_news() -> None:
    poller = ToolDeclaration(poll=timedelta(hours=1))
    watched = Watched(declarations={"look": poller})
    for _ in range(6):
        watched.step("is it done?", outcome="no")
    assert watched.logged() == []


def test_an_ended_run_leaves_its_trail_and_its_report_for_a_while() -> None:
    watched = Watched()
    watched.step("attic")
    run = watched.engine.get("r")
    assert run is not None
    assert run.history is not None
    number = run.history.number
    assert watched.event_log.ended(number) is None
    watched.engine.run_ended(RunEnded(run="r", success=True))
    ended = watched.event_log.ended(number)
    assert ended is not None
    assert (ended.report.outcome, [step.tool for step in ended.history.steps()]) == (
        "success",
        ["look"],
    )
    assert watched.event_log.spent_by_model()
    for other in range(MAX_ENDED):
        watched.engine.run_started(RunStarted(run=f"other {other}"))
        watched.engine.run_ended(RunEnded(run=f"other {other}"))
    assert watched.event_log.ended(number) is None


def test_what_is_kept_is_bounded() -> None:
    watched = Watched()
    for _ in range(MAX_EVENTS + 20):
        watched.engine.intervened("r", "nudge", "loop_repeats", 0)
    assert len(watched.event_log.events()) == MAX_EVENTS


@pytest.mark.parametrize("contents", [False, True])
def test_contents_are_kept_only_when_they_are_asked_for(contents: bool) -> None:
    watched = Watched(contents=contents)
    watched.step({"to": "ä" * 1_000}, outcome="\ud800 half, and more " * 100)
    step = watched.trail()[0]
    if not contents:
        assert (step.arguments, step.result) == (None, None)
        return
    assert step.arguments is not None
    assert step.arguments.startswith('{"to":"ää')
    assert len(step.arguments) == MAX_CONTENT
    assert step.result is not None
    assert len(step.result.encode()) <= 4 * MAX_CONTENT  # it can be written


def test_without_a_chronicle_nothing_is_kept() -> None:
    engine = Engine()
    engine.run_started(RunStarted(run="r"))
    run = engine.get("r")
    assert run is not None
    assert run.history is None
