"""OpenInference: attributes are there when the span ends, messages spread over numbered ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import ABSENT, CallResult
from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import (
    HUMAN,
    control_flow,
    integer,
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

_KIND: Final = "openinference.span.kind"
_AGENTS: Final = ("AGENT", "CHAIN")
"""Kinds that enclose a run. Any chain with "agent" in its name is an AGENT: no surer than CHAIN."""

_NO_AGENTS: Final = ("langchain", "openai_agents")
"""Ends of the scopes in which a chain, or a whole trace, may be of kind AGENT."""

_BOUND: Final = ("llama_index", "dspy")
"""Ends of the scopes whose tools show the arguments of the function that calls any tool."""

_NAMED: Final = ("llama_index", "haystack")
"""Ends of the scopes in which the name of a span shows whether it is an agent."""

_PREPARES: Final = "._prepare_chat_with_tools"
"""End of the name of LlamaIndex's spans that only prepare a model call."""

_SMOLAGENTS: Final = ("ToolCallingAgent", "CodeAgent", "MultiStepAgent")
"""Classes of smolagents: what a span is called whose agent has no name."""

_DESCRIBED: Final = "Tool Name: "
"""How the description of a tool of CrewAI's begins."""

_AUTOMATIC: Final = "automatic_function_calling_history"
_REDACTED: Final = "__REDACTED__"
_CALL: Final = "message.tool_calls"


def _read(span: SpanData) -> KnownSpan | None:
    """What a span of OpenInference is."""
    kind = span.attributes[_KIND]
    if kind == "LLM":
        return None if span.name.endswith(_PREPARES) else _model(span)
    if kind == "TOOL":
        return _tool(span)
    if kind in _AGENTS:
        given, answer = _value(span.attributes, "input"), _value(span.attributes, "output")
        info = _run_info(span.attributes, langchain_task(given))
        if kind == "AGENT" and info.agent is None:
            info = info._replace(agent=_agent_name(span))
        sure = "agent.name" in span.attributes or _is_agent(span)
        return AgentSpan(info, sure, last_content(given), last_content(answer))
    return None


def _is_agent(span: SpanData) -> bool:
    """Whether a span that names no agent is one, and not a chain or a trace."""
    if span.scope.endswith(_NAMED):
        return span.name.endswith(("Agent.run", "AgentWorkflow.run"))
    return span.attributes[_KIND] == "AGENT" and not span.scope.endswith(_NO_AGENTS)


def _agent_name(span: SpanData) -> str | None:
    """The name of an agent that only its place in a graph, or its span, shows."""
    name = text(span.attributes.get("graph.node.id"))
    if name is None and span.scope.endswith("smolagents"):
        name = span.name.removesuffix(".run")
        return None if name in _SMOLAGENTS else name
    return name


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    shown = numbered(attributes, "llm.input_messages")
    return ModelSpan(
        _run_info(attributes, _task(shown)),
        None if _calls_by_itself(attributes) else _calls(attributes),
        _tokens(attributes),
        tuple(_answers(shown) or _answers_with_ids(attributes, shown)),
        text(attributes.get("llm.model_name")),
        span.failed,
    )


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    output = _value(attributes, "output")
    call_id = text(attributes.get("tool_call.id") or attributes.get("tool.id"))
    if type(output) is dict and output.keys() == {"id", "name", "response"}:
        output = output["response"]  # Google's, with a new id each time
    if span.failed or output is ABSENT:
        result, answers = tool_result(span, output), None
    else:
        result, answers = langchain_result(output, call_id=call_id)
    return ToolSpan(
        _run_info(attributes),
        _tool_name(span),
        _arguments(span),
        call_id or answers,
        result,
        span.failed and not control_flow(span),
    )


def _tool_name(span: SpanData) -> str:
    """The name that the model knows: CrewAI's tools have a title, too, and describe themselves."""
    described = text(span.attributes.get("tool.description")) or ""
    if span.scope.endswith("crewai") and described.startswith(_DESCRIBED):
        return described.removeprefix(_DESCRIBED).partition("\n")[0].strip()
    return text(span.attributes.get("tool.name")) or span.name.removesuffix(".__call__")


def _arguments(span: SpanData) -> object:
    given = _value(span.attributes, "input")
    if span.scope.endswith(_BOUND) and type(given) is dict and given.keys() == {"kwargs"}:
        return given["kwargs"]
    return given


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    metadata = mapping(attributes.get("metadata"))
    return RunInfo(
        text(attributes.get("agent.name") or metadata.get("lc_agent_name")),
        text(attributes.get("session.id") or metadata.get("thread_id")),
        task,
        labels(attributes, metadata),
    )


