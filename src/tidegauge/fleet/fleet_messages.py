"""The messages of a fleet: JSON with a version. What cannot be read is rejected.

A message of type ``spans`` has the spans of one trace that came in one request::

    {"type": "spans", "version": 1, "run": "<32 hexadecimal digits>", "spans": [...]}

``run`` is the id of the trace, and the message's key. Readers ignore unknown keys, so that later
releases can add some without another version. A span with ``"event": true`` is an event that came
apart from its span, with what it says of that span.

A span is written as the gateway has read it. Of its attributes, only the marker attributes are
written, which say what kind of span it is. Ids, names, labels, numbers and times are written as
they are; contents (arguments, results, tasks, failures) in the form that a content encoder gives
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import orjson

from tidegauge import fields
from tidegauge.errors import TidegaugeError
from tidegauge.events import ABSENT, Call, CallResult
from tidegauge.fields import FieldError, Fields
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
    KnownSpan,
    ModelSpan,
    ReadSpan,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.foreign_spans.usage import PARTS, parts_of
from tidegauge.recordings.encoding import ContentEncoder
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.values.exact_json import bounded_json

Reason: TypeAlias = Literal["malformed", "version", "key", "invalid"]

VERSION: Final = 1
"""Of all messages that this release writes and reads."""

_MAX_DETAIL: Final = 200


class MessageError(TidegaugeError, ValueError):
    """A message that cannot be read.

    Attributes:
        reason: ``malformed``: it is not JSON, or not such a message; ``version``: it has another
            version; ``key``: its key is not its run's id; ``invalid``: a field is wrong.
        detail: what is wrong, in one line.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = one_line(detail)
        super().__init__(f"{reason}: {self.detail}")


def one_line(text: str) -> str:
    r"""The beginning of a text, in one line.

    >>> one_line("a\n  b")
    'a b'
    """
    return " ".join(text[:_MAX_DETAIL].split())


