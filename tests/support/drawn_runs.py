"""Runs as they may happen: loops, retries in other words, pollers, and outcomes that come late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    StepSink,
    ToolDeclaration,
)

Event: TypeAlias = RunStarted | Step | Outcome | RunEnded

_calls = st.sampled_from(
    [
        Call("search", {"query": "red shoes"}),
        Call("search", {"query": "red shoes size 9"}),
        Call("search", {"query": "blue boots"}),
        Call("click", '{"id": 7}'),
        Call("open", "sha:0123456789abcdef"),
        Call("wait", None, ToolDeclaration(poll=3)),
        Call("write", {"line": "x"}, ToolDeclaration(mutates=True)),
        Call("think"),
    ]
)
_outcomes = st.sampled_from(["nothing found", "page 1", "page 2", "error 404", ABSENT])
_amounts = st.sampled_from([None, 0.5, 3.0, 10.0])


@st.composite
def _scripted(draw: Callable[..., Any]) -> tuple[Step, Outcome]:
    calls = draw(st.lists(_calls, min_size=1, max_size=2))
    errors = st.sampled_from([False, False, True, None])
    results = tuple(CallResult(draw(_outcomes), draw(errors)) for _ in calls)
    state = draw(st.just(ABSENT) | st.sampled_from(["hall", "attic"]))
    issued = Step("", tuple(calls), state, draw(_amounts))
    return issued, Outcome("", results, tokens=draw(_amounts), seconds=draw(_amounts))


@st.composite
def one_run(draw: Callable[..., Any], run: str, *, late: bool = True) -> list[Event]:
    """A run that goes through a short script again and again.

    Args:
        draw: given by hypothesis.
        run: its id.
        late: whether outcomes may come after later steps, or never.
    """
    agents, groups = st.sampled_from(["a", "b"]), st.sampled_from(["", "shop"])
    events: list[Event] = [RunStarted(run=run, agent=draw(agents), task_group=draw(groups))]
    script = draw(st.lists(_scripted(), min_size=1, max_size=4))
    pace = st.sampled_from([1, 1, 1, 0, 2]) if late else st.just(1)
    waiting: list[Outcome] = []
    for t in range(draw(st.integers(0, 14))):
        issued, observed = script[t % len(script)]
        events.append(issued._replace(run=run))
        waiting.append(observed._replace(run=run, step=t))
        for _ in range(draw(pace)):
            if waiting:
                events.append(waiting.pop(draw(st.sampled_from([-1, -1, 0])) if late else 0))
    events.append(RunEnded(run=run, success=draw(st.sampled_from([True, False, None]))))
    return events


@st.composite
def runs(draw: Callable[..., Any], *, late: bool = True) -> list[Event]:
    """The events of up to three runs, as they happen beside each other."""
    left = [draw(one_run(f"r{n}", late=late)) for n in range(draw(st.integers(1, 3)))]
    happened: list[Event] = []
    while left:
        own = draw(st.sampled_from(left))
        happened += own[:3]
        del own[:3]
        left = [one for one in left if one]
    return happened


def feed(sink: StepSink, event: Event) -> Any:
    """Report an event; the answer is the sink's."""
    match event:
        case RunStarted():
            return sink.run_started(event)
        case Step():
            return sink.step_issued(event)
        case Outcome():
            return sink.step_observed(event)
        case RunEnded():
            return sink.run_ended(event)
