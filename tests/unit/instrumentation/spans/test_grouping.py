"""Rounds and runs out of spans that are made up: what real instrumentations show too rarely."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from support.other_spans import Listener
from support.span_files import replay_spans
from tidegauge import testing
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import SpanData
from tidegauge.runs.current import get_recorder
from tidegauge.testing import SteppedClock

_ids = itertools.count(1)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with testing.capture() as seen:
        yield Listener(seen)


def span(
    start: int, end: int, parent: SpanData | None, attributes: dict[str, Any], **fields: Any
) -> SpanData:
    number = next(_ids)
    trace_id = parent.trace_id if parent is not None else number
    scope = fields.pop("scope", "theirs")
    name = fields.pop("name", "a span")
    parent_id = None if parent is None else parent.span_id
    return SpanData(trace_id, number, parent_id, name, scope, attributes, start, end, **fields)


def agent(
    start: int, end: int, parent: SpanData | None = None, name: str = "helper", **fields: Any
):
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(start, end, parent, attributes, **fields)


def model(start: int, end: int, parent: SpanData | None, *calls: tuple[str, str], **fields: Any):
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    attributes["gen_ai.usage.input_tokens"] = fields.pop("tokens", 5)
    if fields.pop("content", True):
        parts = [
            {"type": "tool_call", "id": call_id, "name": "look", "arguments": {"place": place}}
            for call_id, place in calls
        ]
        attributes["gen_ai.output.messages"] = [{"role": "assistant", "parts": parts}]
    return span(start, end, parent, attributes, **fields)


def tool(
    start: int,
    end: int,
    parent: SpanData | None,
    place: str | None = None,
    call_id: str | None = None,
    result: str | None = "nothing",
    **fields: Any,
):
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
    }
    if place is not None:
        attributes["gen_ai.tool.call.arguments"] = {"place": place}
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result
    if call_id is not None:
        attributes["gen_ai.tool.call.id"] = call_id
    return span(start, end, parent, attributes, **fields)


def rounds(listener: Listener) -> list[tuple[int, list[Any]]]:
    """(calls, outcomes) of each step of the only run."""
    [story] = listener.story()
    outcomes = {step: [result for result, _ in results] for step, results, _ in story[3]}
    return [(len(step[1]), outcomes.get(step[0], [])) for step in story[2]]


def test_ids_that_are_used_again_are_new_calls(listener):
    root = agent(0, 100)
    spans = [root]
    for turn in range(4):
        at = 10 * turn
        spans += [
            model(at + 1, at + 2, root, ("c1", "hall")),
            tool(at + 3, at + 4, root, "hall", "c1", f"seen {turn}"),
        ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert rounds(listener) == [(1, [f"seen {turn}"]) for turn in range(4)]


def test_two_instrumentations_that_report_no_ids_and_the_same_arguments_twice(listener):
    root = agent(0, 100)
    spans = [root]
    for scope in ("one", "other"):
        spans += [
            model(1, 5, root, ("c1", "hall"), ("c2", "hall"), scope=scope),
            tool(10, 20, root, "hall", scope=scope, result="a"),
            tool(11, 21, root, "hall", scope=scope, result="b"),
        ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert rounds(listener) == [(2, ["a", "b"])]
    assert listener.story()[0][4]["tokens"] == 5


def test_one_instrumentation_that_calls_twice_at_once_is_not_taken_for_two(listener):
    root = agent(0, 100)
    spans = [root, model(1, 5, root, ("c1", "hall")), model(2, 6, root, ("c2", "hall"))]
    spans += [tool(10, 20, root, "hall", "c1"), tool(11, 21, root, "hall", "c2")]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert [calls for calls, _ in rounds(listener)] == [1, 1]
    assert listener.story()[0][4]["tokens"] == 10


def test_the_model_of_one_and_the_tools_of_another_instrumentation(listener):
    root = agent(0, 100, scope="agents")
    inner = model(1, 4, root, ("c1", "hall"), scope="client")
    outer = model(0, 5, root, content=False, tokens=None, scope="agents")
    spans = [root, outer, inner, tool(6, 7, root, "hall", "c1", scope="agents")]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert rounds(listener) == [(1, ["nothing"])]
    assert listener.story()[0][4]["tokens"] == 5


def test_a_model_that_reports_its_calls_after_another_did_not(listener):
    root = agent(0, 100)
    spans = [
        root,
        model(1, 4, root, content=False, scope="one"),
        model(1, 5, root, ("c1", "hall"), ("c2", "attic"), scope="other"),
        tool(6, 7, root, "hall", "c1", scope="other"),
        tool(6, 8, root, scope="one", result=None),
        tool(8, 9, root, "attic", "c2", scope="other"),
    ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert rounds(listener) == [(2, ["nothing", "nothing"])]


def test_without_contents_a_round_is_what_runs_between_two_model_calls(listener):
    root = agent(0, 100)
    spans = [root]
    for turn in range(4):
        at = 10 * turn
        spans += [
            model(at + 1, at + 2, root, content=False),
            tool(at + 3, at + 4, root, result=None),
            tool(at + 5, at + 6, root, result=None),
        ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    [story] = listener.story()
    assert [(step[1], step[4]) for step in story[2]] == [(("look", "look"), 5)] * 4
    assert len({step[2] for step in story[2]}) == 4  # no two are known to be the same
    assert story[4]["loop_steps"] == 0


def test_without_arguments_an_unchanged_result_is_a_streak_and_no_loop(listener):
    root = agent(0, 100)
    spans = [root]
    for turn in range(4):
        at = 10 * turn
        spans += [model(at + 1, at + 2, root, content=False), tool(at + 3, at + 4, root)]
    replay_spans(Grouping(get_recorder), spans, early=True)
    [story] = listener.story()
    assert story[4]["loop_steps"] == 0
    assert story[4]["result_streak_max"] == 4


def test_without_model_spans_tools_that_overlap_are_a_round(listener):
    root = agent(0, 100)
    spans = [
        root,
        tool(1, 5, root, "hall"),
        tool(2, 6, root, "attic"),
        tool(7, 9, root, "hall"),
        tool(10, 11, root, "hall"),
        tool(12, 13, root, "hall"),
    ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert [calls for calls, _ in rounds(listener)] == [2, 1, 1, 1]
    assert listener.story()[0][4]["loop_steps"] == 1


def test_a_call_that_nobody_chose_is_a_step_of_its_own(listener):
    root = agent(0, 100)
    spans = [root, model(1, 2, root), tool(3, 4, root, "hall"), tool(3, 5, root, "attic")]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert [calls for calls, _ in rounds(listener)] == [1, 1]


def test_a_call_without_a_span_stays_unobserved(listener):
    root = agent(0, 100)
    replay_spans(Grouping(get_recorder), [root, model(1, 2, root, ("c1", "hall"))], early=True)
    assert rounds(listener) == [(1, [])]


def test_what_is_no_agents_is_no_run(listener):
    request = span(0, 100, None, {"http.method": "GET"}, scope="web")
    grouping = Grouping(get_recorder)
    replay_spans(grouping, [request, model(1, 2, request), tool(3, 4, request)], early=True)
    assert listener.story() == []
    assert len(grouping) == 0


def test_agents_of_one_request_are_runs_side_by_side(listener):
    request = span(0, 100, None, {"http.method": "GET"}, scope="web")
    one, other = agent(1, 50, request), agent(2, 60, request, "other")
    spans = [request, one, other, model(3, 4, one, ("a", "b")), model(3, 5, other, ("c", "d"))]
    grouping = Grouping(get_recorder)
    replay_spans(grouping, spans, early=True)
    assert [(run[0][0], run[1][1]) for run in listener.story()] == [
        ("helper", None),
        ("other", None),
    ]
    assert len(grouping) == 0


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"failed": True, "events": [("exception", {"exception.type": "KeyError"})]}, "error"),
        (
            {"failed": True, "events": [("exception", {"exception.type": "a.RunStopped"})]},
            "stopped",
        ),
        (
            {"failed": True, "events": [("exception", {"exception.type": "CancelledError"})]},
            "unknown",
        ),
        ({}, "unknown"),
    ],
)
def test_how_a_run_ends(listener, given, outcome):
    root = agent(0, 100, **given)
    replay_spans(Grouping(get_recorder), [root, model(1, 2, root)], early=True)
    [ended] = listener.ended
    assert (ended.outcome or "unknown") == outcome


def test_a_child_that_outlives_its_parent_stays_in_the_run(listener):
    root = agent(0, 100)
    step = span(3, 4, root, {"a": "b"})
    late = tool(5, 6, step, "hall", "c1")
    replay_spans(
        Grouping(get_recorder), [root, model(1, 2, root, ("c1", "hall")), step, late], early=True
    )
    assert rounds(listener) == [(1, ["nothing"])]


def test_a_run_whose_end_never_comes_makes_room(listener):
    clock = SteppedClock()
    grouping = Grouping(get_recorder, max_runs=2, idle_seconds=60.0, clock=clock)

    def begin() -> None:
        root = agent(0, 100)
        inner = model(1, 2, root, ("c1", "hall"))
        for each in (root, inner):
            grouping.start(
                each.trace_id,
                each.span_id,
                each.parent_id,
                name=each.name,
                scope=each.scope,
                live=each,
            )
        grouping.end(inner)

    for _ in range(3):
        begin()
    assert [ended.reason for ended in listener.ended] == ["too many runs"]
    clock.advance(61)
    begin()
    assert [ended.reason for ended in listener.ended[1:]] == ["idle", "idle"]
    assert all(ended.evicted for ended in listener.ended)
    assert len(grouping.runs) == 1
    grouping.close()
    assert (listener.ended[-1].reason, listener.ended[-1].evicted) == ("shutdown", False)
    begin()
    assert len(grouping) == 0


def test_a_run_lives_while_an_agent_inside_it_does(listener):
    clock = SteppedClock()
    grouping = Grouping(get_recorder, idle_seconds=60.0, clock=clock)
    root = agent(0, 100)
    outer, inner = tool(3, 90, root, "x", "c1"), None
    for each in (root, model(1, 2, root, ("c1", "x")), outer):
        grouping.start(
            each.trace_id, each.span_id, each.parent_id, name="n", scope="theirs", live=each
        )
        if each is not root and each is not outer:
            grouping.end(each)
    inner = agent(4, 80, outer, "inner")
    grouping.start(
        inner.trace_id, inner.span_id, inner.parent_id, name="n", scope="theirs", live=inner
    )
    for _ in range(5):
        clock.advance(50)
        each = model(5, 6, inner, ("c2", "y"))
        grouping.start(
            each.trace_id, each.span_id, each.parent_id, name="n", scope="theirs", live=each
        )
        grouping.end(each)
    assert len(grouping.runs) == 2
    assert listener.ended == []


def test_two_instrumentations_that_take_turns_show_two_calls(listener):
    root = agent(0, 100)
    spans = [root]
    for at, scope in ((10, "one"), (20, "other")):
        spans += [
            model(at + 1, at + 2, root, ("c1", "hall"), ("c2", "attic"), scope=scope),
            tool(at + 3, at + 4, root, "hall", "c1", scope, scope=scope),
            tool(at + 3, at + 5, root, "attic", "c2", scope, scope=scope),
        ]
    replay_spans(Grouping(get_recorder), spans, early=True)
    assert rounds(listener) == [(2, ["one", "one"]), (2, ["other", "other"])]


def test_a_span_that_comes_late_is_not_taken_for_a_newer_call_of_its_id(listener):
    root = agent(0, 100)
    late, newer = tool(3, 4, root, "hall", "c1", "old"), tool(13, 14, root, "hall", "c1", "new")
    grouping = Grouping(get_recorder)
    spans = [model(1, 2, root), model(11, 12, root, ("c1", "hall")), late, newer, root]
    for each in (root, *spans[:-1]):
        grouping.start(
            each.trace_id, each.span_id, each.parent_id, name="n", scope="theirs", live=each
        )
    for each in spans:
        grouping.end(each)
    assert rounds(listener) == [(1, ["new"]), (1, ["old"])]
