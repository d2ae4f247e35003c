"""Logfire's spans of the OpenAI Agents SDK, which their message templates distinguish."""

from __future__ import annotations

from typing import Any, Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import (
    control_flow,
    integer,
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

_TEMPLATE: Final = "logfire.msg_template"
_AGENT: Final = "Agent run"
_AROUND: Final = ("OpenAI Agents trace", "Task", "Turn", _AGENT)
_MODELS: Final = ("Responses API", "Chat completion", "Generation")


def _read(span: SpanData) -> KnownSpan | None:
    attributes = span.attributes
    template = str(attributes[_TEMPLATE])
    if template.startswith(_AGENT):
        return AgentSpan(_run_info(attributes, attributes.get("name")))
    if template.startswith(_AROUND):
        return AgentSpan(_run_info(attributes, attributes.get("agent_name")), sure=False)
    if template.startswith("Function"):
        return _tool(span, attributes.get("name"), attributes.get("output", ABSENT))
    if template.startswith("Handoff"):
        return _tool(span, f"handoff to {attributes.get('to_agent')}", attributes.get("to_agent"))
    if template.startswith(_MODELS):
        return _model(span)
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    shown = messages(attributes.get("raw_input", attributes.get("request_data"))) or []
    if not shown:
        shown = messages(attributes.get("input")) or []
    output: Any = mapping(attributes.get("response")).get("output")
    if output is None:
        output = mapping(attributes.get("response_data")).get("message", attributes.get("output"))
    usage = mapping(attributes.get("usage"))
    sides = [integer(usage.get(side)) for side in ("input_tokens", "output_tokens")]
    counted = [number for number in sides if number is not None]
    return ModelSpan(
        _run_info(attributes, None, task_in(shown)),
        None if output is None else tuple(calls_in(messages(output) or [])),
        sum(counted) if counted else None,
        tuple(answers_in(shown)),
        text(attributes.get("gen_ai.request.model")),
        span.failed,
    )


def _tool(span: SpanData, name: object, output: object) -> ToolSpan:
    return ToolSpan(
        _run_info(span.attributes, None),
        text(name) or span.name,
        parsed(span.attributes.get("input", ABSENT)),
        None,
        tool_result(span, parsed(output)),
        span.failed and not control_flow(span),
    )


def _run_info(attributes: Attributes, agent: object, task: str | None = None) -> RunInfo:
    return RunInfo(text(agent), text(attributes.get("group_id")), task, labels(attributes))


def _encloses(attributes: Attributes) -> bool:
    return str(attributes.get(_TEMPLATE)).startswith(_AROUND)


CONVENTION: Final = Convention(
    name="Logfire",
    markers=frozenset({_TEMPLATE}),
    encloses=_encloses,
    read=_read,
    contents=("logfire.",),
    looks_alike=(),
    announces={},
    hints={},
    shown=f"`{_TEMPLATE}`, of the OpenAI Agents SDK",
    written_by="`logfire.instrument_openai_agents()`",
    scope="logfire.openai_agents",
    wraps=("openai_agents",),
)
