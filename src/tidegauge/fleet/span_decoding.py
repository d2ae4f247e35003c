"""Reads messages of type ``spans``, see :mod:`~tidegauge.fleet.span_encoding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge import fields
from tidegauge.events import ABSENT, CallResult
from tidegauge.fields import FieldError, Fields
from tidegauge.fleet.message_json import MessageError, check_version
from tidegauge.fleet.span_encoding import TYPE
from tidegauge.foreign_spans.convention_reader import MARKER_ATTRIBUTES
from tidegauge.foreign_spans.span import (
    AgentSpan,
    Announcement,
    Attributes,
    KnownSpan,
    ModelSpan,
    ReadSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)
from tidegauge.foreign_spans.usage import PARTS
from tidegauge.runs.turn_calls import ChosenCall

_MOST: Final = (1 << 64) - 1
_NOTHING: Final[Attributes] = {}
_OTHERS: Final[Attributes] = {"": None}
"""Attributes of a span without a marker attribute."""


def decode_spans(data: Fields, size: int = 0) -> list[SpanData]:
    """The spans of a message, ready for the assembly.

    Args:
        data: the JSON object of the message.
        size: size of the message in bytes, which is divided among its spans.

    Raises:
        MessageError: the message cannot be read.

    >>> decode_spans({"type": "spans", "version": 2})
    Traceback (most recent call last):
        ...
    tidegauge.fleet.message_json.MessageError: version: version 2 is not supported; use 1
    """
    if not isinstance(data, Mapping) or data.get("type") != TYPE:
        raise MessageError("malformed", "not a message of spans")
    check_version(data.get("version"))
    try:
        trace_id = fields.identifier(data, "run", 32)
        spans = fields.objects(data, "spans")
        each = size // max(1, len(spans))
        return [_span(trace_id, span, each) for span in spans]
    except FieldError as error:
        raise MessageError("invalid", str(error)) from None


def _span(trace_id: int, span: Fields, size: int) -> SpanData:
    failed = _flag(span, "failed")
    return SpanData(
        trace_id,
        fields.identifier(span, "id", 16),
        None if span.get("parent") is None else fields.identifier(span, "parent", 16),
        fields.text(span, "name"),
        fields.text(span, "scope"),
        _attributes(span),
        fields.required_whole(span, "start", _MOST),
        fields.required_whole(span, "end", _MOST),
        failed,
        resource=_labels(span, "resource"),
        remote=_flag(span, "remote"),
        size=size,
        read=ReadSpan(
            _reading(span),
            fields.text_or_none(span, "error") if failed else None,
            fields.text_or_none(span, "failure") if failed else None,
        ),
        event=_flag(span, "event"),
    )


def _attributes(span: Fields) -> Attributes:
    if "attributes" not in span:
        return _NOTHING
    attributes = fields.mapping(span, "attributes")
    found = {
        name: fields.text_or_none(attributes, name)
        for name in attributes.keys() & MARKER_ATTRIBUTES
    }
    return found or _OTHERS


def _reading(span: Fields) -> KnownSpan | None:
    kinds = [name for name in ("agent", "announcement", "model", "tool") if name in span]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise MessageError("invalid", f"a span must not be {' and '.join(kinds)} at once")
    about, inside = _about(span), fields.mapping(span, kinds[0])
    if kinds == ["announcement"]:
        return _announcement(inside)
    if kinds == ["agent"]:
        asked, answered = (inside.get(name, ABSENT) for name in ("asked", "answered"))
        sure, early = _flag(inside, "sure"), _flag(inside, "early")
        return AgentSpan(about, sure, asked, answered, early)
    return _model(about, inside) if kinds == ["model"] else _tool(about, inside)


def _announcement(inside: Fields) -> Announcement:
    return Announcement(
        fields.identifier(inside, "id", 16),
        None if inside.get("parent") is None else fields.identifier(inside, "parent", 16),
        fields.text(inside, "name"),
        fields.text_or_none(inside, "agent"),
    )


def _about(span: Fields) -> RunInfo:
    about = fields.mapping(span, "about")
    return RunInfo(
        fields.text_or_none(about, "agent"),
        fields.text_or_none(about, "conversation"),
        fields.text_or_none(about, "task"),
        _labels(about, "labels"),
    )


def _model(about: RunInfo, model: Fields) -> ModelSpan:
    calls, answers = None, []
    if model.get("calls") is not None:
        calls = tuple([ChosenCall(*_call(call)) for call in fields.objects(model, "calls")])
    if model.get("answers") is not None:
        answers = fields.objects(model, "answers")
    return ModelSpan(
        about,
        calls,
        None if model.get("tokens") is None else fields.required_whole(model, "tokens", _MOST),
        tuple([(fields.text(answer, "id"), _result(answer)) for answer in answers]),
        fields.text_or_none(model, "name"),
        _flag(model, "failed"),
        _parts(model),
    )


def _parts(model: Fields) -> tuple[int | None, ...]:
    """The tokens apart; empty, they are not known."""
    parts = model.get("parts")
    if not isinstance(parts, list) or len(parts) != PARTS:
        return ()
    return tuple([fields.whole({"parts": one}, "parts", most=_MOST) for one in parts])


def _tool(about: RunInfo, call: Fields) -> ToolSpan:
    return ToolSpan(about, *_call(call), _result(call), _flag(call, "raised"))


def _call(call: Fields) -> tuple[str, Any, str | None]:
    return (
        fields.text(call, "name"),
        call.get("arguments", ABSENT),
        fields.text_or_none(call, "id"),
    )


def _result(call: Fields) -> CallResult:
    error = None if call.get("error") is None else _flag(call, "error")
    return CallResult(call.get("outcome", ABSENT), error)


def _flag(data: Fields, name: str) -> bool:
    """True or false; absent is false."""
    return fields.flag(data, name) or False


def _labels(data: Fields, name: str) -> dict[str, str]:
    """An object whose values are strings; absent is an empty one."""
    values = fields.mapping(data, name)
    return {key: fields.text(values, key, name) for key in values}
