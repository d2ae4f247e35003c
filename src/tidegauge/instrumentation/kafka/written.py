"""One span as it is written into a message: what was read of it, and where it stands.

Its attributes stay behind, but for those that say what kind of span it is. Ids, names, labels,
numbers and times are written as they are; contents (arguments, results, tasks, failures) as
whoever calls wants them shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from tidegauge.events import ABSENT, CallResult
from tidegauge.instrumentation.spans.reading import TELLTALES, read_span
from tidegauge.instrumentation.spans.span import (
    UNKNOWN_ARGUMENTS,
    About,
    AgentSpan,
    Attributes,
    ModelSpan,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.instrumentation.spans.values import error_type, failure_text, labels, parsed

__all__ = ["Shown", "written_span"]

_SERVICE, _HOST = "service.name", "host.id"
_MAX_NUMBER: Final = (1 << 63) - 1


class Shown(Protocol):
    """How contents are written; :class:`tidegauge.exporters.jsonl.Contents` is one."""

    @property
    def plain(self) -> bool:
        """Whether as they are, and not as digests."""

    def content(self, value: object) -> Any:
        """A result or a text: equal for what is equal to the engine; ``None``, to nothing."""

    def arguments(self, arguments: object) -> Any:
        """The arguments of a call: equal for what is equal to the engine."""


def written_span(span: SpanData, shown: Shown) -> bytes:
    """A span as a JSON object.

    Args:
        span: it, with its attributes and events.
        shown: gives the contents the form in which they are written.
    """
    if shown.plain:
        try:
            return orjson.dumps(_fields(span, _AS_IT_IS))
        except TypeError:
            pass  # what JSON has no form for: half a character, a huge number
    fields = _fields(span, shown)
    try:
        return orjson.dumps(fields)
    except TypeError:
        return orjson.dumps(_writable(fields))


class _AsItIs:
    plain = True

    def content(self, value: object) -> Any:
        return value

    def arguments(self, arguments: object) -> Any:
        return arguments


_AS_IT_IS: Final = _AsItIs()


def _fields(span: SpanData, shown: Shown) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "id": f"{span.span_id:016x}",
        "parent": None if span.parent_id is None else f"{span.parent_id:016x}",
        "name": span.name,
        "scope": span.scope,
        "start": span.start,
        "end": span.end,
    }
    if span.remote:
        payload["remote"] = True
    if span.failed:
        failure = failure_text(span)
        payload["failed"] = True
        payload["error"] = error_type(span)
        payload["failure"] = None if failure is None else shown.content(failure)
    if span.attributes:
        payload["attributes"] = _telltales(span.attributes)
    reading = read_span(span)
    if reading is None:
        return payload
    payload["about"] = _about(reading.about, shown)
    if isinstance(reading, AgentSpan):
        payload["agent"] = _agent(reading, shown)
    else:
        payload["resource"] = _resource(span.resource, shown)
        if isinstance(reading, ModelSpan):
            payload["model"] = _model(reading, shown)
        else:
            payload["tool"] = _tool(reading, shown)
    return payload


def _telltales(attributes: Attributes) -> dict[str, str | None]:
    """What says what kind of span it is; empty, it has attributes, but none of these."""
    found = {name: attributes[name] for name in TELLTALES if name in attributes}
    return {name: None if value is None else str(value) for name, value in found.items()}


def _resource(resource: Attributes, shown: Shown) -> dict[str, str]:
    """What a run may be known by, of the process that made the span, and whose clock that has."""
    payload = {f"tidegauge.{key}": text for key, text in _labels(labels(resource), shown).items()}
    name, clock = resource.get(_SERVICE), clock_of(resource)
    known = {} if name is None else {_SERVICE: str(name)}
    if clock:
        known[_HOST] = str(shown.content(clock))
    return {**known, **payload}


def _about(about: About, shown: Shown) -> dict[str, Any]:
    payload = {
        "agent": about.agent,
        "conversation": about.conversation,
        "task": None if about.task is None else shown.content(about.task),
        "labels": _labels(about.labels, shown),
    }
    return {name: value for name, value in payload.items() if value}


def _labels(names: Mapping[str, str], shown: Shown) -> dict[str, str]:
    """Labels are names, but for the task, which is a text."""
    return {key: shown.content(text) if key == "task" else text for key, text in names.items()}


def _agent(agent: AgentSpan, shown: Shown) -> dict[str, Any]:
    payload: dict[str, Any] = {"sure": agent.sure}
    if agent.asked is not ABSENT:
        payload["asked"] = _arguments(agent.asked, shown)
    if agent.answered is not ABSENT:
        payload["answered"] = shown.content(agent.answered)
    return payload


def _model(model: ModelSpan, shown: Shown) -> dict[str, Any]:
    payload: dict[str, Any] = {"name": model.model}
    if model.calls is not None:
        payload["calls"] = [
            _call(call.name, call.arguments, call.id, shown) for call in model.calls
        ]
    if model.tokens is not None and 0 <= model.tokens <= _MAX_NUMBER:
        payload["tokens"] = model.tokens
    if model.answers:
        payload["answers"] = [
            {"id": call_id, **_result(result, shown)} for call_id, result in model.answers
        ]
    if model.failed:
        payload["failed"] = True
    return payload


def _tool(tool: ToolSpan, shown: Shown) -> dict[str, Any]:
    payload = {**_call(tool.name, tool.arguments, tool.id, shown), **_result(tool.result, shown)}
    if tool.raised:
        payload["raised"] = True
    return payload


def _call(name: str, arguments: object, call_id: str | None, shown: Shown) -> dict[str, Any]:
    payload: dict[str, Any] = {"name": name}
    if call_id is not None:
        payload["id"] = call_id
    if arguments is not ABSENT and arguments is not UNKNOWN_ARGUMENTS:
        payload["arguments"] = _arguments(arguments, shown)
    return payload


def _arguments(arguments: object, shown: Shown) -> Any:
    """Arguments as they are compared: with one another, and by one of them alone where there is
    but one (see :func:`tidegauge.instrumentation.spans.dedupe.same_arguments`)."""
    compared = shown.arguments(arguments)
    if shown.plain:
        return compared
    whole = parsed(arguments)
    if not isinstance(whole, Mapping) or len(whole) != 1:
        return compared
    [alone] = whole.values()
    # As it is taken inside the mapping: what is written follows from what is compared.
    return {compared: shown.arguments(alone.hex() if isinstance(alone, bytes) else alone)}


def _result(result: CallResult, shown: Shown) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    if result.outcome is not ABSENT:
        outcome = shown.content(result.outcome)
        if outcome is not None or shown is _AS_IT_IS:  # not comparable: as if it were not known
            payload["outcome"] = outcome
    if result.error is not None:
        payload["error"] = result.error
    return payload


def _writable(value: Any) -> Any:
    """The same with every half of a character spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_writable(item) for item in value]
    return value
