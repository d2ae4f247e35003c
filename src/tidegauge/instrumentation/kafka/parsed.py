"""One span out of a message, as the assembly takes it: it was read where it was received."""

from __future__ import annotations

from typing import Any, Final

from tidegauge.events import ABSENT, CallResult
from tidegauge.instrumentation.kafka import fields
from tidegauge.instrumentation.kafka.fields import Fields, MessageError
from tidegauge.instrumentation.spans.reading import TELLTALES
from tidegauge.instrumentation.spans.span import (
    About,
    AgentSpan,
    Attributes,
    ModelSpan,
    Reading,
    ReadSpan,
    SpanData,
    ToolSpan,
)
from tidegauge.instrumentation.told import ChosenCall

__all__ = ["parsed_span"]

_NOTHING: Final[Attributes] = {}
_OTHERS: Final[Attributes] = {"": None}
"""Stands for attributes none of which says what kind of span it is."""


def parsed_span(trace_id: int, told: Fields, size: int) -> SpanData:
    """The span that a message tells.

    Args:
        trace_id: its trace.
        told: the span's object in the message.
        size: bytes that it is taken to be large.

    Raises:
        MessageError: something in it is not as it should be.
    """
    failed = fields.flag(told, "failed")
    return SpanData(
        trace_id,
        fields.identifier(told, "id", 16),
        None if told.get("parent") is None else fields.identifier(told, "parent", 16),
        fields.text(told, "name"),
        fields.text(told, "scope"),
        _attributes(told),
        fields.number(told, "start"),
        fields.number(told, "end"),
        failed,
        resource=fields.texts(told, "resource"),
        remote=fields.flag(told, "remote"),
        size=size,
        read=ReadSpan(
            _reading(told),
            fields.text_or_none(told, "error") if failed else None,
            fields.text_or_none(told, "failure") if failed else None,
        ),
    )


def _attributes(told: Fields) -> Attributes:
    if "attributes" not in told:
        return _NOTHING
    attributes = fields.mapping(told, "attributes")
    found = {name: fields.text_or_none(attributes, name) for name in attributes.keys() & TELLTALES}
    return found or _OTHERS


def _reading(told: Fields) -> Reading | None:
    kinds = [name for name in ("agent", "model", "tool") if name in told]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise MessageError("invalid", f"a span is one of {' and '.join(kinds)}, not all")
    about, inside = _about(told), fields.mapping(told, kinds[0])
    if kinds == ["agent"]:
        asked, answered = (inside.get(name, ABSENT) for name in ("asked", "answered"))
        return AgentSpan(about, fields.flag(inside, "sure"), asked, answered)
    return _model(about, inside) if kinds == ["model"] else _tool(about, inside)


def _about(told: Fields) -> About:
    about = fields.mapping(told, "about")
    return About(
        fields.text_or_none(about, "agent"),
        fields.text_or_none(about, "conversation"),
        fields.text_or_none(about, "task"),
        fields.texts(about, "labels"),
    )


def _model(about: About, told: Fields) -> ModelSpan:
    calls, answers = None, []
    if told.get("calls") is not None:
        calls = tuple([ChosenCall(*_call(call)) for call in fields.objects(told, "calls")])
    if told.get("answers") is not None:
        answers = fields.objects(told, "answers")
    return ModelSpan(
        about,
        calls,
        None if told.get("tokens") is None else fields.number(told, "tokens"),
        tuple([(fields.text(answer, "id"), _result(answer)) for answer in answers]),
        fields.text_or_none(told, "name"),
        fields.flag(told, "failed"),
    )


def _tool(about: About, told: Fields) -> ToolSpan:
    return ToolSpan(about, *_call(told), _result(told), fields.flag(told, "raised"))


def _call(told: Fields) -> tuple[str, Any, str | None]:
    return (
        fields.text(told, "name"),
        told.get("arguments", ABSENT),
        fields.text_or_none(told, "id"),
    )


def _result(told: Fields) -> CallResult:
    error = None if told.get("error") is None else fields.flag(told, "error")
    return CallResult(told.get("outcome", ABSENT), error)
