"""The OpenTelemetry GenAI conventions; pydantic-ai and hand-written spans speak them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegauge._span_faults import span_faults
from tidegauge.events import ABSENT, CallResult
from tidegauge.instrumentation.spans.conventions.convention import Convention
from tidegauge.instrumentation.spans.json_values import (
    HUMAN,
    control_flow,
    failure_text,
    integer,
    labels,
    mapping,
    parsed,
    text,
)
from tidegauge.instrumentation.spans.span import (
    AgentSpan,
    Attributes,
    KnownSpan,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)
from tidegauge.instrumentation.turns import ChosenCall

__all__ = ["AGENTS", "CONVENTION", "OPERATION", "read_model", "run_info", "tool_result"]

OPERATION: Final = "gen_ai.operation.name"
AGENTS: Final = ("invoke_agent", "invoke_workflow")
"""Operations that enclose a run."""

_MODELS: Final = ("chat", "text_completion", "generate_content")
_MAX_MESSAGES: Final = 20_000
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_OUTPUT, _INPUT = "gen_ai.output.messages", "gen_ai.input.messages"


def _read(span: SpanData) -> KnownSpan | None:
    """What a span of these conventions is."""
    attributes = span.attributes
    operation = attributes[OPERATION]
    if operation in _MODELS:
        return read_model(span)
    if operation == "execute_tool":
        return ToolSpan(
            run_info(attributes),
            text(attributes.get("gen_ai.tool.name")) or span.name.removeprefix("execute_tool "),
            parsed(attributes.get("gen_ai.tool.call.arguments", ABSENT)),
            text(attributes.get("gen_ai.tool.call.id")),
            tool_result(span, attributes.get("gen_ai.tool.call.result", ABSENT)),
            span.failed and not control_flow(span),
        )
    if operation in AGENTS:
        shown = _messages(attributes.get(_INPUT)) or ()
        said = _messages(attributes.get(_OUTPUT)) or ()
        sure = operation == "invoke_agent"
        return AgentSpan(run_info(attributes, _task(shown)), sure, _last(shown), _last(said))
    return None


def read_model(span: SpanData) -> ModelSpan:
    """A model call: its tool calls, its tokens, and the answers that it was shown."""
    attributes = _with_details(span)
    shown, said = _messages(attributes.get(_INPUT)) or (), _messages(attributes.get(_OUTPUT))
    asked = _output_tools(attributes)
    calls = None
    if said is not None:
        calls = tuple(call for call in _calls(said) if call.name not in asked)
    return ModelSpan(
        run_info(attributes, _task(shown)),
        calls,
        _tokens(attributes),
        tuple(_answers(shown)),
        text(attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")),
        span.failed,
    )


def run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    """Agent, conversation and labels."""
    return RunInfo(
        text(attributes.get("gen_ai.agent.name")),
        text(attributes.get("gen_ai.conversation.id")),
        task,
        labels(attributes),
    )


def tool_result(span: SpanData, outcome: object) -> CallResult:
    """The result of a tool's span: its output, else the text of its failure."""
    if not span.failed:
        return CallResult(outcome, False)
    if control_flow(span):
        return CallResult()
    if outcome is ABSENT:
        failure = failure_text(span)
        return CallResult(ABSENT if failure is None else failure, True)
    return CallResult(outcome, True)


def _with_details(span: SpanData) -> Attributes:
    """The span's attributes, and those of the event that may carry the messages for it."""
    for name, attributes in span.events:
        if name == _DETAILS:
            return {**attributes, **span.attributes}
    return span.attributes


def _messages(value: object) -> list[Mapping[str, Any]] | None:
    value = parsed(value)
    if not isinstance(value, list | tuple) or len(value) > _MAX_MESSAGES:
        if value is not None:
            span_faults.repair("unreadable")
        return None
    return [message for message in map(parsed, value) if type(message) is dict]


def _parts(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    parts = message.get("parts")
    if not isinstance(parts, list | tuple):
        return []
    return [part for part in parts if type(part) is dict and part.get("type") == kind]


def _calls(messages: Sequence[Mapping[str, Any]]) -> list[ChosenCall]:
    return [
        ChosenCall(str(part.get("name")), parsed(part.get("arguments")), text(part.get("id")))
        for message in messages
        for part in _parts(message, "tool_call")
    ]


def _task(messages: Sequence[Mapping[str, Any]]) -> str | None:
    for message in messages:
        if message.get("role") in HUMAN:
            texts = [str(part.get("content", "")) for part in _parts(message, "text")]
            if any(texts):
                return " ".join(texts)
    return None


def _last(messages: Sequence[Mapping[str, Any]]) -> object:
    """The text of the last message."""
    texts = [part.get("content") for part in _parts(messages[-1], "text")] if messages else []
    return texts[-1] if texts else ABSENT


def _answers(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, CallResult]]:
    """Results of calls after the model's last message; whether they failed is not known."""
    found: list[tuple[str, CallResult]] = []
    for message in reversed(messages):
        if message.get("role") == "assistant" or _parts(message, "tool_call"):
            break
        for part in _parts(message, "tool_call_response"):
            for key in ("response", "result", "content"):
                if part.get("id") and key in part:
                    found.append((str(part["id"]), CallResult(part[key], None)))
                    break
    return found


def _tokens(attributes: Attributes) -> int | None:
    counts = (
        attributes.get("gen_ai.usage.input_tokens", attributes.get("gen_ai.usage.prompt_tokens")),
        attributes.get(
            "gen_ai.usage.output_tokens", attributes.get("gen_ai.usage.completion_tokens")
        ),
    )
    counted = [number for number in map(integer, counts) if number is not None]
    return sum(counted) if counted else None


def _output_tools(attributes: Attributes) -> set[str]:
    """pydantic-ai: tools that carry the form of the final answer are not actions."""
    tools = mapping(attributes.get("model_request_parameters")).get("output_tools")
    if not isinstance(tools, list):
        return set()
    return {str(tool.get("name")) for tool in tools if type(tool) is dict}


def _encloses(attributes: Attributes) -> bool:
    return attributes.get(OPERATION) in AGENTS


CONVENTION: Final = Convention("OpenTelemetry GenAI", frozenset({OPERATION}), _encloses, _read)
