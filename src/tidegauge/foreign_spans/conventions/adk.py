"""Google's Agent Development Kit: requests and answers of the model are JSON.

Its other spans use the GenAI conventions. A tool's arguments and response may be in
attributes of ADK, too.
"""

from __future__ import annotations

from typing import Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention, genai
from tidegauge.foreign_spans.json_values import (
    control_flow,
    integer,
    labels,
    mapping,
    parsed,
    text,
)
from tidegauge.foreign_spans.span import (
    Attributes,
    KnownSpan,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)

_REQUEST: Final = "gcp.vertex.agent.llm_request"
_RESPONSE: Final = "gcp.vertex.agent.llm_response"
_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
_TOOL_RESPONSE: Final = "gcp.vertex.agent.tool_response"


def _read(span: SpanData) -> KnownSpan | None:
    attributes = span.attributes
    if genai.is_tool(attributes):
        return _tool(span)
    if genai.OPERATION in attributes:
        return genai.CONVENTION.read(span)
    if span.name.startswith("call_llm"):
        return _model(span)
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    request, response = (mapping(attributes.get(name)) for name in (_REQUEST, _RESPONSE))
    shown = messages(request.get("contents")) or []
    said = response.get("content")
    usage = mapping(response.get("usage_metadata"))
    return ModelSpan(
        _run_info(attributes, task_in(shown)),
        None if said is None else tuple(calls_in(messages(said) or [])),
        integer(usage.get("total_token_count")),
        tuple(answers_in(shown)),
        text(attributes.get("gen_ai.request.model")),
        span.failed,
    )


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    arguments = attributes.get("gen_ai.tool.call.arguments", attributes.get(_ARGUMENTS, ABSENT))
    result = attributes.get("gen_ai.tool.call.result", attributes.get(_TOOL_RESPONSE, ABSENT))
    return ToolSpan(
        genai.run_info(attributes),
        text(attributes.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool "),
        _given(arguments),
        text(attributes.get("gen_ai.tool.call.id")),
        genai.tool_result(span, _given(result)),
        span.failed and not control_flow(span),
    )


def _given(value: object) -> object:
    """A value that was captured: without contents, there is an empty object."""
    return ABSENT if value in ("{}", {}) else parsed(value)


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    return RunInfo(
        text(attributes.get("gen_ai.agent.name")),
        text(attributes.get("gcp.vertex.agent.session_id")),
        task,
        labels(attributes),
    )


def _encloses(attributes: Attributes) -> bool:
    return attributes.get(genai.OPERATION) in genai.AGENTS


CONVENTION: Final = Convention(
    name="Google ADK",
    markers=frozenset({_REQUEST, _ARGUMENTS, genai.OPERATION}),
    encloses=_encloses,
    read=_read,
    contents=("gcp.vertex.agent.", "gen_ai."),
    looks_alike=(),
    announces={},
    hints={"gcp.vertex.agent": "set ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true"},
    shown=f"`{_REQUEST}`",
    written_by="its older spans",
    scope="gcp.vertex.agent",
    wraps=("gcp.vertex.agent",),
    content_markers=frozenset({_REQUEST, _ARGUMENTS}),
)
