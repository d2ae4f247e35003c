"""Langfuse: observations with an input and an output, of its SDK and its decorators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import ABSENT
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import (
    control_flow,
    integer,
    json_value,
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

_TYPE: Final = "langfuse.observation.type"
_INPUT, _OUTPUT = "langfuse.observation.input", "langfuse.observation.output"
_METADATA: Final = "langfuse.observation.metadata."
_AGENTS: Final = ("agent", "chain")


def _read(span: SpanData) -> KnownSpan | None:
    kind = str(span.attributes[_TYPE]).lower()
    if kind == "generation":
        return _model(span)
    if kind == "tool":
        return _tool(span)
    if kind in _AGENTS:
        sure = kind == "agent"
        given, answer = _value(span.attributes, _INPUT), _value(span.attributes, _OUTPUT)
        info = _run_info(span.attributes, _task(given))
        if sure:
            info = info._replace(agent=info.agent or span.name or None)
        return AgentSpan(info, sure, last_content(given), last_content(answer))
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    given = parsed(attributes.get(_INPUT))
    if type(given) is dict:
        given = given.get("messages", given.get("input", given.get("contents", given)))
    shown = messages(given) or [] if not isinstance(given, str) else []
    said = attributes.get(_OUTPUT)
    return ModelSpan(
        _run_info(attributes, task_in(shown)),
        None if said is None else tuple(calls_in(_said(said))),
        _tokens(attributes),
        tuple(answers_in(shown)),
        text(attributes.get("langfuse.observation.model.name")),
        span.failed,
    )


def _said(output: object) -> list[Mapping[str, Any]]:
    """What the model said: a message, a list of them, or a plain text."""
    output = parsed(output)
    if type(output) is dict and "choices" in output:
        output = output["choices"]
    return [] if isinstance(output, str) else list(messages(output) or [])


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    output = _value(attributes, _OUTPUT)
    call_id = text(_metadata(attributes).get("tool_call_id"))
    result, answers = langchain_result(output, call_id=call_id)
    if span.failed or output is ABSENT:
        result = tool_result(span, output)
    given = _value(attributes, _INPUT)
    return ToolSpan(
        _run_info(attributes),
        span.name,
        given,
        call_id or answers,
        result,
        span.failed and not control_flow(span),
    )


def _value(attributes: Attributes, name: str) -> object:
    """An input or output; of a decorated function's arguments, those by name if there are none."""
    value = parsed(attributes.get(name, ABSENT))
    if type(value) is dict and value.keys() == {"args", "kwargs"} and value["args"] == []:
        return value["kwargs"]
    return value


def _task(given: object) -> str | None:
    if type(given) is dict and given.keys() == {"args", "kwargs"}:
        given = next(iter(given["args"] or ()), None)
    return langchain_task(given)


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    metadata = _metadata(attributes)
    return RunInfo(
        text(metadata.get("lc_agent_name") or metadata.get("agent_name")),
        text(attributes.get("session.id") or metadata.get("thread_id")),
        task,
        labels(attributes, metadata),
    )


def _metadata(attributes: Attributes) -> dict[str, Any]:
    """What users and LangChain attached: a JSON value each, a text in quotes included.

    >>> _metadata({"langfuse.observation.metadata.lc_agent_name": '"searcher"'})
    {'lc_agent_name': 'searcher'}
    """
    found = {
        key[len(_METADATA) :]: json_value(value)
        for key, value in attributes.items()
        if key.startswith(_METADATA)
    }
    return {**found, **mapping(attributes.get("langfuse.observation.metadata"))}


def _tokens(attributes: Attributes) -> int | None:
    usage = mapping(attributes.get("langfuse.observation.usage_details"))
    for sides in (("input", "output"), ("prompt_tokens", "completion_tokens"), ("total",)):
        counted = [n for n in (integer(usage.get(side)) for side in sides) if n is not None]
        if counted:
            return sum(counted)
    return None


def _encloses(attributes: Attributes) -> bool:
    return str(attributes.get(_TYPE)).lower() in _AGENTS


CONVENTION: Final = Convention(
    name="Langfuse",
    markers=frozenset({_TYPE}),
    encloses=_encloses,
    read=_read,
    contents=("langfuse.",),
    looks_alike=("langfuse.observation.",),
    announces={_TYPE: ("agent",)},
    hints={},
    shown=f"`{_TYPE}`",
    written_by="Langfuse's SDK and decorators",
)
