"""Agents that hand over to others, as frameworks trace it: one step, and a run inside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.framework_spans import BATCHINGS, ReadRun, batches, read
from tidegauge.instrumentation.spans.span import SpanData

OPENAI = "openinference.instrumentation.openai_agents"
GOOGLE = "gcp.vertex.agent"
LOOP = {"period": 1, "first_step": 2, "loop_steps": 6}


class Spans:
    """Builds a trace: spans begin and end one after the other."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.found: list[SpanData] = []
        self._now = 0
        self._calls = 0

    def begin(self) -> tuple[int, int]:
        """An id, and when the span begins."""
        self._now += 1
        return self._now, self._now

    def end(self, begun: tuple[int, int], parent: Any, name: str, given: dict[str, Any]) -> None:
        self._now += 1
        start, end = (1_000_000_000 + 2_000_000 * moment for moment in (begun[1], self._now))
        parent_id = None if parent is None else parent[0]
        resource = {"service.name": "svc"}
        ids = 7, begun[0], parent_id
        self.found.append(SpanData(*ids, name, self.scope, given, start, end, resource=resource))

    def openai_turn(self, parent: Any, tool: str | None, **arguments: Any) -> None:
        """A turn of the OpenAI Agents SDK, as OpenInference shows it."""
        turn, llm = self.begin(), self.begin()
        said = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant"}
        if tool is not None:
            self._calls += 1
            call = "llm.output_messages.0.message.tool_calls.0.tool_call."
            said[f"{call}id"] = f"call_{self._calls}"
            said[f"{call}function.name"] = tool
            said[f"{call}function.arguments"] = json.dumps(arguments)
        self.end(llm, turn, "response", said)
        kind = {"openinference.span.kind": "TOOL"}
        if tool is not None:
            name = "handoff to researcher" if tool.startswith("transfer") else tool
            values = {} if tool.startswith("transfer") else {"output.value": "nothing"}
            self.end(self.begin(), turn, name, {**kind, **values})
        self.end(turn, parent, "turn", {"openinference.span.kind": "CHAIN"})

    def google_turn(self, parent: Any, agent: str, tool: str | None, **arguments: Any) -> None:
        """A turn of Google's ADK."""
        named = {"gen_ai.agent.name": agent}
        call = {"name": tool, "arguments": arguments}
        parts = [] if tool is None else [{"type": "tool_call", "id": None, **call}]
        said = json.dumps([{"role": "model", "parts": parts}])
        chat = {"gen_ai.operation.name": "generate_content", "gen_ai.output.messages": said}
        self.end(self.begin(), parent, "generate_content", {**chat, **named})
        if tool is not None:
            given = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.id": f"adk-{self._now}",
                "gen_ai.tool.call.arguments": json.dumps(arguments),
                "gen_ai.tool.call.result": "nothing",
            }
            self.end(self.begin(), parent, f"execute_tool {tool}", {**given, **named})


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
@pytest.mark.parametrize("shape", [openai, google])
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
