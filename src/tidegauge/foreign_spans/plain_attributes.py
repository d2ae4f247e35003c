"""Attributes as plain data: what is behind the span processor never meets an object of the user's.

A span of another SDK may hold anything, and ``str()``, ``==`` and even ``isinstance`` run code of
what they are given. So the attributes are copied once, by the real types of their values, before
anything reads them. What OpenTelemetry does not allow as an attribute is left out, as its own SDK
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge._span_faults import span_faults
from tidegauge.events import ABSENT
from tidegauge.foreign_spans.span import UNKNOWN_ARGUMENTS, Attributes
from tidegauge.values.attributes import exact_text

MAX_READ: Final = 1 << 20
"""Characters that are looked into; a longer text is only ever passed on."""

_MAX_ITEMS: Final = 10_000
_MAX_DEPTH: Final = 64
_INT_BITS: Final = 64


class LiveAttributes:
    """The attributes of a span that is still open, as plain data.

    Args:
        span: it.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        self._span = span

    @property
    def attributes(self) -> Attributes:
        """Those that it has so far."""
        return plain_attributes(self._span.attributes, count=False)


def plain_attributes(attributes: Mapping[str, Any] | None, *, count: bool = True) -> Attributes:
    """Attributes without those that OpenTelemetry does not allow.

    Args:
        attributes: as a span has them.
        count: whether those that are left out are counted.

    >>> plain_attributes({"a": 1, "b": ("x", {"y": None}), "c": object()})
    {'a': 1, 'b': ['x', {'y': None}]}
    """
    found: dict[str, Any] = {}
    if attributes is None:
        return found
    copy = getattr(attributes, "copy", None)  # at once, where the SDK has it: a span may be open
    held = dict(attributes) if copy is None else copy()
    for name, value in held.items():
        kind = type(value)
        if (kind is str or kind is bool or kind is float) and type(name) is str:
            found[name] = value
            continue
        plain = plain_value(value)
        if plain is not ABSENT:
            found[plain_name(name)] = plain
        elif count:
            span_faults.repair("unreadable")
    return found


def plain_name(name: object) -> str:
    """A name as a plain text; what is none is empty."""
    return name if type(name) is str else exact_text(name)


def plain_value(value: object) -> Any:
    """A copy of a value in plain data: lists, mappings, and leaves; absent, it is none.

    A container of a leaf that is not plain data equals nothing.

    >>> plain_value((1, {"a": None})), plain_value(1 << 70), plain_value(object())
    ([1, {'a': None}], ABSENT, ABSENT)
    """
    try:
        return _copy(value, [_MAX_ITEMS, MAX_READ], 0)
    except (_TooLargeError, RuntimeError):  # or changed while it was read
        return ABSENT


class _TooLargeError(Exception):
    """The value has too many items, too many characters, or too many levels."""


def _copy(value: Any, room: list[int], depth: int) -> Any:
    """The copy of a value; ``room`` is what is left of the items and of the characters."""
    kind = type(value)
    if kind is str:
        return _text(value, room, depth)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if value.bit_length() <= _INT_BITS else _unknown(depth)
    if kind is list or kind is tuple:
        _enter(len(value), room, depth)
        return [_copy(item, room, depth + 1) for item in list(value)]
    if kind is dict:
        _enter(len(value), room, depth)
        found: dict[str, Any] = {}
        for name, item in list(value.items()):
            if not issubclass(type(name), str):
                return _unknown(depth)
            found[_text(name, room, depth + 1)] = _copy(item, room, depth + 1)
        return found
    if kind is bytes:
        if depth:
            _take(len(value), room)
        return value
    return _of_subclass(kind, value, room, depth)


def _of_subclass(kind: type, value: Any, room: list[int], depth: int) -> Any:
    """The same of a class that is made of a plain one, such as a member of an enumeration."""
    if issubclass(kind, str):
        return _text(value, room, depth)
    if issubclass(kind, int):
        return _copy(int.__int__(value), room, depth)
    if issubclass(kind, float):
        return float.__float__(value)
    return _unknown(depth)


def _text(value: Any, room: list[int], depth: int) -> str:
    """A text; only one that is an attribute by itself may be of any length."""
    if depth or type(value) is not str:
        _take(str.__len__(value), room)
    return value if type(value) is str else str.__str__(value)


def _enter(items: int, room: list[int], depth: int) -> None:
    room[0] -= 1 + items
    if room[0] < 0 or depth >= _MAX_DEPTH:
        raise _TooLargeError


def _take(characters: int, room: list[int]) -> None:
    room[1] -= characters
    if room[1] < 0:
        raise _TooLargeError


def _unknown(depth: int) -> Any:
    """The replacement of a leaf that is not plain data."""
    return UNKNOWN_ARGUMENTS if depth else ABSENT
