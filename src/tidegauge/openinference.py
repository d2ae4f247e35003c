"""Adds OpenInference's attributes to spans of the GenAI conventions, for one exporter.

Backends that read OpenInference (Phoenix, Arize AX) then show inputs, outputs, messages, tools and
documents as their own. Other exporters get the spans unchanged. Conversion runs where spans are
exported, not in the agent.

Source: the semantic conventions of OpenInference, version 0.1.42 of their package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.types import AttributeValue

from tidegauge._span_copy import SpanCopy
from tidegauge.tracer import conventions as names

_Found: TypeAlias = Iterator[tuple[str, AttributeValue]]
_Given: TypeAlias = Mapping[str, Any]

_KIND: Final = "openinference.span.kind"
_KINDS: Final = {
    "invoke_agent": "AGENT",
    "create_agent": "AGENT",
    "invoke_workflow": "CHAIN",
    "chat": "LLM",
    "text_completion": "LLM",
    "generate_content": "LLM",
    "execute_tool": "TOOL",
    "retrieval": "RETRIEVER",
    "embeddings": "EMBEDDING",
}
_RENAMED: Final = {
    "AGENT": {names.AGENT_NAME: "agent.name"},
    "LLM": {
        names.USAGE_INPUT_TOKENS: "llm.token_count.prompt",
        names.USAGE_OUTPUT_TOKENS: "llm.token_count.completion",
        names.USAGE_CACHE_READ_TOKENS: "llm.token_count.prompt_details.cache_read",
        names.USAGE_CACHE_WRITE_TOKENS: "llm.token_count.prompt_details.cache_write",
        names.USAGE_REASONING_TOKENS: "llm.token_count.completion_details.reasoning",
    },
    "TOOL": {
        names.TOOL_NAME: "tool.name",
        names.TOOL_DESCRIPTION: "tool.description",
        names.TOOL_CALL_ID: "tool.id",
    },
}
"""Attributes that have another name there, by the kind of span."""

_REQUEST: Final = "gen_ai.request."
NAMES: Final = (
    *(_KIND, "session.id", "tag.tags", "input.value", "input.mime_type"),
    *("output.value", "output.mime_type", "llm.provider", "llm.system", "llm.model_name"),
    *("embedding.model_name", "llm.finish_reason", "llm.invocation_parameters", "llm.tools"),
    *("llm.token_count.total", "llm.input_messages", "llm.output_messages", "retrieval.documents"),
    *(name for renamed in _RENAMED.values() for name in renamed.values()),
)
"""The attributes that are added; those of messages, tools and documents are below theirs."""


class OpenInferenceExporter(SpanExporter):
    """Exports spans of models, tools, agents and retrievals with OpenInference's attributes, too.

    Spans that are none of these, or have such attributes, are exported as they are.

    Args:
        exporter: gets the spans.

    >>> from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    >>> exporter = OpenInferenceExporter(ConsoleSpanExporter())
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans with more attributes."""
        return self._exporter.export([_converted(span) for span in spans])

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)


def _converted(span: ReadableSpan) -> ReadableSpan:
    with suppress(Exception):  # anything may be on a span
        given = dict(span.attributes or {})
        kind = _KINDS.get(str(given.get(names.OPERATION_NAME)))
        if kind is not None and _KIND not in given:
            return SpanCopy(span, {**given, _KIND: kind, **dict(_ADDED[kind](given, kind))})
    return span


def _common(given: _Given, kind: str) -> _Found:
    for name, other in _RENAMED.get(kind, {}).items():
        if name in given:
            yield other, given[name]
    if names.CONVERSATION_ID in given and names.SESSION_ID not in given:
        yield "session.id", given[names.CONVERSATION_ID]
    if names.TAGS in given:
        yield "tag.tags", given[names.TAGS]


def _agent(given: _Given, kind: str) -> _Found:
    yield from _common(given, kind)
    if names.INPUT_MESSAGES in given:
        yield from _value("input", given[names.INPUT_MESSAGES])
    elif names.TASK in given:
        yield from _value("input", given[names.TASK])
    yield from _value("output", given.get(names.OUTPUT_MESSAGES))


def _model(given: _Given, kind: str) -> _Found:
    yield from _common(given, kind)
    model = given.get(names.RESPONSE_MODEL) or given.get(names.REQUEST_MODEL)
    if model:
        yield ("embedding" if kind == "EMBEDDING" else "llm") + ".model_name", model
    if names.PROVIDER_NAME in given:
        yield "llm.provider", given[names.PROVIDER_NAME]
        yield "llm.system", given[names.PROVIDER_NAME]
    read, written = given.get(names.USAGE_INPUT_TOKENS), given.get(names.USAGE_OUTPUT_TOKENS)
    if read is not None and written is not None:
        yield "llm.token_count.total", read + written
    if reasons := given.get(names.RESPONSE_FINISH_REASONS):
        yield "llm.finish_reason", reasons[0]
    parameters = {
        name.removeprefix(_REQUEST): value
        for name, value in given.items()
        if name.startswith(_REQUEST) and name != names.REQUEST_MODEL
    }
    if parameters:
        yield "llm.invocation_parameters", json.dumps(parameters)
    yield from _value("input", given.get(names.INPUT_MESSAGES))
    yield from _value("output", given.get(names.OUTPUT_MESSAGES))
    system = _list(given.get(names.SYSTEM_INSTRUCTIONS))
    shown = [{"role": "system", "parts": system}] if system else []
    shown += _list(given.get(names.INPUT_MESSAGES))
    yield from _messages("llm.input_messages", shown)
    yield from _messages("llm.output_messages", _list(given.get(names.OUTPUT_MESSAGES)))
    for at, tool in enumerate(_list(given.get(names.TOOL_DEFINITIONS))):
        yield f"llm.tools.{at}.tool.json_schema", json.dumps(tool)


def _tool(given: _Given, kind: str) -> _Found:
    yield from _common(given, kind)
    yield from _value("input", given.get(names.TOOL_CALL_ARGUMENTS))
    yield from _value("output", given.get(names.TOOL_CALL_RESULT))


def _retrieval(given: _Given, kind: str) -> _Found:
    yield from _common(given, kind)
    yield from _value("input", given.get(names.RETRIEVAL_QUERY))
    for at, document in enumerate(_list(given.get(names.RETRIEVAL_DOCUMENTS))):
        for name in ("id", "content", "score"):
            if isinstance(document.get(name), str | int | float):
                yield f"retrieval.documents.{at}.document.{name}", document[name]


_ADDED: Final[dict[str, Callable[[_Given, str], _Found]]] = {
    "AGENT": _agent,
    "CHAIN": _agent,
    "LLM": _model,
    "EMBEDDING": _model,
    "TOOL": _tool,
    "RETRIEVER": _retrieval,
}


def _messages(prefix: str, messages: Sequence[_Given]) -> _Found:
    for at, message in enumerate(messages):
        here = f"{prefix}.{at}.message"
        if isinstance(message.get("role"), str):
            yield f"{here}.role", message["role"]
        texts, calls = [], 0
        for part in _parts(message):
            kind = part.get("type")
            if kind == "tool_call":
                call = f"{here}.tool_calls.{calls}.tool_call"
                calls += 1
                yield f"{call}.function.name", str(part.get("name", ""))
                yield f"{call}.function.arguments", _text(part.get("arguments", {}))
                if isinstance(part.get("id"), str):
                    yield f"{call}.id", part["id"]
            elif kind == "tool_call_response":
                texts.append(_text(part.get("response", "")))
                if isinstance(part.get("id"), str):
                    yield f"{here}.tool_call_id", part["id"]
            elif "content" in part:
                texts.append(_text(part["content"]))
        if texts:
            yield f"{here}.content", "\n".join(texts)


def _value(side: str, content: Any) -> _Found:
    """An input or output: the text of a message, if that is all there is, else the content."""
    if not isinstance(content, str):
        return
    parts = [part for message in _list(content) for part in _parts(message)]
    if len(parts) == 1 and parts[0].get("type") == "text":
        content = _text(parts[0].get("content", ""))
    yield f"{side}.value", content
    yield f"{side}.mime_type", "application/json" if content[:1] in ("{", "[") else "text/plain"


def _list(content: Any) -> list[dict[str, Any]]:
    """The objects in a JSON array; none if it is something else."""
    with suppress(ValueError, TypeError):
        found = json.loads(content)
        if isinstance(found, list):
            return [one for one in found if isinstance(one, dict)]
    return []


def _parts(message: _Given) -> list[dict[str, Any]]:
    parts = message.get("parts")
    return [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
