"""Every key of a step event, every way in which a line can be wrong, and anything else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import StepEventError
from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.recordings.step_events import OpenStep, RecordedStep, parse_event, parse_line


def line(**event: Any) -> bytes:
    return json.dumps(event).encode()


def step(**keys: Any) -> bytes:
    return line(type="step", run="r", **keys)


def start(**keys: Any) -> bytes:
    return line(type="start", run="r", **keys)


def test_a_start_carries_every_key() -> None:
    event = parse_line(
        start(
            agent="browser",
            task="find it",
            task_group="shop",
            model="m-1",
            t_max=30,
            memory="on",
            operations=12,
            height=3,
            place=[0, 1],
            exits=[[0, 2], "door"],
            tasks=[{"id": "T0"}, {"id": ["T", 1], "requires": [["T0"], ["A", "B"]]}],
            goal=["T", 1],
            reach="anywhere",
            time="1970-01-01T00:01:00Z",
            something_new={"x": 1},
        )
    )
    assert event == RunStarted(
        run="r",
        agent="browser",
        task="find it",
        task_group="shop",
        model="m-1",
        t_max=30,
        memory="on",
        operations=12,
        height=3,
        place=(0, 1),
        exits=((0, 2), "door"),
        tasks=(Task("T0"), Task(("T", 1), (("T0",), ("A", "B")))),
        goal=("T", 1),
        reach="anywhere",
        time=60.0,
    )


def test_a_start_needs_no_more_than_its_run() -> None:
    bare = RunStarted(run="r")
    assert parse_line(start()) == bare
    nulls = dict.fromkeys(("agent", "task", "task_group", "t_max", "place", "exits", "tasks"))
    assert parse_line(start(**nulls)) == bare


def test_a_step_carries_every_key_in_its_two_moments() -> None:
    event = parse_line(
        step(
            state={"page": 1},
            action="click",
            args={"id": 7},
            outcome=["a", None],
            error=False,
            place="p",
            exits=[],
            tasks=[{"id": "T", "requires": []}],
            achieved=["T"],
            progress=0.5,
            mentions=["e1", [1, 2]],
            uses=["e2"],
            tokens=120,
            entropy=0.25,
            similarity=0.75,
            seconds=1.5,
            time="1970-01-01T00:00:10+00:00",
        )
    )
    assert event == RecordedStep(
        Step(
            run="r",
            calls=(Call("click", {"id": 7}),),
            state={"page": 1},
            tokens=120,
            entropy=0.25,
            similarity=0.75,
            uses=("e2",),
            mentions=("e1", (1, 2)),
            time=10.0,
        ),
        Outcome(
            run="r",
            results=(CallResult(["a", None], False),),
            place="p",
            exits=(),
            tasks=(Task("T"),),
            achieved=("T",),
            progress=0.5,
            seconds=1.5,
        ),
    )


def test_what_a_step_does_not_report_is_absent() -> None:
    event = parse_line(step(action="look"))
    assert event == RecordedStep(
        Step(run="r", calls=(Call("look"),)),
        Outcome(run="r", results=(CallResult(ABSENT, None),)),
    )


def test_null_is_an_outcome_and_no_state() -> None:
    event = parse_line(step(action="look", state=None, outcome=None))
    assert isinstance(event, RecordedStep)
    assert event.issued.state is ABSENT
    assert event.observed.results == (CallResult(None, None),)


def test_a_round_is_one_step_of_several_calls() -> None:
    event = parse_line(
        step(
            calls=[
                {"action": "read", "args": {"f": "a"}, "outcome": "A", "error": True},
                {"action": "read", "args": {"f": "b"}},
                {"action": "wait", "error": None},
            ],
            outcome="both",
            error=False,
        )
    )
    assert isinstance(event, RecordedStep)
    assert event.issued.calls == (
        Call("read", {"f": "a"}),
        Call("read", {"f": "b"}),
        Call("wait"),
    )
    assert event.observed.results == (
        CallResult("A", True),
        CallResult("both", False),
        CallResult("both", None),
    )


def test_an_end_carries_every_key() -> None:
    event = parse_line(
        line(type="end", run="r", success=False, reason="gave up", time="1970-01-01T00:00:01")
    )
    assert event == RunEnded(run="r", success=False, reason="gave up", time=1.0)
    assert parse_line(line(type="end", run="r")) == RunEnded(run="r")
    around = parse_line(line(type="end", run="r", children=["a", "b"]))
    assert around == RunEnded(run="r", children=("a", "b"))


@pytest.fixture
def far_from_greenwich() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XYZ+7")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
def test_a_time_without_a_zone_is_universal_time() -> None:
    texts = [
        "2026-11-21T20:00:00",
        "2026-11-21T20:00:00Z",
        "2026-11-21T21:00:00+01:00",
        "2026-11-21T20:00:00.000000000Z",
    ]
    assert {parse_line(start(time=text)).time for text in texts} == {1795291200.0}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"nope", "invalid JSON: "),
        (b'{"type":"st', "invalid JSON: "),
        (b'\x00{"type":"start","run":"r"}', "invalid JSON: "),
        (b'{"type":"start","run":"r","t_max":NaN}', "invalid JSON: "),
        (b'{"type":"step","run":"r","action":"x","tokens":Infinity}', "invalid JSON: "),
        (b'{"type":"step","run":"r","action":"x","tokens":1e999}', "invalid JSON: "),
        (b'{"type":"start","run":"\xff"}', "invalid UTF-8: byte 0xff at column 24"),
        (b"[" * 5_000, "invalid JSON: "),
        (b"[1]", "the line is a list; use a JSON object"),
        (b"null", "the line is null; use a JSON object"),
        (b'"text"', "the line is a string; use a JSON object"),
        (b"3", "the line is a number; use a JSON object"),
        (b"true", "the line is a boolean; use a JSON object"),
        (line(run="r"), "type is missing"),
        (line(type="start"), "run is missing"),
        (line(type=None, run="r"), "type is null; use a string"),
        (line(type="step", run=7, action="x"), "run is a number; use a string"),
        (line(type="outcome", run="r"), "late_outcome is missing"),
        (line(type="outcome", run="r", late_outcome=-1), "late_outcome is -1; use at least 0"),
        (step(action="x", late_outcome="1"), "late_outcome is a string; use a whole number"),
        (line(type="begin", run="r"), "type is 'begin'; use start, step, outcome, answer or end"),
        (line(type="x" * 999, run="r"), "type is 'xxx"),
        (start(agent=["a"]), "agent is a list; use a string"),
        (start(t_max="30"), "t_max is a string; use a whole number"),
        (start(t_max=True), "t_max is a boolean; use a whole number"),
        (start(t_max=1.5), "t_max is a number; use a whole number"),
        (start(t_max=0), "t_max is 0; use at least 1"),
        (start(operations=-1), "operations is -1; use at least 0"),
        (start(reach="far"), "reach is 'far'; use adjacent or anywhere"),
        (start(place=7), "place is a number; use a string or a list"),
        (start(place=[True]), "a part of place is a boolean; use strings, numbers and lists"),
        (start(place=[{}]), "a part of place is an object; use strings, numbers and lists"),
        (start(exits="door"), "exits is a string; use a list"),
        (start(exits=["a", 1]), "exits[1] is a number; use a string or a list"),
        (start(tasks={}), "tasks is an object; use a list"),
        (start(tasks=["T"]), "tasks[0] is a string; use an object"),
        (start(tasks=[{"requires": []}]), "tasks[0].id is missing"),
        (
            start(tasks=[{"id": "T", "requires": "A"}]),
            "tasks[0].requires is a string; use a list of lists",
        ),
        (
            start(tasks=[{"id": "T", "requires": ["A"]}]),
            "tasks[0].requires[0] is a string; use a list",
        ),
        (start(time=12), "time is a number; use a string"),
        (start(time="noon"), "time is 'noon'; use ISO 8601"),
        (step(), "action is missing"),
        (step(action=None), "action is null; use a string"),
        (step(action="x", error="yes"), "error is a string; use true, false or null"),
        (step(action="x", error=0), "error is a number; use true, false or null"),
        (step(action="x", progress=1.5), "progress is 1.5; use 0 to 1"),
        (step(action="x", progress=-1), "progress is -1; use 0 to 1"),
        (step(action="x", progress=True), "progress is a boolean; use a number"),
        (step(action="x", similarity=1.5), "similarity is 1.5; use 0 to 1"),
        (step(action="x", similarity="alike"), "similarity is a string; use a number"),
        (step(action="x", seconds=-1), "seconds is -1; use at least 0"),
        (step(action="x", tokens="7"), "tokens is a string; use a number"),
        (step(action="x", calls=[]), "the step has both an action and calls; use one of them"),
        (step(calls={}), "calls is an object; use a list"),
        (step(calls=["x"]), "calls[0] is a string; use an object"),
        (step(calls=[{"action": "x"}, {}]), "calls[1].action is missing"),
        (
            step(calls=[{"action": "x", "error": 1}]),
            "calls[0].error is a number; use true, false or null",
        ),
        (line(type="end", run="r", success="yes"), "success is a string; use true, false or null"),
        (line(type="end", run="r", children=[1]), "children is a list; use a list of strings"),
        (line(type="end", run="r", reason=1), "reason is a number; use a string"),
    ],
)
def test_the_error_names_the_fault(wrong: bytes, reason: str) -> None:
    with pytest.raises(StepEventError) as error:
        parse_line(wrong)
    message = str(error.value)
    assert message.startswith(reason)
    assert "\n" not in message
    assert len(message) < 200


def test_an_id_may_be_nested_but_not_without_end() -> None:
    place: Any = "x"
    for _ in range(32):
        place = [place]
    assert isinstance(parse_line(start(place=place)), RunStarted)
    with pytest.raises(StepEventError, match="place is nested too deeply; use at most 32 levels"):
        parse_line(start(place=[place]))


KEYS = [
    *("type", "run", "time", "agent", "task", "task_group", "model", "t_max", "memory"),
    *("operations", "height", "place", "exits", "tasks", "goal", "reach", "action", "args"),
    *("calls", "state", "outcome", "error", "achieved", "progress", "mentions", "uses", "tokens"),
    *("entropy", "similarity", "seconds", "success", "reason"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "requires", "action", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(["start", "step", "end"]),
    event=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6),
)
def test_any_object_is_an_event_or_a_step_event_error(kind: str, event: dict[str, Any]) -> None:
    try:
        parsed = parse_event({"type": kind, "run": "r", "action": "x"} | event)
    except StepEventError:
        return
    match parsed:
        case RecordedStep():
            hash(parsed.observed.place)
        case OpenStep():
            hash(parsed.issued.run)
        case _:
            hash(parsed.run)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_a_step_event_error(content: bytes) -> None:
    with pytest.raises(StepEventError):
        parse_line(content)


def test_a_step_whose_outcome_is_elsewhere_and_that_outcome() -> None:
    event = parse_line(step(action="look", late_outcome=7))
    assert event == OpenStep(Step("r", (Call("look"),)), 7)
    outcome = parse_line(
        line(type="outcome", run="r", late_outcome=7, outcome="it", tokens=3, seconds=0.5)
    )
    assert outcome == Outcome("r", (CallResult("it"),), 7, tokens=3, seconds=0.5)


def test_what_was_declared_of_a_tool_is_read_again() -> None:
    declarations: list[dict[str, Any]] = [
        {"poll": True},
        {"poll": 5},
        {"poll_seconds": 2.5},
        {"poll_seconds": 1e300},
        {"mutates": True},
    ]
    steps = [parse_line(step(action="x", **keys)) for keys in declarations]
    declared = [one.issued.calls[0].declared for one in steps]  # type: ignore[union-attr]
    assert declared == [
        ToolDeclaration(poll=True),
        ToolDeclaration(poll=5),
        ToolDeclaration(poll=timedelta(seconds=2.5)),
        ToolDeclaration(poll=timedelta.max),
        ToolDeclaration(mutates=True),
    ]
