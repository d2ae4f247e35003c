"""LangSmith over OpenTelemetry: runs of LangChain, with inputs and outputs as JSON."""

from __future__ import annotations

from typing import Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import (
    control_flow,
    integer,
    labels,
    langchain_result,
    langchain_task,
    last_content,
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

_KIND: Final = "langsmith.span.kind"
_METADATA: Final = "langsmith.metadata."
_INPUT, _OUTPUT = "gen_ai.prompt", "gen_ai.completion"


def _read(span: SpanData) -> KnownSpan | None:
    kind = span.attributes[_KIND]
    if kind == "llm":
        return _model(span)
    if kind == "tool":
        return _tool(span)
    if kind == "chain":
        given, answer = (parsed(span.attributes.get(name)) for name in (_INPUT, _OUTPUT))
        info = _run_info(span.attributes, langchain_task(given))
        return AgentSpan(info, False, last_content(given), last_content(answer))
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    shown = messages(mapping(attributes.get(_INPUT)).get("messages")) or []
    output, calls = parsed(attributes.get(_OUTPUT)), None
    if type(output) is dict:
        said = output.get("generations", output.get("messages", output.get("choices", output)))
        calls = tuple(calls_in(messages(said) or []))
    return ModelSpan(
        _run_info(attributes, task_in(shown)),
        calls,
        _tokens(attributes),
        tuple(answers_in(shown)),
        text(attributes.get("gen_ai.request.model")),
        span.failed,
    )


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    output = parsed(attributes.get(_OUTPUT, ABSENT))
    if type(output) is dict and output.keys() == {"output"}:
        output = output["output"]
    call_id = text(attributes.get("gen_ai.tool.call.id"))
    result, answers = langchain_result(output, call_id=call_id)
    if span.failed or output is ABSENT:
        result = tool_result(span, output)
    return ToolSpan(
        _run_info(attributes),
        text(attributes.get("gen_ai.tool.name")) or span.name,
        parsed(attributes.get(_INPUT, ABSENT)),
        call_id or answers,
        result,
        span.failed and not control_flow(span),
    )


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    metadata = {
        key[len(_METADATA) :]: value
        for key, value in attributes.items()
        if key.startswith(_METADATA)
    }
    return RunInfo(
        text(metadata.get("lc_agent_name")),
        text(metadata.get("thread_id") or metadata.get("session_id")),
        task,
        labels(attributes, metadata),
    )


def _tokens(attributes: Attributes) -> int | None:
    usage = mapping(attributes.get(f"{_METADATA}usage_metadata"))
    sides = (
        attributes.get("gen_ai.usage.input_tokens", usage.get("input_tokens")),
        attributes.get("gen_ai.usage.output_tokens", usage.get("output_tokens")),
    )
    counted = [number for number in map(integer, sides) if number is not None]
    return sum(counted) if counted else None


def _encloses(attributes: Attributes) -> bool:
    return attributes.get(_KIND) == "chain"


CONVENTION: Final = Convention(
    name="LangSmith",
    markers=frozenset({_KIND}),
    encloses=_encloses,
    read=_read,
    contents=("langsmith.",),
    looks_alike=("langsmith.span.",),
    announces={},
    hints={},
    shown=f"`{_KIND}`",
    written_by="LangSmith's export over OpenTelemetry",
)
