"""MLflow: every attribute is JSON; inputs and outputs in the shapes of the traced library."""

from __future__ import annotations

from typing import Final

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

_TYPE: Final = "mlflow.spanType"
_INPUT, _OUTPUT = "mlflow.spanInputs", "mlflow.spanOutputs"
_AGENTS: Final = ("AGENT", "CHAIN", "WORKFLOW")
_MODELS: Final = ("CHAT_MODEL", "LLM")


def _read(span: SpanData) -> KnownSpan | None:
    kind = json_value(span.attributes[_TYPE])
    if kind in _MODELS:
        return _model(span)
    if kind == "TOOL":
        return _tool(span)
    if kind in _AGENTS:
        given, answer = (json_value(span.attributes.get(name)) for name in (_INPUT, _OUTPUT))
        info = _run_info(span.attributes, langchain_task(given))
        sure = kind == "AGENT"
        if sure:
            info = info._replace(agent=info.agent or span.name or None)
        return AgentSpan(info, sure, last_content(given), last_content(answer))
    return None


def _model(span: SpanData) -> ModelSpan:
    attributes = span.attributes
    given = json_value(attributes.get(_INPUT))
    if type(given) is dict:
        given = given.get("messages", given.get("input", given.get("contents")))
    shown = [] if isinstance(given, str) else messages(given) or []
    output, calls = json_value(attributes.get(_OUTPUT)), None
    if output is not None:
        if type(output) is dict:
            nested = ("choices", "output", "generations", "messages", "candidates")
            output = next((output[name] for name in nested if name in output), output)
        said = [] if isinstance(output, str) else messages(output)
        calls = None if said is None else tuple(calls_in(said))
    return ModelSpan(
        _run_info(attributes, task_in(shown)),
        calls,
        _tokens(attributes),
        tuple(answers_in(shown)),
        text(json_value(attributes.get("mlflow.llm.model"))),
        span.failed,
    )


def _tool(span: SpanData) -> ToolSpan:
    attributes = span.attributes
    output = json_value(attributes.get(_OUTPUT, ABSENT))
    result, answers = langchain_result(output)
    if span.failed or output is ABSENT:
        result = tool_result(span, output)
    given = json_value(attributes.get(_INPUT, ABSENT))
    call_id = None
    if (
        type(given) is dict and given.get("type") == "tool_call"
    ):  # LangGraph's, around the arguments
        call_id, given = text(given.get("id")), given.get("args", ABSENT)
    return ToolSpan(
        _run_info(attributes),
        span.name,
        given,
        answers or call_id,
        result,
        span.failed and not control_flow(span),
    )


def _run_info(attributes: Attributes, task: str | None = None) -> RunInfo:
    metadata = mapping(attributes.get("metadata"))
    return RunInfo(
        text(metadata.get("lc_agent_name")),
        text(metadata.get("thread_id") or json_value(attributes.get("mlflow.trace.session"))),
        task,
        labels(attributes, metadata),
    )


def _tokens(attributes: Attributes) -> int | None:
    usage = mapping(attributes.get("mlflow.chat.tokenUsage"))
    sides = (integer(usage.get("input_tokens")), integer(usage.get("output_tokens")))
    counted = [number for number in sides if number is not None]
    return sum(counted) if counted else None


def _encloses(attributes: Attributes) -> bool:
    return json_value(attributes.get(_TYPE)) in _AGENTS


CONVENTION: Final = Convention(
    name="MLflow",
    markers=frozenset({_TYPE}),
    encloses=_encloses,
    read=_read,
    contents=("mlflow.",),
    looks_alike=(_TYPE,),
    announces={_TYPE: ("AGENT", '"AGENT"')},
    hints={},
    shown=f"`{_TYPE}`",
    written_by="autolog and decorators",
)
