"""Agents that hand over to others, as frameworks trace it: one step, and a run inside."""

from __future__ import annotations

from typing import Any

import pytest

from support.framework_spans import BATCHINGS, ReadRun, batches, read
from support.hand_off_spans import GOOGLE, OPENAI, Spans
from tidegauge.foreign_spans.span import SpanData

LOOP = {"period": 1, "first_step": 2, "loop_steps": 6, "live_loop_steps": 6}


def openai() -> list[SpanData]:
    spans = Spans(OPENAI)
    trace, boss = spans.begin(), spans.begin()
    spans.openai_turn(boss, "transfer_to_researcher")
    agent = {"openinference.span.kind": "AGENT"}
    spans.end(boss, trace, "boss", {**agent, "agent.name": "boss"})
    researcher = spans.begin()
    for _ in range(8):
        spans.openai_turn(researcher, "search", query="key")
    spans.openai_turn(researcher, None)
    spans.end(researcher, trace, "researcher", {**agent, "agent.name": "researcher"})
    spans.end(trace, None, "Agent workflow", agent)
    return spans.found


def google_side_by_side() -> list[SpanData]:
    """As since 2.0: the agents are beside each other in a workflow."""
    spans = Spans(GOOGLE)
    workflow = spans.begin()
    agent = {"gen_ai.operation.name": "invoke_agent"}
    boss = spans.begin()
    spans.google_turn(boss, "boss", "transfer_to_agent", agent_name="researcher")
    spans.end(boss, workflow, "invoke_agent boss", {**agent, "gen_ai.agent.name": "boss"})
    researcher = spans.begin()
    for _ in range(8):
        spans.google_turn(researcher, "researcher", "search", query="key")
    spans.google_turn(researcher, "researcher", None)
    named = {**agent, "gen_ai.agent.name": "researcher"}
    spans.end(researcher, workflow, "invoke_agent researcher", named)
    spans.end(workflow, None, "invoke_workflow", {"gen_ai.operation.name": "invoke_workflow"})
    return spans.found


def google_without_models() -> list[SpanData]:
    """As OpenInference shows ADK's: tools alone, so the last call is known when the agent ends."""
    chat = "generate_content"
    return [span for span in google_side_by_side() if span.name != chat]


def strands() -> list[SpanData]:
    """A swarm of Strands: the agents are beside each other in a span that is no agent."""
    spans = Spans("strands.telemetry.tracer")
    swarm = spans.begin()
    agent = {"gen_ai.operation.name": "invoke_agent"}
    boss = spans.begin()
    spans.strands_turn(boss, "handoff_to_agent", agent_name="researcher")
    spans.strands_turn(boss, None)
    spans.end(boss, swarm, "invoke_agent boss", {**agent, "gen_ai.agent.name": "boss"})
    researcher = spans.begin()
    for _ in range(8):
        spans.strands_turn(researcher, "search", query="key")
    spans.strands_turn(researcher, None)
    named = {**agent, "gen_ai.agent.name": "researcher"}
    spans.end(researcher, swarm, "invoke_agent researcher", named)
    spans.end(swarm, None, "invoke_swarm", {"gen_ai.operation.name": "invoke_swarm"})
    return spans.found


def google() -> list[SpanData]:
    spans = Spans(GOOGLE)
    boss = spans.begin()
    spans.google_turn(boss, "boss", "transfer_to_agent", agent_name="researcher")
    researcher = spans.begin()
    for _ in range(8):
        spans.google_turn(researcher, "researcher", "search", query="key")
    spans.google_turn(researcher, "researcher", None)
    agent = {"gen_ai.operation.name": "invoke_agent"}
    for begun, parent, name in ((researcher, boss, "researcher"), (boss, None, "boss")):
        spans.end(begun, parent, f"invoke_agent {name}", {**agent, "gen_ai.agent.name": name})
    return spans.found


@pytest.mark.parametrize("how", BATCHINGS)
@pytest.mark.parametrize(
    "shape", [openai, google, google_side_by_side, google_without_models, strands]
)
def test_a_hand_off_is_one_step_and_the_other_agent_a_run_inside(shape: Any, how: str) -> None:
    found = read(batches(shape(), how))
    assert [run[:4] for run in found] == [
        ("boss", None, 1, None),
        ("researcher", 0, 8, LOOP),
    ]
    assert isinstance(found[0], ReadRun)


@pytest.mark.parametrize("how", BATCHINGS)
def test_agents_one_after_the_other_in_one_trace_are_separate_runs(how: str) -> None:
    spans = Spans(OPENAI)
    request = spans.begin()
    for name in ("one", "two"):
        agent = spans.begin()
        for _ in range(3):
            spans.openai_turn(agent, "search", query=name)
        spans.openai_turn(agent, None)
        given = {"openinference.span.kind": "AGENT", "agent.name": name}
        spans.end(agent, request, name, given)
    spans.end(request, None, "GET /", {"http.request.method": "GET"})
    found = read(batches(spans.found, how))
    assert [run[:3] for run in found] == [("one", None, 3), ("two", None, 3)]


@pytest.mark.parametrize("how", BATCHINGS)
def test_an_agent_that_is_handed_to_twice_is_inside_the_one_that_does_it(how: str) -> None:
    spans = Spans(OPENAI)
    trace, agent = spans.begin(), {"openinference.span.kind": "AGENT"}
    for name, other in (("boss", "researcher"), ("researcher", "boss"), ("boss", "researcher")):
        begun = spans.begin()
        spans.openai_turn(begun, f"transfer_to_{other}")
        spans.end(begun, trace, name, {**agent, "agent.name": name})
    last = spans.begin()
    spans.openai_turn(last, None)
    spans.end(last, trace, "researcher", {**agent, "agent.name": "researcher"})
    spans.end(trace, None, "Agent workflow", agent)
    found = read(batches(spans.found, how))
    assert [run[:3] for run in found] == [
        ("boss", None, 2),
        ("researcher", 0, 1),
        ("researcher", 0, 0),
    ]


@pytest.mark.parametrize("how", BATCHINGS)
@pytest.mark.parametrize("more", [0, 1])
def test_agents_in_tools_called_together_beside_the_agent_that_called_them(
    how: str, more: int
) -> None:
    """As OpenLLMetry shows the OpenAI Agents SDK's: no span is around them but the workflow's."""
    spans = Spans("opentelemetry.instrumentation.openai_agents")
    workflow, boss = spans.begin(), spans.begin()
    spans.openllmetry_chat(boss, ("ask_alpha", "a"), ("ask_beta", "b"))
    tools = {f"ask_{name}": spans.begin() for name in ("alpha", "beta")}
    agents = {name: spans.begin() for name in ("alpha", "beta")}
    for _ in range(4):
        for begun in agents.values():
            spans.openllmetry_chat(begun, ("search", "key"))
        for begun in agents.values():
            spans.openllmetry_tool(spans.begin(), begun, "search", "key")
    for name, begun in agents.items():
        spans.openllmetry_agent(begun, workflow, name)
        spans.openllmetry_tool(tools[f"ask_{name}"], boss, f"ask_{name}", name[0])
    for _ in range(more):
        spans.openllmetry_chat(boss, ("search", "key"))
        spans.openllmetry_tool(spans.begin(), boss, "search", "key")
    spans.openllmetry_chat(boss)
    spans.openllmetry_agent(boss, workflow, "boss")
    spans.end(workflow, None, "Agent Workflow", {"traceloop.span.kind": "workflow"})
    found = sorted(run[:3] for run in read(batches(spans.found, how)))
    assert found == [("alpha", 0, 4), ("beta", 0, 4), ("boss", None, 1 + more)]
