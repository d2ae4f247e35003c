"""OpenLLMetry: the GenAI conventions for models, Traceloop's attributes around them.

Arguments and results come wrapped together with metadata of the run (step numbers, checkpoint
ids). What the tool was given and what it brought back is taken out: wrapped, no call would ever
be the same as another.
"""

from __future__ import annotations

from typing import Any, Final

from tidegauge.events import ABSENT
from tidegauge.instrumentation.spans import genai
from tidegauge.instrumentation.spans.span import (
    About,
    AgentSpan,
    Attributes,
    ModelSpan,
    Reading,
    SpanData,
    ToolSpan,
)
from tidegauge.instrumentation.spans.values import (
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
from tidegauge.instrumentation.told import ChosenCall

__all__ = ["AGENTS", "KIND", "WORKFLOW", "read", "speaks"]

KIND: Final = "traceloop.span.kind"
AGENTS: Final = ("workflow", "agent")
"""Kinds that enclose a run."""

WORKFLOW: Final = "traceloop.workflow.name"
_PROPERTIES: Final = "traceloop.association.properties."
_WRAPPED: Final = frozenset({"inputs", "kwargs"})
_INPUT, _OUTPUT = "traceloop.entity.input", "traceloop.entity.output"


def speaks(attributes: Attributes) -> bool:
    """Whether a span has attributes of Traceloop's."""
    return KIND in attributes or WORKFLOW in attributes


def read(span: SpanData) -> Reading | None:
    """What a span of OpenLLMetry is."""
    attributes = span.attributes
    kind, operation = attributes.get(KIND), attributes.get(genai.OPERATION)
    if kind == "tool" or operation == "execute_tool":
        return _tool(span)
    agent = kind in AGENTS or operation in genai.AGENTS
    if agent or kind == "task":  # a chain, which may tell what its agent was asked
        given = mapping(attributes.get(_INPUT)).get("inputs", ABSENT)
        answer = mapping(attributes.get(_OUTPUT)).get("outputs", ABSENT)
        about = _about(attributes, langchain_task(given))
        return AgentSpan(about, agent, last_content(given), last_content(answer))
    if kind is None and (operation in ("chat", "text_completion") or _asks(attributes)):
        return _model(span)
    return None


def _asks(attributes: Attributes) -> bool:
    return attributes.get("llm.request.type") in ("chat", "completion")


def _model(span: SpanData) -> ModelSpan:
    told = genai.read_model(span)
    calls = told.calls
    if calls is None:  # before 0.50: spread over numbered attributes
        said = numbered(span.attributes, "gen_ai.completion")
        calls = _numbered_calls(said) if said else None
    return told._replace(about=_about(span.attributes, told.about.task), calls=calls)


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    given = parsed(attributes.get("gen_ai.tool.call.arguments", attributes.get(_INPUT, ABSENT)))
    arguments, call_id = _unwrapped(given)
    told = parsed(attributes.get("gen_ai.tool.call.result", attributes.get(_OUTPUT, ABSENT)))
    if type(told) is dict and "output" in told:
        told = told["output"]
    result, answers = langchain_result(told)
    if span.failed:
        result = genai.tool_result(span, result.outcome)
    return ToolSpan(
        _about(attributes),
        text(attributes.get("gen_ai.tool.name"))
        or text(attributes.get("traceloop.entity.name"))
        or span.name.removeprefix("execute_tool "),
        arguments,
        text(attributes.get("gen_ai.tool.call.id")) or call_id or answers,
        result,
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


def _about(attributes: Attributes, task: str | None = None) -> About:
    start = len(_PROPERTIES)
    metadata: dict[str, Any] = {
        key[start:]: value for key, value in attributes.items() if key.startswith(_PROPERTIES)
    }
    return About(
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