def json_object(value: bytes | None) -> dict[str, Any]:
    """A message's value as a JSON object."""
    try:
        data = bounded_json(value or b"")
    except ValueError as error:
        raise MessageError("malformed", f"not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise MessageError("malformed", "not a JSON object")
    return data


def check_version(version: object) -> None:
    """Reject every version but :data:`VERSION`."""
    if isinstance(version, bool) or version != VERSION:
        given = str(version) if type(version) is int else f"of type {type(version).__name__}"
        raise MessageError("version", f"version {given} is not supported; use {VERSION}")


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


_MOST: Final = (1 << 64) - 1
_NOTHING: Final[Attributes] = {}
_OTHERS: Final[Attributes] = {"": None}
"""Attributes of a span without a marker attribute."""


def decode_spans(data: Fields, size: int = 0) -> list[SpanData]:
    """The spans of a message, ready for the assembly.

    Args:
        size: size of the message in bytes, which is divided among its spans.

    Raises:
        MessageError: the message cannot be read.

    >>> decode_spans({"type": "spans", "version": 2})
    Traceback (most recent call last):
        ...
    tidegauge.fleet.fleet_messages.MessageError: version: version 2 is not supported; use 1
    """
    if not isinstance(data, Mapping) or data.get("type") != TYPE:
        raise MessageError("malformed", "not a message of spans")
    check_version(data.get("version"))
    try:
        trace_id = fields.identifier(data, "run", 32)
        spans = fields.objects(data, "spans")
        each = size // max(1, len(spans))
        return [_read_span(trace_id, span, each) for span in spans]
    except FieldError as error:
        raise MessageError("invalid", str(error)) from None


def _read_span(trace_id: int, span: Fields, size: int) -> SpanData:
    failed = _flag(span, "failed")
    return SpanData(
        trace_id,
        fields.identifier(span, "id", 16),
        None if span.get("parent") is None else fields.identifier(span, "parent", 16),
        fields.text(span, "name"),
        fields.text(span, "scope"),
        _read_attributes(span),
        fields.required_whole(span, "start", _MOST),
        fields.required_whole(span, "end", _MOST),
        failed,
        resource=_read_labels(span, "resource"),
        remote=_flag(span, "remote"),
        size=size,
        read=ReadSpan(
            _read_kind(span),
            fields.text_or_none(span, "error") if failed else None,
            fields.text_or_none(span, "failure") if failed else None,
        ),
        event=_flag(span, "event"),
    )


def _read_attributes(span: Fields) -> Attributes:
    if "attributes" not in span:
        return _NOTHING
    attributes = fields.mapping(span, "attributes")
    found = {
        name: fields.text_or_none(attributes, name)
        for name in attributes.keys() & MARKER_ATTRIBUTES
    }
    return found or _OTHERS


def _read_kind(span: Fields) -> KnownSpan | None:
    kinds = [name for name in ("agent", "announcement", "model", "tool") if name in span]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise MessageError("invalid", f"a span must not be {' and '.join(kinds)} at once")
    about, inside = _read_about(span), fields.mapping(span, kinds[0])
    if kinds == ["announcement"]:
        return _read_announcement(inside)
    if kinds == ["agent"]:
        asked, answered = (inside.get(name, ABSENT) for name in ("asked", "answered"))
        sure, early = _flag(inside, "sure"), _flag(inside, "early")
        return AgentSpan(about, sure, asked, answered, early)
    return _read_model(about, inside) if kinds == ["model"] else _read_tool(about, inside)


def _read_announcement(inside: Fields) -> Announcement:
    return Announcement(
        fields.identifier(inside, "id", 16),
        None if inside.get("parent") is None else fields.identifier(inside, "parent", 16),
        fields.text(inside, "name"),
        fields.text_or_none(inside, "agent"),
    )


def _read_about(span: Fields) -> RunInfo:
    about = fields.mapping(span, "about")
    return RunInfo(
        fields.text_or_none(about, "agent"),
        fields.text_or_none(about, "conversation"),
        fields.text_or_none(about, "task"),
        _read_labels(about, "labels"),
    )


def _read_model(about: RunInfo, model: Fields) -> ModelSpan:
    calls, answers = None, []
    if model.get("calls") is not None:
        calls = tuple([ChosenCall(*_read_call(call)) for call in fields.objects(model, "calls")])
    if model.get("answers") is not None:
        answers = fields.objects(model, "answers")
    return ModelSpan(
        about,
        calls,
        None if model.get("tokens") is None else fields.required_whole(model, "tokens", _MOST),
        tuple([(fields.text(answer, "id"), _read_result(answer)) for answer in answers]),
        fields.text_or_none(model, "name"),
        _flag(model, "failed"),
        _read_parts(model),
    )


def _read_parts(model: Fields) -> tuple[int | None, ...]:
    """The tokens apart; empty, they are not known."""
    parts = model.get("parts")
    if not isinstance(parts, list) or len(parts) != PARTS:
        return ()
    return tuple([fields.whole({"parts": one}, "parts", most=_MOST) for one in parts])


def _read_tool(about: RunInfo, call: Fields) -> ToolSpan:
    return ToolSpan(about, *_read_call(call), _read_result(call), _flag(call, "raised"))


def _read_call(call: Fields) -> tuple[str, Any, str | None]:
    return (
        fields.text(call, "name"),
        call.get("arguments", ABSENT),
        fields.text_or_none(call, "id"),
    )


def _read_result(call: Fields) -> CallResult:
    error = None if call.get("error") is None else _flag(call, "error")
    return CallResult(call.get("outcome", ABSENT), error)


def _flag(data: Fields, name: str) -> bool:
    """True or false; absent is false."""
    return fields.flag(data, name) or False


def _read_labels(data: Fields, name: str) -> dict[str, str]:
    """An object whose values are strings; absent is an empty one."""
    values = fields.mapping(data, name)
    return {key: fields.text(values, key, name) for key in values}
