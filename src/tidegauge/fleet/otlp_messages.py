"""Messages that an OpenTelemetry Collector writes to Kafka, as messages of a gateway.

The Collector's Kafka exporter writes requests of OTLP in protobuf. With ``partition_traces_by_id``,
each has spans of one trace, and the trace's id in hexadecimal digits as its key. So all spans of a
run are in one partition, as those that a gateway writes.
"""

from __future__ import annotations

from tidegauge.fleet.message_json import MessageError
from tidegauge.fleet.span_encoding import encode_spans
from tidegauge.receivers.decoding import MalformedRequestError, decode_protobuf
from tidegauge.recordings.encoding import ContentEncoder


def from_otlp(key: bytes | None, value: bytes | None, encoder: ContentEncoder) -> bytes:
    """The message that a gateway would have written.

    Args:
        key: the id of the trace, in hexadecimal digits.

    Raises:
        MessageError: it is not such a message.

    >>> from_otlp(b"1" * 32, b"", ContentEncoder(bytes.hex, plain=False))[:30]
    b'{"type":"spans","version":1,"r'
    """
    try:
        trace_id = int(key or b"", 16)
    except ValueError as error:
        raise MessageError(
            "key",
            "the key is not the id of a trace; set partition_traces_by_id: true in the exporter",
        ) from error
    try:
        spans = decode_protobuf(value or b"").spans
    except MalformedRequestError as error:
        raise MessageError("malformed", str(error)) from error
    if any(span.trace_id != trace_id for span in spans):
        raise MessageError("key", "the key is not the id of the trace of all spans")
    return encode_spans(trace_id, spans, encoder)
