"""Announcements: what :mod:`tidegauge.announce` emits when an agent's span starts."""

from __future__ import annotations

from typing import Final

from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.json_values import text
from tidegauge.foreign_spans.span import Announcement, Attributes, SpanData

_ID: Final = "tidegauge.announce.span_id"
_PARENT: Final = "tidegauge.announce.parent_id"
_NAME: Final = "tidegauge.announce.name"
_AGENT: Final = "tidegauge.announce.agent"
_DIGITS: Final = frozenset("0123456789abcdef")


def _read(span: SpanData) -> Announcement | None:
    """What is announced; ``None``: the announcement is not valid."""
    attributes = span.attributes
    span_id = _number(attributes.get(_ID))
    if not span_id:
        return None
    name = text(attributes.get(_NAME)) or ""
    parent_id = _number(attributes.get(_PARENT)) or None
    return Announcement(span_id, parent_id, name, text(attributes.get(_AGENT)))


def _number(span_id: object) -> int:
    """The id of a span; 0: it is not valid.

    >>> _number("00000000000000ff"), _number("255"), _number(None)
    (255, 0, 0)
    """
    if type(span_id) is not str or len(span_id) != 16 or not _DIGITS.issuperset(span_id):
        return 0
    return int(span_id, 16)


def _encloses(attributes: Attributes) -> bool:
    return False


CONVENTION: Final = Convention(
    name="tidegauge announcement",
    markers=frozenset({_ID}),
    encloses=_encloses,
    read=_read,
    contents=(),
    looks_alike=(),
    announces={},
    hints={},
    shown="",
    written_by="",
)
