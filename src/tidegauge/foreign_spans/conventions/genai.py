"""The OpenTelemetry GenAI conventions, which many frameworks and hand-written spans use.

Contents are attributes, or events of the span: one with all details, or one a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import ABSENT, CallResult, made
from tidegauge.foreign_spans.chat_messages import (
    answers_in,
    calls_in,
    last_text,
    messages,
    task_in,
)
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.json_values import (
    LABEL_KEYS,
    control_flow,
    failure_text,
    integer,
    labels,
    mapping,
    parsed,
    text,
    tool_message_text,
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

OPERATION: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
AGENTS: Final = ("invoke_agent", "invoke_workflow")
"""Operations that enclose a run."""

_MERGED: Final = "(merged tools)"
"""Google's ADK: name of the tool of a span that shows again what parallel calls returned."""

_MODELS: Final = ("chat", "text_completion", "generate_content")
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_CHOICE: Final = "gen_ai.choice"
ASSISTANT: Final = "gen_ai.assistant.message"
"""Event of a message of the model that it was shown again."""

_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    ASSISTANT: "assistant",
    "gen_ai.tool.message": "tool",
}
EVENTS: Final = frozenset({_DETAILS, _CHOICE, *_ROLES})
"""Names of the events that have contents."""

_NO_LABELS: Final[Mapping[str, str]] = {}
_OUTPUT, _INPUT = "gen_ai.output.messages", "gen_ai.input.messages"


def _read(span: SpanData) -> KnownSpan | None:
    """What a span of these conventions is."""
    attributes = span.attributes
    operation = attributes[OPERATION]
    if operation in _MODELS and span.name.startswith(INVOKE_AGENT):
        operation = INVOKE_AGENT  # LiteLLM writes its attributes over those of the span around it
    if operation in _MODELS:
        return read_model(span)
    if operation == "execute_tool" and attributes.get("gen_ai.tool.name") != _MERGED:
        return _tool(span)
    if operation in AGENTS:
        attributes = with_details(span)
        shown = messages(attributes.get(_INPUT)) or ()
        said = messages(attributes.get(_OUTPUT)) or ()
        sure = operation == INVOKE_AGENT
        return AgentSpan(
            run_info(attributes, task_in(shown)), sure, last_text(shown), last_text(said)
        )
    return None


def is_tool(attributes: Attributes) -> bool:
    """Whether a span with these attributes is a tool call."""
    if attributes.get(OPERATION) != "execute_tool":
        return False
    return attributes.get("gen_ai.tool.name") != _MERGED


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    arguments = attributes.get("gen_ai.tool.call.arguments", ABSENT)
    result = attributes.get("gen_ai.tool.call.result", ABSENT)
    for name, details in span.events:  # what the tool was given and said, as messages
        if name == "gen_ai.tool.message" and arguments is ABSENT:
            arguments = details.get("content", ABSENT)
        elif name == _CHOICE and result is ABSENT:
            result = last_text([_message("tool", details)])
    tool, call_id = attributes.get("gen_ai.tool.name"), attributes.get("gen_ai.tool.call.id")
    if isinstance(result, str) and result.startswith("content="):
        result = tool_message_text(result)
    fields = (
        run_info(attributes),
        (text(tool) if type(tool) is not str else tool) or span.name.removeprefix("execute_tool "),
        parsed(arguments) if type(arguments) is str else arguments,
        text(call_id) if type(call_id) is not str else call_id or None,
        tool_result(span, result) if span.failed else made(CallResult, (result, False)),
        span.failed and not control_flow(span),
    )
    return made(ToolSpan, fields)


def read_model(span: SpanData) -> ModelSpan:
    """A model call: its tool calls, its tokens, and the answers that it was shown."""
    attributes = with_details(span) if span.events else span.attributes
    given, said = attributes.get(_INPUT), messages(attributes.get(_OUTPUT))
    shown = (messages(given) or ()) if given is not None else ()
    calls = None
    if said is not None:
        calls = tuple(calls_in(said))
        if "model_request_parameters" in attributes:
            asked = _output_tools(attributes)
            calls = tuple([call for call in calls if call.name not in asked])
    model = attributes.get("gen_ai.request.model") or attributes.get("gen_ai.response.model")
    fields = (
        run_info(attributes, task_in(shown) if shown else None),
        calls,
        _tokens(attributes),
        tuple(answers_in(shown)) if shown else (),
        text(model) if type(model) is not str else model or None,
        span.failed,
        (),
    )
    return made(ModelSpan, fields)


def run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    """Agent, conversation and labels."""
    agent = attributes.get("gen_ai.agent.name")
    conversation = attributes.get("gen_ai.conversation.id")
    fields = (
        agent if agent is None or (type(agent) is str and agent) else text(agent),
        conversation if conversation is None else text(conversation),
        task,
        _NO_LABELS if LABEL_KEYS.isdisjoint(attributes) else labels(attributes),
    )
    return made(RunInfo, fields)


