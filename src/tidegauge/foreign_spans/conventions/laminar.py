"""Laminar: spans of its SDK, with inputs and outputs as JSON.

Model calls have their messages in attributes of the GenAI conventions, spread over numbered ones
in older versions, or as input and output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention, genai
from tidegauge.foreign_spans.json_values import (
    control_flow,
    labels,
    last_content,
    numbered,
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
from tidegauge.runs.turn_calls import ChosenCall

_TYPE: Final = "lmnr.span.type"
_INPUT, _OUTPUT = "lmnr.span.input", "lmnr.span.output"
_SESSION: Final = "lmnr.association.properties.session_id"


def _read(span: SpanData) -> KnownSpan | None:
    kind = span.attributes[_TYPE]
    if kind == "DEFAULT" and genai.OPERATION in span.attributes:
        return genai.CONVENTION.read(span)
    if kind == "LLM":
        return _model(span)
    if kind == "TOOL":
        return _tool(span)
    if kind == "DEFAULT":
        given, answer = (parsed(span.attributes.get(name)) for name in (_INPUT, _OUTPUT))
        asked, answered = (last_content(value) for value in (given, answer))
        return AgentSpan(_run_info(span.attributes), False, asked, answered)
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    model = genai.read_model(span)
    shown = _messages(attributes, _INPUT) if not model.answers else []
    said = _messages(attributes, _OUTPUT)
    listed = numbered(attributes, "gen_ai.completion")
    calls = model.calls
    if calls is None and listed:
        calls = tuple(_numbered_calls(listed))
    elif calls is None and said:
        calls = tuple(calls_in(said))
    task = model.info.task or task_in(shown)
    return model._replace(
        info=_run_info(attributes, task),
        calls=calls,
        answers=model.answers or tuple(answers_in(shown)),
    )


def _messages(attributes: Attributes, name: str) -> list[Mapping[str, Any]]:
    value = parsed(attributes.get(name))
    return [] if isinstance(value, str) else messages(value) or []


def _numbered_calls(said: list[dict[str, Any]]) -> list[ChosenCall]:
    return [
        ChosenCall(str(call.get("name")), parsed(call.get("arguments", {})), text(call.get("id")))
        for message in said
        for call in numbered(message, "tool_calls")
    ]


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    return ToolSpan(
        _run_info(attributes),
        text(attributes.get("gen_ai.tool.name")) or span.name,
        parsed(attributes.get(_INPUT, ABSENT)),
        text(attributes.get("gen_ai.tool.call.id")),
        genai.tool_result(span, parsed(attributes.get(_OUTPUT, ABSENT))),
        span.failed and not control_flow(span),
    )


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    return RunInfo(
        text(attributes.get("gen_ai.agent.name")),
        text(attributes.get(_SESSION)),
        task,
        labels(attributes),
    )


def _encloses(attributes: Attributes) -> bool:
    if genai.OPERATION in attributes:
        return genai.CONVENTION.encloses(attributes)
    return attributes.get(_TYPE) == "DEFAULT"


CONVENTION: Final = Convention(
    name="Laminar",
    markers=frozenset({_TYPE}),
    encloses=_encloses,
    read=_read,
    contents=("lmnr.",),
    looks_alike=("lmnr.span.",),
    announces={},
    hints={},
    shown=f"`{_TYPE}`",
    written_by="Laminar's SDK, which OpenHands uses",
)
