"""Spans of agents that hand over to others, in the shapes of several frameworks."""

from __future__ import annotations

import json
from typing import Any

from tidegauge.foreign_spans.span import SpanData

__all__ = ["GOOGLE", "OPENAI", "Spans"]

OPENAI = "openinference.instrumentation.openai_agents"
GOOGLE = "gcp.vertex.agent"


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

    def strands_turn(self, parent: Any, tool: str | None, **arguments: Any) -> None:
        """A turn of Strands, which goes around it."""
        turn, chat = self.begin(), self.begin()
        operation = "gen_ai.operation.name"
        self._calls += 1
        named = {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"call_{self._calls}"}
        given = {"id": f"call_{self._calls}", "name": tool, "arguments": arguments}
        parts = [] if tool is None else [{"type": "tool_call", **given}]
        said = json.dumps([{"role": "assistant", "parts": parts}])
        self.end(chat, turn, "chat", {operation: "chat", "gen_ai.output.messages": said})
        if tool is not None:
            result = {"gen_ai.tool.call.result": "nothing", **named}
            self.end(
                self.begin(), turn, f"execute_tool {tool}", {operation: "execute_tool", **result}
            )
        self.end(turn, parent, "execute_event_loop_cycle", {operation: "execute_event_loop_cycle"})

    def openllmetry_chat(self, parent: Any, *calls: tuple[str, str]) -> None:
        """A model call of OpenLLMetry's, which asks for these tools with this query each."""
        parts = []
        for tool, query in calls:
            self._calls += 1
            call = {"type": "tool_call", "name": tool, "id": f"call_{self._calls}"}
            parts.append({**call, "arguments": {"query": query}})
        said = json.dumps([{"role": "assistant", "parts": parts}])
        given = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said}
        self.end(self.begin(), parent, "openai.response", given)

    def openllmetry_tool(self, begun: Any, parent: Any, tool: str, query: str) -> None:
        """A tool call of OpenLLMetry's."""
        given = {
            "traceloop.span.kind": "tool",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.arguments": json.dumps({"query": query}),
            "gen_ai.tool.call.result": "nothing",
        }
        self.end(begun, parent, f"{tool}.tool", given)

    def openllmetry_agent(self, begun: Any, parent: Any, name: str) -> None:
        """An agent of OpenLLMetry's."""
        kind = {"traceloop.span.kind": "agent", "gen_ai.operation.name": "invoke_agent"}
        self.end(begun, parent, f"{name}.agent", {**kind, "gen_ai.agent.name": name})
