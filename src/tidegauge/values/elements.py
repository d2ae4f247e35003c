"""Counts the elements of JSON texts and protobuf messages before they are parsed.

A parser makes an object of each element, however short: ``[],[],...`` takes thirty times its size
in memory, and seconds in which no other thread runs. So what comes from outside is counted first,
and refused if it has too many elements for its size.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

FREE: Final = 65_536
"""Elements that anything may have: a few megabytes, a few milliseconds."""

MOST: Final = 1_048_576
"""Elements that a request may have, however large: a parser takes about a quarter of a second."""

MOST_OF_A_FILE: Final = 8 * MOST
"""The same for what a user reads from a file, while no other thread has to go on."""

_BYTES_EACH: Final = 5
"""Bytes for each further element. An element takes up to 100 bytes of memory, the shortest
attribute of OTLP in JSON, ``{"key":"k","value":{"intValue":"1"}},``, has 7 elements in 37 bytes."""

_OTHERS: Final = bytes(set(range(256)) - set(b"{[:,"))
_QUOTE: Final = ord('"')
_TOKEN: Final = re.compile(rb'[{\[:,]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)

Shape: TypeAlias = "dict[int, Shape]"
"""The fields of a message that hold messages, or of which each occurrence is an object, by their
tags; and what those hold."""

_BYTES_FIELD: Final = 2
_GROUP_STARTS: Final = 3
_GROUP_ENDS: Final = 4
_FIXED: Final = {1: 8, 5: 4}
_CLOSED: Final[Shape] = {}


class BrokenMessageError(ValueError):
    """Bytes that are not a protobuf message."""


class TooManyElementsError(ValueError):
    """A text or a message with too many elements for its size; it was not parsed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most:,} values, too many for its size")


def allowed(size: int, most: int = MOST) -> int:
    """How many elements something of ``size`` bytes may have, and ``most`` of any size.

    >>> allowed(100), allowed(1_000_000), allowed(16_000_000)
    (65556, 265536, 1048576)
    """
    return min(FREE + size // _BYTES_EACH, most)


def check_json(text: bytes, most: int = MOST) -> None:
    r"""Check a JSON text before it is parsed; about a millisecond for a megabyte.

    Args:
        text: the text.
        most: see :func:`allowed`.

    Raises:
        TooManyElementsError: it has more lists, mappings, keys and separators than are allowed.

    >>> check_json(b"[" * 100_000)
    Traceback (most recent call last):
        ...
    tidegauge.values.elements.TooManyElementsError: more than 85,536 values, too many for its size
    """
    if len(text) <= FREE:  # no character is more than one
        return
    room = allowed(len(text), most)
    if len(text.translate(None, _OTHERS)) > room:
        _check_outside_strings(text, room)


def _check_outside_strings(text: bytes, room: int) -> None:
    """Count without what strings contain; a match at a time, so that other threads run."""
    found = strings = 0
    for token in _TOKEN.finditer(text):
        if text[token.start()] == _QUOTE:
            strings += 1
        else:
            found += 1
        if found > room or strings > room + 1:  # each string but one has a separator
            raise TooManyElementsError(room)


def is_repeated(field: Any) -> bool:
    """Whether a field of protobuf is a list, by the name that its version of protobuf has."""
    found = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if found is None else bool(found)


def shape_of(descriptor: Any, known: dict[str, Shape] | None = None) -> Shape:
    """The shape of the messages that a protobuf descriptor describes."""
    known = {} if known is None else known
    name = str(descriptor.full_name)
    if name not in known:
        known[name] = {}  # before its fields, which may have messages of the same type
        for field in descriptor.fields:
            tag = field.number << 3 | _BYTES_FIELD
            if field.message_type is not None:
                known[name][tag] = shape_of(field.message_type, known)
            elif is_repeated(field):
                known[name][tag] = _CLOSED
    return known[name]


def count_messages(message: bytes, shape: Shape, most: int, later: Shape | None = None) -> int:
    """Count the messages in a protobuf message before it is parsed.

    Args:
        message: the message.
        shape: its shape.
        most: how many there may be.
        later: the shape of those in it that are parsed, and counted, one by one; they count as one.

    Raises:
        TooManyElementsError: there are more.
        BrokenMessageError: it is not a message.
    """
    found = 0
    around: list[tuple[int, Shape]] = []
    at, end, groups = 0, len(message), 0
    try:
        while True:
            if at >= end:
                if at > end:
                    raise BrokenMessageError("a field is longer than its message")
                if not around:
                    return found
                end, shape = around.pop()
                continue
            tag, at = message[at], at + 1
            if tag & 128:
                tag, at = _varint(message, at - 1)
                tag &= 0xFFFFFFFF  # as some parsers read it
            kind = tag & 7
            if kind == _BYTES_FIELD:
                size, at = message[at], at + 1
                if size & 128:
                    high = message[at]
                    if high & 128:
                        size, at = _varint(message, at - 1)
                    else:
                        size, at = size + (high << 7) - 128, at + 1
                inside = None if groups else shape.get(tag)
                if inside is None:
                    at += size
                    continue
                found += 1
                if found > most:
                    raise TooManyElementsError(most)
                if not inside or inside is later:
                    at += size
                    continue
                if at + size > end:
                    raise BrokenMessageError("a field is longer than its message")
                around.append((end, shape))
                end, shape = at + size, inside
            elif kind == 0:
                while message[at] & 128:
                    at += 1
                at += 1
            elif kind in _FIXED:
                at += _FIXED[kind]
            elif kind == _GROUP_STARTS:  # no message of OTLP has one; what it contains is skipped
                groups += 1
            elif kind == _GROUP_ENDS:
                groups -= 1
            else:
                raise BrokenMessageError("a field has an unknown type")
    except IndexError:
        raise BrokenMessageError("a field has no end") from None


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    found = shift = 0
    while True:
        byte = message[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
        if shift > 63:
            raise BrokenMessageError("a number is too long")
