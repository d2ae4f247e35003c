"""Requests of many elements and few bytes, which are far fewer once they are compressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["JSON_BOMBS", "PROTOBUF_BOMBS", "field", "request_of"]

_MARKER: Final = b"gen_ai.operation.name"


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def request_of(scope_spans: bytes) -> bytes:
    """A trace request with these fields in its only scope."""
    return field(1, field(2, scope_spans))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


_SPAN: Final = (
    field(1, b"\1" * 16)
    + field(2, b"\2" * 8)
    + field(9, field(1, _MARKER) + field(2, field(1, b"chat")))
)
"""The fields of a span of an agent."""


def _span(fields: bytes) -> bytes:
    return field(2, _SPAN + fields)


def _attribute(value: bytes) -> bytes:
    return field(9, field(1, b"a") + field(2, value))


def _many(one: bytes, size: int) -> bytes:
    return one * (size // len(one))


PROTOBUF_BOMBS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "resources": lambda size: _many(b"\x0a\x00", size),
    "attributes of a resource": lambda size: field(
        1, field(1, _many(b"\x0a\x00", size)) + field(2, _span(b""))
    ),
    "scopes": lambda size: field(1, _many(b"\x12\x00", size)),
    "spans": lambda size: request_of(_many(b"\x12\x00", size)),
    "attributes": lambda size: request_of(_span(_many(b"\x4a\x00", size))),
    "events": lambda size: request_of(_span(_many(b"\x5a\x00", size))),
    "links": lambda size: request_of(_span(_many(b"\x6a\x00", size))),
    "attributes of events": lambda size: request_of(
        _many(_span(field(11, b"\x1a\x00" * 1_900) * 20), size)
    ),
    "a list": lambda size: request_of(_span(_attribute(field(5, _many(b"\x0a\x00", size))))),
    "lists": lambda size: request_of(_many(_span(_attribute(field(5, b"\x0a\x00" * 1_900))), size)),
    "a mapping": lambda size: request_of(_span(_attribute(field(6, _many(b"\x0a\x00", size))))),
    "mappings": lambda size: request_of(
        _many(_span(_attribute(field(6, field(1, b"") * 1_900))), size)
    ),
}
"""Requests of about so many bytes, by what they have too many of."""


def _listed(one: bytes) -> Callable[[int], bytes]:
    return lambda size: b'{"x":[' + _many(one, size).rstrip(b",") + b"]}"


JSON_BOMBS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "lists": _listed(b"[],"),
    "mappings": _listed(b"{},"),
    "keys": _listed(b'{"":1},'),
    "lists in lists": _listed(b"[[[[]]]],"),
    "numbers": _listed(b"1,"),
    "strings": _listed(b'"a",'),
    "after a long string": lambda size: _listed(b"[],")(size // 2) + b'"%s"' % (b"," * (size // 2)),
}
"""Texts of about so many bytes, by what they have too many of."""
