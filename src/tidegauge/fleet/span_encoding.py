"""Writes messages of type ``spans``: the spans of one trace that came in one request.

A message is a JSON object::

    {"type": "spans", "version": 1, "run": "<32 hexadecimal digits>", "spans": [...]}

``run`` is the id of the trace, and the message's key. Readers ignore unknown keys, so that later
releases can add some without another version.

With ``"event": true`` it is no span, but what an event that came apart from its span says of it.

A span is written as it was read at the gateway. Of its attributes, only the marker attributes are
written, which say what kind of span it is. Ids, names, labels, numbers and times are written as
they are; contents (arguments, results, tasks, failures) in the form that a content encoder gives
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from tidegauge.events import ABSENT, Call, CallResult
from tidegauge.fleet.message_json import VERSION
from tidegauge.foreign_spans.convention_reader import (
    CONTENT_MARKERS,
    MARKER_ATTRIBUTES,
    read_span,
)
from tidegauge.foreign_spans.json_values import error_type, failure_text, labels, parsed
from tidegauge.foreign_spans.span import (
    UNKNOWN_ARGUMENTS,
    AgentSpan,
    Announcement,
    Attributes,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.foreign_spans.usage import parts_of
from tidegauge.recordings.encoding import ContentEncoder

TYPE: Final = "spans"

_SERVICE, _HOST = "service.name", "host.id"
_MAX_NUMBER: Final = (1 << 63) - 1


class _Plain:
    """Writes contents as they are."""

    plain = True

    def content(self, value: object) -> Any:
        return value

    def polling(self, call: Call) -> str:
        return ""

    def arguments(self, arguments: object) -> Any:
        return arguments


_PLAIN: Final = _Plain()
_Encoder: TypeAlias = ContentEncoder | _Plain


def encode_spans(trace_id: int, spans: Sequence[SpanData], encoder: ContentEncoder) -> bytes:
    """The message with spans of one trace, in any order."""
    return spans_message(trace_id, [encode_span(span, encoder) for span in spans])


def spans_message(trace_id: int, spans: Iterable[bytes]) -> bytes:
    """The message with spans that are encoded already.

    >>> spans_message(255, [])
    b'{"type":"spans","version":1,"run":"000000000000000000000000000000ff","spans":[]}'
    """
    start = f'{{"type":"{TYPE}","version":{VERSION},"run":"{trace_id:032x}","spans":['
    return start.encode() + b",".join(spans) + b"]}"


def encode_span(span: SpanData, encoder: ContentEncoder) -> bytes:
    """A span, with its attributes and events, as a JSON object."""
    if encoder.plain:
        try:
            return orjson.dumps(_fields(span, _PLAIN))
        except TypeError:
            pass  # JSON has no lone surrogates and no huge integers
    fields = _fields(span, encoder)
    try:
        return orjson.dumps(fields)
    except TypeError:
        return orjson.dumps(_writable(fields))


def _fields(span: SpanData, encoder: _Encoder) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "id": f"{span.span_id:016x}",
        "parent": None if span.parent_id is None else f"{span.parent_id:016x}",
        "name": span.name,
        "scope": span.scope,
        "start": span.start,
        "end": span.end,
    }
    if span.event:
        payload["event"] = True
    if span.remote:
        payload["remote"] = True
    if span.failed:
        failure = failure_text(span)
        payload["failed"] = True
        payload["error"] = error_type(span)
        payload["failure"] = None if failure is None else encoder.content(failure)
    if span.attributes:
        payload["attributes"] = _markers(span.attributes, encoder)
    reading = read_span(span)
    if reading is None:
        return payload
    if isinstance(reading, Announcement):
        payload["announcement"] = _announcement(reading)
        return payload
    payload["about"] = _about(reading.info, encoder)
    payload["resource"] = _resource(span.resource, encoder)
    if isinstance(reading, AgentSpan):
        payload["agent"] = _agent(reading, encoder)
    elif isinstance(reading, ModelSpan):
        payload["model"] = _model(reading, span.attributes, encoder)
    else:
        payload["tool"] = _tool(reading, encoder)
    return payload


def _markers(attributes: Attributes, encoder: _Encoder) -> dict[str, str | None]:
    """The marker attributes; empty: the span has attributes, but none of these.

    Of those whose values are contents, it only matters that the span has them.
    """
    found = {name: attributes[name] for name in MARKER_ATTRIBUTES.intersection(attributes)}
    hidden = frozenset() if encoder.plain else CONTENT_MARKERS
    return {
        name: None if value is None or name in hidden else str(value)
        for name, value in found.items()
    }


def _resource(resource: Attributes, encoder: _Encoder) -> dict[str, str]:
    """The labels of runs in the resource, the name of the service, and the host for its clock."""
    payload = {f"tidegauge.{key}": text for key, text in _labels(labels(resource), encoder).items()}
    name, clock = resource.get(_SERVICE), clock_of(resource)
    known = {} if name is None else {_SERVICE: str(name)}
    if clock:
        known[_HOST] = str(encoder.content(clock))
    return {**known, **payload}


def _about(about: RunInfo, encoder: _Encoder) -> dict[str, Any]:
    payload = {
        "agent": about.agent,
        "conversation": about.conversation,
        "task": None if about.task is None else encoder.content(about.task),
        "labels": _labels(about.labels, encoder),
    }
    return {name: value for name, value in payload.items() if value}


def _labels(names: Mapping[str, str], encoder: _Encoder) -> dict[str, str]:
    """Labels are names, except the task, which is content."""
    return {key: encoder.content(text) if key == "task" else text for key, text in names.items()}


def _announcement(announcement: Announcement) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "id": f"{announcement.span_id:016x}",
        "name": announcement.name,
        "agent": announcement.agent,
    }
    if announcement.parent_id is not None:
        payload["parent"] = f"{announcement.parent_id:016x}"
    return payload


def _agent(agent: AgentSpan, encoder: _Encoder) -> dict[str, Any]:
    payload: dict[str, Any] = {"sure": agent.sure, **({"early": True} if agent.early else {})}
    if agent.asked is not ABSENT:
        payload["asked"] = _arguments(agent.asked, encoder)
    if agent.answered is not ABSENT:
        payload["answered"] = encoder.content(agent.answered)
    return payload


def _model(model: ModelSpan, attributes: Attributes, encoder: _Encoder) -> dict[str, Any]:
    payload: dict[str, Any] = {"name": model.model}
    if model.calls is not None:
        payload["calls"] = [
            _call(call.name, call.arguments, call.id, encoder) for call in model.calls
        ]
    if model.tokens is not None and 0 <= model.tokens <= _MAX_NUMBER:
        payload["tokens"] = model.tokens
        parts = parts_of(attributes, model.tokens)
        if parts and all(one is None or 0 <= one <= _MAX_NUMBER for one in parts):
            payload["parts"] = parts
    if model.answers:
        payload["answers"] = [
            {"id": call_id, **_result(result, encoder)} for call_id, result in model.answers
        ]
    if model.failed:
        payload["failed"] = True
    return payload


def _tool(tool: ToolSpan, encoder: _Encoder) -> dict[str, Any]:
    payload = {
        **_call(tool.name, tool.arguments, tool.id, encoder),
        **_result(tool.result, encoder),
    }
    if tool.raised:
        payload["raised"] = True
    return payload


def _call(name: str, arguments: object, call_id: str | None, encoder: _Encoder) -> dict[str, Any]:
    payload: dict[str, Any] = {"name": name}
    if call_id is not None:
        payload["id"] = call_id
    if arguments is not ABSENT and arguments is not UNKNOWN_ARGUMENTS:
        payload["arguments"] = _arguments(arguments, encoder, name)
    return payload


def _arguments(arguments: object, encoder: _Encoder, tool: str = "") -> Any:
    """Arguments in a form that compares like them, also with the value of a single argument alone
    (see :func:`tidegauge.foreign_spans.dedupe.same_arguments`)."""
    if encoder.plain:
        return encoder.arguments(arguments)
    compared = _digested(arguments, encoder, tool)
    whole = parsed(arguments)
    if not isinstance(whole, Mapping) or len(whole) != 1:
        return compared
    [alone] = whole.values()
    # The same form as inside the mapping.
    return {compared: _digested(alone.hex() if isinstance(alone, bytes) else alone, encoder, tool)}


def _digested(arguments: object, encoder: _Encoder, tool: str) -> str:
    return f"{encoder.arguments(arguments)}{encoder.polling(Call(tool, arguments))}"


def _result(result: CallResult, encoder: _Encoder) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    if result.outcome is not ABSENT:
        outcome = encoder.content(result.outcome)
        if outcome is not None or encoder is _PLAIN:  # None: not comparable, so absent
            payload["outcome"] = outcome
    if result.error is not None:
        payload["error"] = result.error
    return payload


def _writable(value: Any) -> Any:
    """The same with lone surrogates escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_writable(item) for item in value]
    return value