def tool_result(span: SpanData, outcome: object) -> CallResult:
    """The result of a tool's span: its output, else the text of its failure."""
    if not span.failed:
        return made(CallResult, (outcome, False))
    if control_flow(span):
        return CallResult()
    if outcome is ABSENT:
        failure = failure_text(span)
        return CallResult(ABSENT if failure is None else failure, True)
    return CallResult(outcome, True)


def with_details(span: SpanData) -> Attributes:
    """The span's attributes, and the contents that its events hold in place of attributes.

    They are those of the event of details; else the messages that are events of their own.
    """
    if not span.events:
        return span.attributes
    found: dict[str, Any] = {}
    shown: list[Mapping[str, Any]] = []
    said: list[Mapping[str, Any]] = []
    for name, attributes in span.events:
        if name == _DETAILS:
            found.update(attributes)
        elif name in _ROLES:
            shown.append(_message(_ROLES[name], attributes))
        elif name == _CHOICE:
            said.append(_message("assistant", attributes))
    if shown:
        found.setdefault(_INPUT, shown)
    if said:
        found.setdefault(_OUTPUT, said)
    return {**found, **span.attributes}


def event_span(
    name: str, ids: tuple[int, int], details: Attributes, *, scope: str, time: int, size: int
) -> SpanData:
    """An event that came apart from its span, which is read as a span with this event alone.

    Args:
        ids: of the trace and the span.
        details: attributes of the event.
        time: nanoseconds since the epoch.
        size: bytes of memory that it takes, about.

    >>> said = {"content": "go"}
    >>> event_span("gen_ai.user.message", (1, 2), said, scope="any", time=3, size=4).attributes
    {'gen_ai.operation.name': 'chat'}
    """
    given = details.get(OPERATION)
    operation = given if given in AGENTS else _MODELS[0]
    attributes, events = {OPERATION: operation}, ((name, details),)
    return SpanData(
        *(*ids, None, name, scope, attributes, time, time),
        events=events,
        size=size,
        event=True,
    )


def _message(role: str, attributes: Attributes) -> Mapping[str, Any]:
    """The message of an event."""
    message = mapping(attributes.get("message"))
    if not message:
        content = attributes.get("content", attributes.get("message"))
        message = {**attributes, "content": parsed(content)}
    call_id = attributes.get("id")
    named = {"tool_call_id": call_id} if role == "tool" and call_id is not None else {}
    return {**named, **message, "role": role}


def _tokens(attributes: Attributes) -> int | None:
    counts = (
        attributes.get("gen_ai.usage.input_tokens", attributes.get("gen_ai.usage.prompt_tokens")),
        attributes.get(
            "gen_ai.usage.output_tokens", attributes.get("gen_ai.usage.completion_tokens")
        ),
    )
    counted = [
        number
        for given in counts
        if given is not None
        and (number := given if type(given) is int else integer(given)) is not None
    ]
    return sum(counted) if counted else None


def _output_tools(attributes: Attributes) -> set[str]:
    """pydantic-ai: tools that carry the form of the final answer are not actions."""
    tools = mapping(attributes["model_request_parameters"]).get("output_tools")
    if not isinstance(tools, list):
        return set()
    return {str(tool.get("name")) for tool in tools if type(tool) is dict}


def _encloses(attributes: Attributes) -> bool:
    return attributes.get(OPERATION) in AGENTS


_CAPTURE: Final = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY and "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
)
_SENSITIVE: Final = (
    "set SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true and export "
    "log records"
)

CONVENTION: Final = Convention(
    name="OpenTelemetry GenAI",
    markers=frozenset({OPERATION}),
    encloses=_encloses,
    read=_read,
    contents=("gen_ai.", "pydantic_ai.", "agent_", "tool_"),
    looks_alike=("gen_ai.",),
    announces={OPERATION: AGENTS},
    hints={
        "opentelemetry.instrumentation.genai.": _CAPTURE,
        "opentelemetry.instrumentation.openai_v2": _CAPTURE,
        "opentelemetry.instrumentation.google_genai": _CAPTURE,
        "opentelemetry.instrumentation.vertexai_v2": _CAPTURE,
        "opentelemetry.util.genai": _CAPTURE,
        "pydantic-ai": "use InstrumentationSettings(include_content=True)",
        "agent_framework": "set ENABLE_SENSITIVE_DATA=true",
        "semantic_kernel.": _SENSITIVE,
        "azure.ai.": "set AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED=true",
        "strands.": "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
    },
    shown=f"`{OPERATION}`; contents in attributes, or in events of the span",
    written_by="pydantic-ai, Google ADK, Strands, AutoGen, Microsoft Agent Framework, OpenLIT, "
    "the AI SDK 7, OpenTelemetry's instrumentations",
    wraps=("strands.telemetry.tracer", "autogen SingleThreadedAgentRuntime", "openai_agents"),
    agent_names=("gen_ai.agent.name", "agent_name"),
    copied=(
        *("gen_ai.conversation.", "gen_ai.agent.id", "gen_ai.agent.version"),
        *("gen_ai.event.start_time", "gen_ai.event.end_time"),
    ),
)
