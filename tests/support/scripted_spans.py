"""Spans of agents that follow a script, in the shapes of several frameworks, and what they did."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegauge.foreign_spans.span import SpanData

__all__ = ["ALL_SHAPES", "SHAPES", "Agent", "Call", "Scripted", "Tracer", "random_agent", "truth"]

_MILLISECOND = 1_000_000


class Agent(NamedTuple):
    """An agent and its turns: the calls of each."""

    name: str
    turns: Sequence[Sequence[Call]]


class Call(NamedTuple):
    """A call that the model asks for; with ``agent``, the tool runs that agent."""

    tool: str
    query: str = "key"
    result: str = "nothing"
    error: bool = False
    agent: Agent | None = None


class Scripted(NamedTuple):
    """What must be read about a run."""

    agent: str
    parent: str | None
    steps: int


def truth(agent: Agent, parent: str | None = None) -> list[Scripted]:
    """The runs of an agent and of those that it calls; in no order."""
    found = [Scripted(agent.name, parent, sum(1 for turn in agent.turns if turn))]
    for call in (call for turn in agent.turns for call in turn if call.agent is not None):
        assert call.agent is not None
        found += truth(call.agent, agent.name)
    return found


def random_agent(chance: random.Random, name: str, depth: int) -> Agent:
    """An agent that calls tools and, in tools, other agents; one may call several, or twice."""
    turns = []
    for _ in range(chance.randint(1, 4)):
        calls = []
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            if depth and chance.random() < 0.35:
                inner = random_agent(chance, name + chance.choice("bcd"), depth - 1)
                calls.append(Call(f"ask_{inner.name}", agent=inner))
            else:
                calls.append(Call(chance.choice(["search", "read"]), chance.choice("kq")))
        turns.append(calls)
    return Agent(name, turns)


class Tracer:
    """Builds the spans of a trace.

    ``skew`` moves the clock of the tools' host, in milliseconds; with ``chance``, models take as
    long as it says.
    """

    def __init__(
        self,
        shape: str,
        trace: int = 7,
        *,
        skew: int = 0,
        service: str = "svc",
        chance: random.Random | None = None,
    ) -> None:
        self._chance = chance
        self.spans: list[SpanData] = []
        self.ended: dict[int, int] = {}  # when spans ended by one clock, in milliseconds
        self._shape, self._trace, self._skew, self._service = shape, trace, skew, service
        self._ids = 100 * trace

    def run(self, agent: Agent, parent: int | None = None, now: int = 1_000) -> int:
        """Trace one go of an agent that begins at a millisecond; the one in which it ends."""
        span = self._id()
        began, now = now, now + 1
        said: list[tuple[str, Call]] = []
        for turn in [*agent.turns, ()]:
            now, said = self._turn(agent, span, now, turn, said)
        if self._shape in _OPENINFERENCE:
            given = {"openinference.span.kind": "AGENT", "agent.name": agent.name}
            self.add(span, parent, agent.name, given, began, now)
        else:
            given = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent.name}
            self.add(span, parent, f"invoke_agent {agent.name}", given, began, now)
        return now + 1

    def _turn(self, agent: Agent, span: int, now: int, turn: Sequence[Call], said: Any) -> Any:
        began, around = now, span
        if self._shape in _OPENINFERENCE:
            around, now = self._id(), now + 1
        called = [(f"call_{self._id()}", call) for call in turn]
        make = self._openinference if self._shape in _OPENINFERENCE else self._genai
        took = 10 if self._chance is None else self._chance.randint(5, 60)
        shown = make(called, said)
        if self._shape in _NAMED:
            shown["gen_ai.agent.name"] = agent.name
        if self._shape in _STREAMING:
            return self._streamed(agent, around, now, took, called, shown), [*said, *called]
        if self._shape == "models in models":
            whole = self._id()
            self.add(self._id(), whole, "chat", shown, now + 1, now + took - 1)
            self.add(whole, around, "chat", {"openinference.span.kind": "LLM"}, now, now + took)
        elif self._shape != "tools alone":
            self.add(self._id(), around, "chat", shown, now, now + took)
        if self._shape in _NODES:
            node = {"openinference.span.kind": "CHAIN"}
            self.add(around, span, "model", node, began, now + took + 1)
            around, began = self._id(), now + took + 1
        now += took + 2
        ends = [now]
        for number, (call_id, call) in enumerate(called):
            ends.append(self._tool(around, call_id, call, now + number))
        now = max(ends) + 1
        if self._shape == "openinference" or (self._shape in _NODES and turn):
            self.add(around, span, "turn", {"openinference.span.kind": "CHAIN"}, began, now)
        return now + 1, [*said, *called]

    def _streamed(
        self, agent: Agent, around: int, now: int, took: int, called: Any, shown: dict[str, Any]
    ) -> int:
        """A turn whose tools run while the model still answers; when it is over."""
        named = agent.name if self._shape in _NAMED else None
        ends = [now + took]
        for number, (call_id, call) in enumerate(called):
            ends.append(self._tool(around, call_id, call, now + 3 + number, named) + 1)
        self.add(self._id(), around, "chat", shown, now, max(ends))
        return max(ends) + 1

    def _tool(
        self, around: int, call_id: str, call: Call, now: int, named: str | None = None
    ) -> int:
        span, end = self._id(), now + 10
        if call.agent is not None:
            end = self.run(call.agent, span, now + 1)
        arguments = json.dumps({"query": call.query})
        if self._shape in _OPENINFERENCE:
            given = {
                "openinference.span.kind": "TOOL",
                "tool.name": call.tool,
                "input.value": arguments,
            }
            if not call.error:
                given["output.value"] = call.result
        else:
            given = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool}
            given["gen_ai.tool.call.arguments"] = arguments
            if named is not None:
                given["gen_ai.agent.name"] = named
            if self._shape != "genai without ids":
                given["gen_ai.tool.call.id"] = call_id
            if not call.error:
                given["gen_ai.tool.call.result"] = call.result
        host = "tools" if self._skew and call.agent is None else "agents"
        skew = self._skew if host == "tools" else 0
        self.add(span, around, call.tool, given, now + skew, end + skew, call.error, host)
        return end

    def add(
        self,
        span: int,
        parent: int | None,
        name: str,
        given: dict[str, Any],
        start: int,
        end: int,
        error: bool = False,
        host: str = "agents",
    ) -> None:
        """Add a span; times in milliseconds."""
        self.ended[span] = end - (self._skew if host == "tools" else 0)
        openinference = "openinference.instrumentation.openai_agents"
        scope = openinference if self._shape in _OPENINFERENCE else "agent_framework"
        resource = {"service.name": self._service, "host.name": host}
        ids = (self._trace, span, parent)
        ended = end * _MILLISECOND + len(self.spans)  # no two at once
        times = (start * _MILLISECOND, ended)
        status = (error, "it failed" if error else "")
        self.spans.append(SpanData(*ids, name, scope, given, *times, *status, resource=resource))

    def shuffled(self, seed: int, within: float = 0.45) -> list[tuple[float, list[SpanData]]]:
        """Each span arrives alone, so many seconds after its true end at most."""
        chance = random.Random(seed)
        late = [
            (self.ended[span.span_id] / 1_000 + chance.random() * within, span)
            for span in self.spans
        ]
        return [(when, [span]) for when, span in sorted(late, key=lambda each: each[0])]

    def _genai(self, called: Any, said: Any) -> dict[str, Any]:
        parts = [
            {"type": "tool_call", "id": one, "name": call.tool, "arguments": {"query": call.query}}
            for one, call in called
        ]
        text = [{"type": "text", "content": "done"}]
        shown = [
            {"type": "tool_call_response", "id": one, "response": call.result} for one, call in said
        ]
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts or text}]),
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "user", "parts": [{"type": "text", "content": "go"}]},
                    *([{"role": "tool", "parts": shown}] if shown else []),
                ]
            ),
        }

    def _openinference(self, called: Any, said: Any) -> dict[str, Any]:
        given = {
            "openinference.span.kind": "LLM",
            "llm.output_messages.0.message.role": "assistant",
        }
        for number, (one, call) in enumerate(called):
            key = f"llm.output_messages.0.message.tool_calls.{number}.tool_call."
            given[f"{key}id"] = one
            given[f"{key}function.name"] = call.tool
            given[f"{key}function.arguments"] = json.dumps({"query": call.query})
        return given

    def _id(self) -> int:
        self._ids += 1
        return self._ids


_NAMED = ("genai with names", "streaming with names")
_STREAMING = ("streaming", "streaming with names")
_NODES = ("nodes", "models in models")
_OPENINFERENCE = ("openinference", *_NODES)
SHAPES = ("genai", "genai without ids", "genai with names", *_STREAMING, *_OPENINFERENCE)
"""In the streaming ones, tools end before the model call that chose them. In the last two, each
model call and each round of tools has a separate span around it. In the last, a model call is two
spans, of which the inner one shows what was chosen."""

ALL_SHAPES = (*SHAPES, "tools alone")
"""The last one has no spans of models: an agent that only answers is not seen."""
