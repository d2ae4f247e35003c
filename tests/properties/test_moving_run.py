"""A run that moves to another engine in the middle goes on as if it had stayed."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.drawn_runs import one_run
from support.examples import examples
from tidegauge.events import Answer, Call, CallResult, Outcome, RunEnded, RunStarted, Step, Task
from tidegauge.streaming_metrics import Engine, RunReport
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.saved_run import _Saved, load_run, save_run, saved_start
from tidegauge.streaming_metrics.snapshot import Group
from tidegauge.streaming_metrics.totals import Totals

PLACES = st.sampled_from(["hall", "attic", ("cell", 2), ("cell", 3)])
TASKS = st.sampled_from([(), (Task("t1"),), (Task("t2", (("t1",),)),)])


@st.composite
def walks(draw: Any) -> list[Any]:
    """A run that reports where it is, what it finds there and what it recalls."""
    started = RunStarted(
        run="r", agent="a", place=draw(st.none() | PLACES), tasks=draw(TASKS), goal="t2", t_max=9
    )
    events: list[Any] = [started]
    for t in range(draw(st.integers(0, 10))):
        if draw(st.booleans()):
            said = draw(st.sampled_from(["a", "b"]))
            events.append(Answer("r", said, "seen", messages=t, tokens=3))
        uses = draw(st.sampled_from([(), ("order",)]))
        events.append(Step("r", (Call("go", t % 3),), uses=uses, mentions=("order",), entropy=0.5))
        events.append(
            Outcome(
                "r",
                (CallResult("seen", error=draw(st.booleans())),),
                place=draw(st.none() | PLACES),
                exits=draw(st.none() | st.lists(PLACES, max_size=2, unique=True).map(tuple)),
                tasks=draw(TASKS),
                achieved=draw(st.sampled_from([(), ("t1",)])),
                progress=draw(st.sampled_from([None, 0.5])),
                seconds=2.0,
            )
        )
    return [*events, RunEnded(run="r", success=draw(st.booleans()))]


def engine() -> Engine:
    return Engine(clock=None, features=True)


def happen(engine: Engine, event: Any) -> Any:
    match event:
        case RunStarted():
            return engine.run_started(event)
        case Step():
            return engine.step_issued(event)
        case Outcome():
            return engine.step_observed(event)
        case Answer():
            return engine.answered(engine.digester.answer(event), full=True)
        case RunEnded():
            return engine.run_ended(event)


def moved(run: MeasuredRun) -> Engine:
    """Another engine that holds the run, which came as JSON."""
    state = orjson.loads(orjson.dumps(save_run(run)))
    other = engine()
    other.run_started(saved_start(state))
    found = other.get(run.started.run)
    assert found is not None
    load_run(found, state)
    return other


def comparable(report: RunReport) -> dict[str, Any]:
    """Everything that a report says."""
    return report.as_dict()


@examples(3)
@given(st.one_of(one_run("r"), walks()), st.data())
def test_a_run_that_moved_goes_on_as_if_it_had_stayed(events: list[Any], data: Any) -> None:
    first = engine()
    at = data.draw(st.integers(1, len(events) - 1), label="moves before event")
    for event in events[:at]:
        happen(first, event)
    run = first.get("r")
    assert run is not None
    second = moved(run)
    again = second.get("r")
    assert again is not None
    assert save_run(again) == save_run(run)
    assert comparable(again.report()) == comparable(run.report())
    for event in events[at:]:
        assert happen(second, event) == happen(first, event)


@examples(0.5)
@given(one_run("r"))
def test_it_shares_nothing_with_the_run_it_was_taken_of(events: list[Any]) -> None:
    first = engine()
    for event in events[:-1]:
        happen(first, event)
    run = first.get("r")
    assert run is not None
    before = copy.deepcopy(save_run(run))
    second = moved(run)
    for event in events[1:]:
        happen(second, event)
    assert save_run(run) == before


def test_every_field_of_a_run_moves_or_belongs_to_its_engine() -> None:
    engines_own = {
        "_absent",
        "_counted_at",
        "_entries",
        "_going_on",
        "_plans",
        "actions",
        "agent_name",
        "baseline",
        "detects_polls",
        "ended",
        "faults",
        "group",
        "history",
        "last_seen",
        "lock",
        "settings",
    }
    moved = {*_Saved._fields, "started", "policy", "saved_policy"}
    assert moved | engines_own == set(MeasuredRun.__slots__)


DEEP: Any = 1
for _ in range(2_000):
    DEEP = {"~tuple": [DEEP]}
SAVED_WITH_TEXT = {
    "_Saved": {
        "metrics": [[4, []]],
        "steps": ["many"],
        "totals": {"Totals.1": [0]},
        "latest": {"StepSignals": [0]},
    },
    "Totals.1": {"": 1},
    "StepSignals": {
        "run": ["r"],
        "step": [0],
        "action_digest": [None],
        "state_digest": [None],
    },
}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"version": 4},
        {"version": 1},
        {"version": 1, "started": 7},
        {"version": 1, "started": {"~dict": [["run", "r"]]}},
        {"version": 9},
        {"version": 9, "started": 7, "state": [5, {}], "policy": None},
        {"version": 9, "state": [{"_Saved": 0}, {"_Saved": {"steps": [3]}}], "policy": None},
        {"version": 9, "state": [{"_Saved": 0}, SAVED_WITH_TEXT], "policy": None},
        {"version": 5, "state": [], "policy": None},
        {"version": 5, "started": DEEP, "latest": DEEP, "metrics": {}, "policy": None},
    ],
)
def test_what_is_no_state_is_refused(broken: dict[str, Any]) -> None:
    holder = engine()
    holder.run_started(RunStarted(run="r"))
    run = holder.get("r")
    assert run is not None
    with pytest.raises(ValueError, match="state"):
        load_run(run, broken)


def counters(engines: list[Engine]) -> dict[str, Any]:
    """What the engines count together, group by group."""
    found: dict[Any, Any] = {}
    for snapshot in [engine.snapshot() for engine in engines]:
        for group in snapshot.groups:
            started, totals, finished = found.setdefault(group.key, (0, Totals(), Group()))
            totals.add(group.totals)
            finished.merge(group.finished)
            found[group.key] = (started + group.runs_started, totals, finished)
    return {
        str(key): (
            started,
            {name: comparable_count(getattr(totals, name)) for name in Totals.__slots__},
            finished.finished,
            [rounded(metric) for metric in finished.metrics.values()],
            comparable_count(finished.histograms["run_steps"]),
        )
        for key, (started, totals, finished) in found.items()
    }


def rounded(value: Any) -> Any:
    """What a metric keeps without what goes by the order of runs: last digits, and order itself."""
    if isinstance(value, Stateful):
        return {name: rounded(getattr(value, name)) for name in value._slots()}
    if isinstance(value, float):
        return round(value, 9) + 0.0
    if isinstance(value, dict):
        return sorted([[key, rounded(item)] for key, item in value.items()], key=repr)
    return list(map(rounded, value)) if isinstance(value, list | tuple | deque) else value


def comparable_count(value: Any) -> Any:
    if isinstance(value, Buckets):
        return (value.counts, value.total)
    return {k: v for k, v in value.items() if v} if isinstance(value, dict) else value


@examples(2)
@given(st.lists(st.one_of(one_run("r"), walks()), min_size=1, max_size=3), st.data())
def test_counters_of_all_engines_add_up_wherever_runs_went(drawn: Any, data: Any) -> None:
    alone, several = engine(), [engine(), engine(), engine()]
    for number, events in enumerate(drawn):
        at = 0
        run = f"r{number}"
        past: list[Any] = []
        for event in events:
            renamed = (
                replace(event, run=run)
                if isinstance(event, RunStarted | RunEnded)
                else event._replace(run=run)
            )
            assert happen(several[at], renamed) == happen(alone, renamed)
            past.append(renamed)
            after = data.draw(st.sampled_from([at, at, 0, 1, 2]), label="goes to")
            if after != at and not isinstance(event, RunEnded):
                several[at].detach(run)
                take_again(several[after], past, lambda: check(several, alone))
                at = after
            if data.draw(st.integers(0, 5)) == 0:
                check(several, alone)
    check(several, alone)


def check(several: list[Engine], alone: Engine) -> None:
    assert counters(several) == counters([alone])


def take_again(engine: Engine, past: list[Any], check: Callable[[], None]) -> None:
    """A run moves by its events: they are reported once more, and count nowhere."""
    started, *rest = past
    assert engine.restore(started)
    for event in rest:
        happen(engine, event)
    check()
    engine.restored(started.run)


def test_no_counter_falls_when_a_run_goes() -> None:
    first, second = engine(), engine()
    past: list[Any] = [RunStarted(run="r", agent="a")]
    for _ in range(6):
        past += [Step("r", (Call("look"),)), Outcome("r", (CallResult("nothing"),), seconds=1.0)]
    for event in past:
        happen(first, event)
    first.detach("r")
    take_again(second, past, lambda: None)
    [here], [there] = first.snapshot().groups, second.snapshot().groups
    assert (here.runs_started, here.totals.steps, here.active) == (1, 6, [])
    assert (there.runs_started, there.totals.steps, len(there.active)) == (0, 0, 1)
    assert there.active[0].steps == 6
    second.step_issued(Step("r", (Call("look"),)))
    assert second.snapshot().groups[0].totals.steps == 1


def test_a_run_that_is_open_is_not_replaced_and_one_that_left_takes_no_steps() -> None:
    first, second = engine(), engine()
    for one in (first, second):
        one.run_started(RunStarted(run="r"))
    first.detach("r")
    first.detach("r")
    assert not second.restore(RunStarted(run="r"))
    assert first.step_issued(Step("r", (Call("late"),))) is None
    assert first.snapshot().dropped_events == 1
