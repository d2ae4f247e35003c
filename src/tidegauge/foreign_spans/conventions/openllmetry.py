"""OpenLLMetry: the GenAI conventions for models, Traceloop's attributes around them.

Arguments and results come wrapped together with metadata of the run (step numbers, checkpoint
ids). The tool's own arguments and result are taken out: wrapped, no two calls would be the same.
"""

from __future__ import annotations

from typing import Any, Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.conventions import Convention, genai
from tidegauge.foreign_spans.json_values import (
    control_flow,
    labels,
    langchain_result,
    langchain_task,
    last_content,
    mapping,
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

_KIND: Final = "traceloop.span.kind"
_AGENTS: Final = ("workflow", "agent")
"""Kinds that enclose a run."""

_WORKFLOW: Final = "traceloop.workflow.name"
_PROPERTIES: Final = "traceloop.association.properties."
_WRAPPED: Final = frozenset({"inputs", "kwargs"})
_LLAMA_INDEX: Final = "llamaindex"
_INPUT, _OUTPUT = "traceloop.entity.input", "traceloop.entity.output"


def _read(span: SpanData) -> KnownSpan | None:
    """What a span of OpenLLMetry is."""
    attributes = span.attributes
    kind, operation = attributes.get(_KIND), attributes.get(genai.OPERATION)
    if kind == "tool" or operation == "execute_tool":
        return _tool(span)
    if "tool.name" in attributes:
        return _llama_index_tool(span)
    if kind == "task" and operation == "chat":
        return _model(span)
    agent = kind in _AGENTS or operation in genai.AGENTS
    if agent or kind == "task":  # a chain, whose input may be its agent's
        given = mapping(attributes.get(_INPUT)).get("inputs", ABSENT)
        answer = mapping(attributes.get(_OUTPUT)).get("outputs", ABSENT)
        info = _run_info(attributes, langchain_task(given))
        early = span.scope.endswith(_LLAMA_INDEX)  # what it has started goes on
        return AgentSpan(info, agent, last_content(given), last_content(answer), early)
    if kind is None and (operation in ("chat", "text_completion") or _asks(attributes)):
        return _model(span)
    return None


def _asks(attributes: Attributes) -> bool:
    return attributes.get("llm.request.type") in ("chat", "completion")


def _model(span: SpanData) -> ModelSpan:
    model = genai.read_model(span)
    calls = model.calls
    if calls is None:  # before 0.50: spread over numbered attributes
        said = numbered(span.attributes, "gen_ai.completion")
        calls = _numbered_calls(said) if said else None
    elif span.scope.endswith(_LLAMA_INDEX):  # which leaves them out
        calls = calls or None
    return model._replace(info=_run_info(span.attributes, model.info.task), calls=calls)


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    given = parsed(attributes.get("gen_ai.tool.call.arguments", attributes.get(_INPUT, ABSENT)))
    arguments, call_id = _unwrapped(given)
    output = parsed(attributes.get("gen_ai.tool.call.result", attributes.get(_OUTPUT, ABSENT)))
    if type(output) is dict and "output" in output:
        output = output["output"]
    call_id = text(attributes.get("gen_ai.tool.call.id")) or call_id
    result, answers = langchain_result(output, call_id=call_id)
    if span.failed:
        result = genai.tool_result(span, result.outcome)
    return ToolSpan(
        _run_info(attributes),
        text(attributes.get("gen_ai.tool.name"))
        or text(attributes.get("traceloop.entity.name"))
        or span.name.removeprefix("execute_tool "),
        arguments,
        call_id or answers,
        result,
        span.failed and not control_flow(span),
    )


def _llama_index_tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    output = mapping(attributes.get(_OUTPUT))
    result = mapping(output.get("tool_output")).get("raw_output", ABSENT)
    return ToolSpan(
        _run_info(attributes),
        text(attributes.get("tool.name")) or span.name,
        parsed(attributes.get("tool.arguments", output.get("tool_kwargs", ABSENT))),
        text(output.get("tool_id")),
        genai.tool_result(span, result),
        span.failed and not control_flow(span),
    )


def _unwrapped(given: object) -> tuple[object, str | None]:
    """The tool's own arguments, and the model's id of the call.

    >>> _unwrapped({"inputs": {"q": 1}, "metadata": {"step": 7}, "kwargs": {"tool_call_id": "c"}})
    ({'q': 1}, 'c')
    """
    if type(given) is not dict or not ("input_str" in given or given.keys() >= _WRAPPED):
        return given, None
    call_id = text(mapping(given.get("kwargs")).get("tool_call_id"))
    inputs = given.get("inputs")
    return (given.get("input_str") if inputs is None else inputs), call_id


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    start = len(_PROPERTIES)
    metadata: dict[str, Any] = {
        key[start:]: value for key, value in attributes.items() if key.startswith(_PROPERTIES)
    }
    return RunInfo(
        text(metadata.get("lc_agent_name") or attributes.get("gen_ai.agent.name")),
        text(attributes.get("gen_ai.conversation.id") or metadata.get("thread_id")),
        task,
        labels(attributes, metadata),
    )


def _numbered_calls(said: list[dict[str, Any]]) -> tuple[ChosenCall, ...]:
    return tuple(
        ChosenCall(str(call.get("name")), parsed(call.get("arguments", {})), text(call.get("id")))
        for message in said
        for call in numbered(message, "tool_calls")
    )


def _encloses(attributes: Attributes) -> bool:
    operation = attributes.get(genai.OPERATION)
    if operation is not None:
        return operation in genai.AGENTS
    return attributes.get(_KIND) in _AGENTS


_CONTENTS: Final = "set TRACELOOP_TRACE_CONTENT=true"

CONVENTION: Final = Convention(
    name="OpenLLMetry",
    markers=frozenset({_KIND, _WORKFLOW}),
    encloses=_encloses,
    read=_read,
    contents=("traceloop.", "gen_ai.", "llm."),
    looks_alike=("llm.",),
    announces={_KIND: ("agent", "workflow")},
    hints={"opentelemetry.instrumentation.": _CONTENTS, "traceloop.": _CONTENTS},
    shown=f"`{_KIND}`, `{_WORKFLOW}`",
    written_by="Traceloop's instrumentations",
    wraps=("openai_agents", "crewai"),
    agent_names=("agent.name", "traceloop.entity.name"),
)
