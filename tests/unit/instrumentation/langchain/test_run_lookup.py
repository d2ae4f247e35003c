"""The map from callbacks to runs is bounded, and empty when its runs have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tidegauge import testing
from tidegauge.events import RunStarted
from tidegauge.instrumentation import run_map
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope, WaitingKey
from tidegauge.instrumentation.langchain.run_lookup import CallbackRuns


@pytest.fixture
def seen() -> Iterator[testing.Capture]:
    with testing.capture() as seen:
        yield seen


def key(thread: str) -> WaitingKey:
    return thread, "agent", "", None


def opened(
    seen: testing.Capture, runs: CallbackRuns, root: UUID | None = None, thread: str | None = None
) -> AgentRun:
    root = root or uuid4()
    recorded = seen.pipeline.recorder.start_run(RunStarted(run=root.hex))
    run = AgentRun(root, recorded, {}, key=None if thread is None else key(thread))
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
    assert runs.scope_of(root) == runs.scope_of(inside) == Scope(run)
    assert runs.scope_of(None) is None
    assert runs.leave(inside.int) == Scope(run)
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
    monkeypatch.setattr(run_map, "_MAX_OPEN_IDS", 3)
    runs = CallbackRuns()
    run = opened(seen, runs)
    inside = [entered(runs, run) for _ in range(5)]
    assert len(runs) == 1 + 3
    assert [runs.scope_of(one) is not None for one in inside] == [False, False, True, True, True]


def test_a_run_that_waits_is_held_without_its_ids(seen: testing.Capture) -> None:
    runs = CallbackRuns()
    root = uuid4()
    run = opened(seen, runs, root, thread="one")
    inside = entered(runs, run)
    assert runs.wait(run) is None
    assert (len(runs), runs.waiting) == (0, 1)
    assert runs.scope_of(root) is runs.scope_of(inside) is None
    assert runs.take_waiting(key("two")) is None
    assert runs.take_waiting(key("one")) is run
    assert runs.take_waiting(key("one")) is None
    assert not run.held
    assert not runs._runs


def test_of_two_runs_that_wait_at_one_place_the_later_one_is_resumed(
    seen: testing.Capture,
) -> None:
    runs = CallbackRuns()
    first, second = (opened(seen, runs, thread="one") for _ in range(2))
    runs.wait(first)
    assert runs.wait(second) is first
    assert runs.waiting == 1
    assert runs.take_waiting(key("one")) is second


def test_a_run_without_a_thread_and_one_that_has_ended_do_not_wait(seen: testing.Capture) -> None:
    runs = CallbackRuns()
    run, ended = opened(seen, runs), opened(seen, runs, thread="one")
    runs.close(ended)
    assert runs.wait(run) is runs.wait(ended) is None
    assert runs.waiting == 0


def test_runs_that_wait_are_ended_like_the_others(seen: testing.Capture) -> None:
    clock = testing.SteppedClock()
    runs = CallbackRuns(max_runs=2, idle_seconds=60.0, clock=clock)
    first, second = (opened(seen, runs, thread=thread) for thread in "ab")
    for run in (first, second):
        runs.wait(run)
    opened(seen, runs)
    assert first.recorded.ended
    assert not second.recorded.ended
    assert not runs.is_idle(second)
    assert runs.waiting == 1
    clock.advance(61.0)
    assert runs.is_idle(second)
    opened(seen, runs)
    assert second.recorded.ended
    assert runs.waiting == 0
