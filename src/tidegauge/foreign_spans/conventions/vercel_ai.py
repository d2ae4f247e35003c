"""The Vercel AI SDK 5 and 6: its own attributes, beside those of the GenAI conventions.

Only the span around a request to the model (``doGenerate``, ``doStream``) is a model call; the
span around all of a task's requests encloses the run.
"""

from __future__ import annotations

from typing import Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import (
    control_flow,
    integer,
    json_value,
    labels,
    mapping,
    parsed,
    text,
)
from tidegauge.foreign_spans.span import (
    AgentSpan,
    Attributes,
    KnownSpan,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)

_OPERATION: Final = "ai.operationId"
_AGENTS: Final = (
    "ai.generateText",
    "ai.streamText",
    "ai.generateObject",
    "ai.streamObject",
    "ai.agent",
)
_MODELS: Final = (".doGenerate", ".doStream")
_TOOL: Final = "ai.toolCall"


def _read(span: SpanData) -> KnownSpan | None:
    operation = str(span.attributes[_OPERATION])
    if operation == _TOOL:
        return _tool(span)
    if operation.startswith("ai.embed"):
        return None
    if operation.endswith(_MODELS):
        return _model(span)
    if _encloses(span.attributes):
        given = mapping(span.attributes.get("ai.prompt"))
        shown = messages(given.get("messages"))
        task = text(given.get("prompt")) or (task_in(shown) if shown else None)
        said = text(span.attributes.get("ai.response.text"))
        return AgentSpan(_run_info(span.attributes, task), True, task or ABSENT, said or ABSENT)
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    shown = messages(attributes.get("ai.prompt.messages")) or []
    chosen, said = attributes.get("ai.response.toolCalls"), attributes.get("ai.response.text")
    calls = None
    if chosen is not None:
        calls = tuple(calls_in([{"role": "assistant", "tool_calls": parsed(chosen)}]))
    elif said is not None:
        calls = ()
    return ModelSpan(
        _run_info(attributes, task_in(shown)),
        calls,
        _tokens(attributes),
        tuple(answers_in(shown)),
        text(attributes.get("ai.model.id")),
        span.failed,
    )


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    result = attributes.get("ai.toolCall.result", attributes.get("ai.toolCall.output", ABSENT))
    return ToolSpan(
        _run_info(attributes),
        text(attributes.get("ai.toolCall.name")) or span.name,
        parsed(attributes.get("ai.toolCall.args", attributes.get("ai.toolCall.input", ABSENT))),
        text(attributes.get("ai.toolCall.id")),
        tool_result(span, json_value(result)),
        span.failed and not control_flow(span),
    )


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    metadata = "ai.telemetry.metadata."
    return RunInfo(
        text(attributes.get("ai.telemetry.functionId") or attributes.get("resource.name")),
        text(
            attributes.get("gen_ai.conversation.id")
            or attributes.get(f"{metadata}sessionId")
            or attributes.get(f"{metadata}threadId")
        ),
        task,
        labels(attributes),
    )


def _tokens(attributes: Attributes) -> int | None:
    for sides in (
        ("ai.usage.inputTokens", "ai.usage.outputTokens"),
        ("ai.usage.promptTokens", "ai.usage.completionTokens"),
        ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ):
        counted = [n for n in (integer(attributes.get(side)) for side in sides) if n is not None]
        if counted:
            return sum(counted)
    return None


def _encloses(attributes: Attributes) -> bool:
    return str(attributes.get(_OPERATION)) in _AGENTS


CONVENTION: Final = Convention(
    name="Vercel AI SDK 5 and 6",
    markers=frozenset({_OPERATION}),
    encloses=_encloses,
    read=_read,
    contents=("ai.",),
    looks_alike=("ai.",),
    announces={},
    hints={
        "ai": "set recordInputs and recordOutputs to true in the telemetry settings of the AI SDK"
    },
    shown=f"`{_OPERATION}`",
    written_by="`experimental_telemetry`",
    in_tools=True,
    copied=("ai.telemetry.metadata",),
)
