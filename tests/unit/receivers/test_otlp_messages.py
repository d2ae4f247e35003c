"""What a Collector writes to Kafka is read as if a gateway had written it."""

from __future__ import annotations

import pytest

from support.fleet_log import DIGESTS, spans_message, spans_of
from support.wire_runs import WireRun, request
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.gateway import from_otlp

RUN = WireRun(3)
KEY = RUN.trace_id.hex().encode()


def test_the_spans_of_a_trace_are_those_that_a_gateway_writes() -> None:
    value = request(RUN.spans).SerializeToString()
    assert from_otlp(KEY, value, DIGESTS) == spans_message(spans_of(RUN), 0.0).value


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (KEY, b"no request", "malformed: not a trace request in protobuf"),
        (None, request(RUN.spans).SerializeToString(), "set partition_traces_by_id"),
        (b"a key", request(RUN.spans).SerializeToString(), "set partition_traces_by_id"),
        (b"1" * 32, request(RUN.spans).SerializeToString(), "the trace of all spans"),
        (
            KEY,
            request([*RUN.spans, *WireRun(3, wave=1).spans]).SerializeToString(),
            "the trace of all spans",
        ),
    ],
)
def test_what_is_no_such_message_is_rejected(key: bytes | None, value: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        from_otlp(key, value, DIGESTS)
