"""What is measured: a real agent with a scripted model, the shortest handler, a session of hooks.

A step is one model call and one tool call of a ``create_agent`` agent. The *floor* opens and closes
the four spans of such a step (two graph nodes, model call, tool call) and does nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import langchain.agents
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Span, Tracer, set_span_in_context

from tidegauge.coding_agents.sessions import HookSessions

__all__ = ["Discard", "Floor", "hook_run", "scripted_run"]


class Discard(SpanExporter):
    """Counts spans and throws them away: no exporter's own cost is measured."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take a batch."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is held."""


class Floor(BaseCallbackHandler):
    """Four spans a step, explicit parents, no attributes: nothing shorter makes them."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[UUID, Span] = {}

    def _start(self, name: str, run_id: UUID, parent_run_id: UUID | None) -> None:
        parent = self._spans.get(parent_run_id) if parent_run_id else None
        context = set_span_in_context(parent) if parent is not None else None
        self._spans[run_id] = self._tracer.start_span(name, context)

    def _end(self, run_id: UUID) -> None:
        self._spans.pop(run_id).end()

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        """Open a chain's span."""
        self._start("chain", run_id, parent_run_id)

    def on_chain_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        """Close it."""
        self._end(run_id)

    def on_chat_model_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        """Open a model call's span."""
        self._start("chat", run_id, parent_run_id)

    def on_llm_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        """Close it."""
        self._end(run_id)

    def on_tool_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        """Open a tool call's span."""
        self._start("tool", run_id, parent_run_id)

    def on_tool_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        """Close it."""
        self._end(run_id)


class _Scripted(BaseChatModel):
    """Calls one tool ``steps`` times with new arguments, then answers.

    It reports its name and its tokens, as every provider's model does: some tracers leave a model
    without a name out.
    """

    steps: int
    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        usage: UsageMetadata = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
        message = AIMessage("done", usage_metadata=usage)
        if turn < self.steps:
            call = {"name": "look", "args": {"page": turn}, "id": f"call-{turn}"}
            message = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} has its own text"


def scripted_run(
    steps: int, handlers: Callable[[], list[BaseCallbackHandler]]
) -> Callable[[], object]:
    """One invocation of an agent of so many steps, with new handlers for each.

    The agent is made now, by the name that instrumentation may have wrapped.
    """
    agent: Any = langchain.agents.create_agent(_Scripted(steps=steps), [look])
    config = {"recursion_limit": 10_000}
    return lambda: agent.invoke(
        {"messages": [("user", "look around")]}, {**config, "callbacks": handlers()}
    )


def hook_run(steps: int, sessions: HookSessions) -> Callable[[], object]:
    """A coding agent's session of so many steps, each with two hooks: around its tool call."""
    payloads = [
        json.dumps(
            {
                "session_id": f"session of {steps}",
                "hook_event_name": event,
                "tool_name": "Read",
                "tool_use_id": f"toolu_{number}",
                "tool_input": {"file_path": f"/repository/page{number}.md"},
                "cwd": "/repository",
                **({"tool_response": f"text {number}"} if event == "PostToolUse" else {}),
            }
        ).encode()
        for number in range(steps)
        for event in ("PreToolUse", "PostToolUse")
    ]

    def run() -> None:
        for payload in payloads:
            sessions.receive("claude", payload)

    return run
