"""Files of OTLP spans: JSON, JSON lines, or protobuf, as exporters to files write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import (
    READ_LIMITS,
    MalformedRequestError,
    ReadLimits,
    decode_protobuf,
)
from tidegauge.receivers.json_decoding import decode_json
from tidegauge.values.exact_json import bounded_json

_FIRST: Final = b"\n"
"""Tag of the only field of a trace request in protobuf; almost any text is some protobuf."""

_PREFIX: Final = 4
"""Bytes of the length before each message in a file of several."""


def decode_file(data: bytes, limits: ReadLimits = READ_LIMITS) -> list[SpanData]:
    """The spans of a file: one trace request, one in each line, or length-prefixed messages.

    Raises:
        MalformedRequestError: the file has none of these forms.

    >>> decode_file(b'{"resourceSpans": []}')
    []
    """
    if data.lstrip()[:1] != b"{":
        messages = list(_messages(data))
        if not all(one.startswith(_FIRST) for one in messages if one):
            raise MalformedRequestError("neither OTLP in JSON nor in protobuf")
        return [span for one in messages for span in decode_protobuf(one, limits).spans]
    try:
        bounded_json(data, limits.elements)
    except ValueError:
        found: list[SpanData] = []
        for number, line in enumerate(data.splitlines(), 1):
            if not line.strip():
                continue
            try:
                found += decode_json(line, limits).spans
            except MalformedRequestError as error:
                raise MalformedRequestError(f"line {number}: {error}") from error
        return found
    return decode_json(data, limits).spans


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages of a file; one without lengths is a single message."""
    lengths, at = [], 0
    while at + _PREFIX <= len(data):
        length = int.from_bytes(data[at : at + _PREFIX])
        at += _PREFIX + length
        lengths.append(length)
    if at != len(data):
        yield data
        return
    at = 0
    for length in lengths:
        yield data[at + _PREFIX : at + _PREFIX + length]
        at += _PREFIX + length