def _value(attributes: Attributes, side: str) -> object:
    value = attributes.get(f"{side}.value", ABSENT)
    if value == _REDACTED:
        return ABSENT
    return parsed(value) if "json" in (text(attributes.get(f"{side}.mime_type")) or "") else value


def _calls_by_itself(attributes: Attributes) -> bool:
    """Whether it is several calls of Google's model, with calls of functions between them."""
    output = str(attributes.get("output.value", ""))
    if _AUTOMATIC not in output:
        return False
    history = mapping(parsed(output)).get(_AUTOMATIC)
    return bool(calls_in(messages(history) or ())) if history else False


def _calls(attributes: Attributes) -> tuple[ChosenCall, ...] | None:
    """The calls that the model chose; ``None``, neither messages nor the whole output show them."""
    found: list[ChosenCall] = []
    said = numbered(attributes, "llm.output_messages")
    if not said:
        return _calls_in_response(attributes)
    for message in said:
        for call in numbered(message, _CALL):
            name = call.get("tool_call.function.name")
            if name:
                arguments = parsed(call.get("tool_call.function.arguments", {}))
                found.append(ChosenCall(str(name), arguments, text(call.get("tool_call.id"))))
    return tuple(found)


def _calls_in_response(attributes: Attributes) -> tuple[ChosenCall, ...] | None:
    """Those of the whole output, if that is OpenAI's response: streamed, it has no messages."""
    whole = _value(attributes, "output")
    for response in whole if type(whole) is list else [whole]:
        if type(response) is dict and response.get("object") == "response":
            return tuple(calls_in(messages(response.get("output")) or ()))
    return None


def _task(shown: list[dict[str, Any]]) -> str | None:
    for message in shown:
        if message.get("message.role") in HUMAN:
            content = _content(message)
            if content:
                return content
    return None


def _answers(shown: list[dict[str, Any]]) -> list[tuple[str, CallResult]]:
    found: list[tuple[str, CallResult]] = []
    for message in reversed(shown):
        if message.get("message.role") == "assistant":
            break
        call_id, content = message.get("message.tool_call_id"), _content(message)
        if call_id is None:  # BeeAI's are in the parts
            parts = numbered(message, "message.contents")
            call_id = next((part.get("message.tool_call_id") for part in parts), None)
        if call_id and content is not None:
            found.append((str(call_id), CallResult(content, None)))
    return found


def _answers_with_ids(
    attributes: Attributes, shown: list[dict[str, Any]]
) -> list[tuple[str, CallResult]]:
    """Those of the whole input, where the messages do not say which calls they answer."""
    last = shown[-1] if shown else {}
    if last.get("message.role") != "tool" and _content(last) is not None:
        return []
    given = _value(attributes, "input")
    whole = given.get("messages") if type(given) is dict else None
    return answers_in(messages(whole) or ())


def _content(message: Mapping[str, Any]) -> str | None:
    content = message.get("message.content")
    if content is None:
        blocks = numbered(message, "message.contents")
        texts = [str(block.get("message_content.text", "")) for block in blocks]
        content = " ".join(filter(None, texts)) or None
    return None if content is None or content == _REDACTED else str(content)


def _tokens(attributes: Attributes) -> int | None:
    sides = ("llm.token_count.prompt", "llm.token_count.completion")
    counted = [n for n in (integer(attributes.get(side)) for side in sides) if n is not None]
    return sum(counted) if counted else integer(attributes.get("llm.token_count.total"))


def _encloses(attributes: Attributes) -> bool:
    return attributes.get(_KIND) in _AGENTS


_HIDDEN: Final = (
    "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS, "
    "OPENINFERENCE_HIDE_INPUT_MESSAGES and OPENINFERENCE_HIDE_OUTPUT_MESSAGES"
)
_BY_ITSELF: Final = (
    "functions that the client calls by itself are in no span; use "
    "opentelemetry-instrumentation-google-genai, or disable automatic_function_calling"
)

CONVENTION: Final = Convention(
    name="OpenInference",
    markers=frozenset({_KIND}),
    encloses=_encloses,
    read=_read,
    contents=(
        *("openinference.", "llm.", "agent.", "agent_", "tool.", "tool_"),
        *("crew_", "task_", "smolagents."),
    ),
    looks_alike=("llm.",),
    announces={_KIND: ("AGENT",)},
    hints={
        "openinference.": _HIDDEN,
        "openinference.instrumentation.google_genai": _BY_ITSELF,
    },
    shown=f"`{_KIND}`",
    written_by="Arize Phoenix's instrumentations",
    wraps=("openai_agents", "google_adk", "crewai", "autogen_agentchat"),
    agent_names=("agent.name",),
)
