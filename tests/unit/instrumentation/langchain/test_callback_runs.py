"""The map from callbacks to runs is bounded, and empty when its runs have ended."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from tidegauge import testing
from tidegauge.events import RunStarted
from tidegauge.instrumentation.langchain import callback_runs
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.instrumentation.langchain.callback_runs import CallbackRuns, Postponed
from tidegauge.runs import run_map


@pytest.fixture
def seen() -> Iterator[testing.Capture]:
    with testing.capture() as seen:
        yield seen


def opened(seen: testing.Capture, runs: CallbackRuns, root: UUID | None = None) -> AgentRun:
    root = root or uuid4()
    recorded = seen.pipeline.recorder.start_run(RunStarted(run=root.hex))
    run = AgentRun(root, recorded, {})
    runs.open(Scope(run))
    return run


def entered(runs: CallbackRuns, run: AgentRun) -> UUID:
    run_id = uuid4()
    runs.enter(run_id.int, Scope(run))
    return run_id


def test_what_is_open_is_found_and_what_has_ended_is_not(seen: testing.Capture) -> None:
    runs = CallbackRuns()
    root = uuid4()
    run = opened(seen, runs, root)
    inside = entered(runs, run)
    assert runs.scope_of(root).run is runs.scope_of(inside).run is run
    assert runs.scope_of(None) is None
    assert runs.leave(inside.int).run is run
    assert runs.leave(inside.int) is None
    entered(runs, run)
    runs.close(run)
    assert len(runs) == 0
    entered(runs, run)
    assert len(runs) == 0, "a run that has ended takes nothing in"
    assert not run.open_ids


def test_one_run_too_many_ends_the_one_idle_for_longest(seen: testing.Capture) -> None:
    runs = CallbackRuns(max_runs=2)
    first, second = opened(seen, runs), opened(seen, runs)
    entered(runs, second)
    runs.seen(first)
    third = opened(seen, runs)
    assert second.recorded.ended
    assert not first.recorded.ended
    assert not third.recorded.ended
    assert len(runs) == 2
    assert [span.attributes["tidegauge.outcome"] for span in seen.spans] == ["unknown"]


def test_runs_that_are_idle_for_too_long_are_ended(seen: testing.Capture) -> None:
    clock = testing.SteppedClock()
    runs = CallbackRuns(idle_seconds=60.0, clock=clock)
    idle, busy = opened(seen, runs), opened(seen, runs)
    clock.advance(50.0)
    runs.seen(busy)
    clock.advance(50.0)
    opened(seen, runs)
    assert idle.recorded.ended
    assert not busy.recorded.ended
    held: list[Any] = [busy, *runs._runs.values()]
    assert {report.run for report in seen.pipeline.engine.snapshot().active} == {
        run.recorded.id for run in held
    }


def test_what_never_ends_inside_a_run_is_bounded(
    seen: testing.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_map, "MAX_OPEN_IDS", 3)
    runs = CallbackRuns()
    run = opened(seen, runs)
    inside = [entered(runs, run) for _ in range(5)]
    assert len(runs) == 1 + 3
    assert [runs.scope_of(one) is not None for one in inside] == [False, False, True, True, True]


def test_a_run_that_is_postponed_is_opened_once_by_what_happens_first() -> None:
    runs = CallbackRuns()
    opened_at: list[str | None] = []
    first, second = uuid4(), uuid4()
    for root in (first, second):
        runs.postpone(root, Postponed(lambda checkpoint, agent: opened_at.append(checkpoint)))
    runs.open_postponed(first, "checkpoint")
    assert runs.scope_of(first) is None
    assert opened_at == ["checkpoint"]
    assert runs.scope_of(second) is None
    assert opened_at == ["checkpoint", None]


def test_a_run_without_a_name_keeps_its_checkpoint_until_its_first_chain() -> None:
    runs = CallbackRuns()
    opened_with: list[Any] = []
    roots = [uuid4() for _ in range(3)]
    for root in roots:
        runs.postpone(root, Postponed(lambda *given: opened_with.append(given), unnamed=True))
        runs.resume_postponed(root, "checkpoint")
    node = {"langgraph_node": "seeker"}
    runs.name_postponed(roots[0], {**node, "langgraph_triggers": ("__start__",)})
    runs.name_postponed(roots[1], {**node, "langgraph_triggers": ("branch:to:seeker",)})
    assert runs.scope_of(roots[2]) is None
    assert opened_with == [("checkpoint", "seeker"), ("checkpoint", None), ("checkpoint", None)]


def test_postponed_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_runs, "_MAX_POSTPONED", 2)
    runs = CallbackRuns()
    opened_for: list[int] = []
    roots = [uuid4() for _ in range(3)]
    for number, root in enumerate(roots):
        opening = partial(lambda number, *_: opened_for.append(number), number)
        runs.postpone(root, Postponed(opening))
    for root in roots:
        runs.open_postponed(root)
    assert opened_for == [1, 2]
