"""Messages of type ``spans``: the spans of one trace that came in one request.

A message is a JSON object::

    {"type": "spans", "version": 1, "run": "<32 hexadecimal digits>", "spans": [...]}

``run`` is the id of the trace, and the message's key. Keys that are not known are ignored, so that
more can be told without another version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidegauge.instrumentation.kafka import fields
from tidegauge.instrumentation.kafka.fields import MessageError
from tidegauge.instrumentation.kafka.parsed import parsed_span
from tidegauge.instrumentation.kafka.written import Shown, written_span
from tidegauge.instrumentation.spans.span import SpanData

__all__ = ["TYPE", "VERSION", "MessageError", "Shown", "decode_spans", "encode_spans", "message"]

TYPE: Final = "spans"
VERSION: Final = 1


def encode_spans(trace_id: int, spans: Sequence[SpanData], shown: Shown) -> bytes:
    """The message that tells spans of one trace.

    Args:
        trace_id: their trace.
        spans: they, in any order.
        shown: gives contents the form in which they are written.
    """
    return message(trace_id, [written_span(span, shown) for span in spans])


def message(trace_id: int, written: Iterable[bytes]) -> bytes:
    """The message around spans that are written.

    >>> message(255, [])
    b'{"type":"spans","version":1,"run":"000000000000000000000000000000ff","spans":[]}'
    """
    start = f'{{"type":"{TYPE}","version":{VERSION},"run":"{trace_id:032x}","spans":['
    return start.encode() + b",".join(written) + b"]}"


def decode_spans(data: Mapping[str, Any], size: int = 0) -> list[SpanData]:
    """The spans that a message tells, ready for the assembly.

    Args:
        data: the JSON object of the message.
        size: bytes of the message, which its spans share.

    Raises:
        MessageError: it is no such message; see there for the reasons.

    >>> decode_spans({"type": "spans", "version": 2})
    Traceback (most recent call last):
        ...
    tidegauge.instrumentation.kafka.fields.MessageError: version 2 of spans is not known, 1 is
    """
    if not isinstance(data, Mapping) or data.get("type") != TYPE:
        raise MessageError("malformed", "it is no message of spans")
    version = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        told = version if isinstance(version, int) else "of another kind"
        raise MessageError("version", f"version {told} of spans is not known, {VERSION} is")
    trace_id = fields.identifier(data, "run", 32)
    spans = fields.objects(data, "spans")
    each = size // max(1, len(spans))
    return [parsed_span(trace_id, span, each) for span in spans]
