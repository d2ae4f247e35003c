"""An agent in a tool that ends before its caller's first call is known is that caller's child."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.other_spans import Listener
from tidegauge import testing
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.inspection import inspect_spans
from tidegauge.receivers.trace_state import ParentlessRuns

MILLISECONDS = 1_000_000


def agent(number: int, parent: int | None, when: tuple[int, int], name: str) -> SpanData:
    given = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(number, parent, when, given)


def tool(number: int, parent: int, when: tuple[int, int], name: str) -> SpanData:
    given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return span(number, parent, when, given)


def span(number: int, parent: int | None, when: tuple[int, int], given: dict[str, str]) -> SpanData:
    start, end = (1 + moment * MILLISECONDS for moment in when)
    return SpanData(7, number, parent, given["gen_ai.operation.name"], "any", given, start, end)


TEAM = [
    agent(1, None, (0, 900), "chief"),
    tool(2, 1, (100, 400), "ask"),
    agent(3, 2, (110, 390), "helper"),
    tool(4, 3, (120, 200), "look"),
    tool(5, 3, (220, 300), "look"),
    tool(6, 1, (500, 800), "ask"),
]
"""No model call is shown, and the tool around the helper ends after it."""


def children(arriving: list[list[SpanData]]) -> dict[str, list[str]]:
    """The names of the runs that ended, and of those that they name as their children."""
    with testing.capture() as seen:
        listener, assembly = Listener(seen), Assembly()
        for spans in arriving:
            assembly.take(spans, now=max(one.end for one in spans) / 1e9)
        assembly.close()
    names = {event.run: event.agent_name or "" for event in listener.ended}
    for event in listener.started:
        names[event.run] = names[event.run] or event.agent
    return {names[event.run]: [names[one] for one in event.children] for event in listener.ended}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_caller_names_them_in_any_batches(size: int, backwards: bool) -> None:
    spans = sorted(TEAM, key=lambda one: one.end)
    batches = [spans[start : start + size] for start in range(0, len(spans), size)]
    found = children([batch[::-1] if backwards else batch for batch in batches])
    assert found == {"helper": [], "chief": ["helper"]}


def test_the_recording_has_their_names_and_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with testing.capture(record_to=path):
        assembly = Assembly()
        assembly.take(TEAM, now=1.0)
        assembly.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    helper, chief = [one["run"] for one in lines if one["type"] == "start"]
    found = {one["run"]: one for one in lines if one["type"] == "end"}
    assert found[helper]["agent_name"] == "helper"
    assert (found[chief]["agent_name"], found[chief]["children"]) == ("chief", [helper])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_caller_is_not_counted_under_the_name_of_an_agent_in_its_tool(depth: int) -> None:
    """However many spans that say nothing are between the tool and the agent in it."""
    around = [20 + number for number in range(depth)]
    parents = dict(zip([*around, 3], [2, *around], strict=True))
    spans = [one._replace(parent_id=parents.get(one.span_id, one.parent_id)) for one in TEAM]
    for number in around:
        times = (1 + (100 + number) * MILLISECONDS, 1 + (420 - number) * MILLISECONDS)
        spans.append(SpanData(7, number, parents[number], "process", "any", {}, *times))
    with testing.capture() as seen:
        listener, assembly = Listener(seen), Assembly()
        for one in sorted(spans, key=lambda one: one.end):
            assembly.take([one._replace(resource={"service.name": "svc"})], now=one.end / 1e9)
        assembly.close()
    assert [event.agent for event in listener.started] == ["svc", "svc"]
    assert [event.agent_name for event in listener.ended] == ["helper", "chief"]


def test_inspection_shows_the_parent() -> None:
    [trace] = inspect_spans(TEAM)
    assert [(run.agent, run.parent) for run in trace.runs] == [("helper", 2), ("chief", None)]


def test_agents_side_by_side_in_one_workflow_are_no_children() -> None:
    workflow = span(1, None, (0, 900), {"gen_ai.operation.name": "invoke_workflow"})
    assert not any(children(one_by_one([workflow, *INSIDE])).values())


def test_an_agent_in_no_tool_is_the_child_of_the_agent_around_it() -> None:
    """As in smolagents' CodeAgent, which calls its agents from its code."""
    spans = [agent(1, None, (0, 900), "chief"), *INSIDE]
    assert children(one_by_one(spans)) == {"helper": [], "chief": ["helper"]}


INSIDE = [
    agent(3, 1, (110, 390), "helper"),
    tool(4, 3, (120, 200), "look"),
    tool(6, 1, (500, 800), "ask"),
]


def one_by_one(spans: list[SpanData]) -> list[list[SpanData]]:
    return [[one] for one in sorted(spans, key=lambda one: one.end)]


def test_at_most_a_thousand_are_held() -> None:
    runs = ParentlessRuns()
    for number in range(1_500):
        runs.add(str(number), around=2)
    found = runs.take(1, parents={2: 1}, waiting=(), roots={1}, tools={2}, sure=False)
    assert found == [str(number) for number in range(500, 1_500)]
    assert not runs
