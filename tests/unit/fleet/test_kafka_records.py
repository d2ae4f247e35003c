"""Messages of a fleet's topic: what is read, and what is not, and why."""

from __future__ import annotations

import orjson
import pytest

from support.fleet_log import spans_message, spans_of
from support.wire_runs import WireRun
from tidegauge.events import Outcome, RunEnded, RunStarted
from tidegauge.fleet.client import MAX_ID_BYTES
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.kafka_records import read_message
from tidegauge.recordings.step_events import OpenStep, RecordedStep

STEP = {"type": "step", "run": "r", "action": "go"}
TRACE = "0" * 31 + "7"


def read(key: str = "r", **data: object):
    return read_message(key.encode(), orjson.dumps(data), 5)


def refused(key: bytes | None, value: bytes | None) -> MessageError:
    with pytest.raises(MessageError) as raised:
        read_message(key, value)
    return raised.value


def test_spans_come_as_a_gateway_wrote_them() -> None:
    spans = spans_of(WireRun(3))
    sent = spans_message(spans, 0.0)
    message = read_message(sent.key, sent.value, 5)
    assert message.run == WireRun(3).trace_id.hex()
    assert message.spans is not None
    assert message.event is None
    assert [span.span_id for span in message.spans] == [span.span_id for span in spans]
    # What waits for the span around it is bounded in bytes.
    assert sum(span.size for span in message.spans) == pytest.approx(len(sent.value), abs=100)


@pytest.mark.parametrize(
    ("event", "kind", "turn"),
    [
        ({"type": "start"}, RunStarted, None),
        ({**STEP}, RecordedStep, None),
        ({**STEP, "t": 3}, RecordedStep, (3, 0)),
        ({**STEP, "t": None}, RecordedStep, None),
        ({**STEP, "t": 2**63}, RecordedStep, (2**63, 0)),
        ({**STEP, "t": 3, "late_outcome": 3}, OpenStep, (3, 0)),
        ({"type": "outcome", "late_outcome": 3, "outcome": "x"}, Outcome, (3, 1)),
        ({"type": "end"}, RunEnded, None),
        ({"type": "end", "steps": 4, "success": True}, RunEnded, (4, 0)),
    ],
)
def test_where_a_step_event_stands_in_its_run(event, kind, turn) -> None:
    message = read(**{**event, "run": "r"})
    assert isinstance(message.event, kind)
    assert (message.turn, message.spans, message.offset) == (turn, None, 5)
    assert orjson.loads(message.value or b"")["run"] == "r"


def test_the_version_may_be_left_out_of_a_step_event() -> None:
    assert read(**STEP)._replace(value=None) == read(**STEP, version=1)._replace(value=None)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{no JSON", b"[1]", b'"text"', b"\xff\xfe", b'{"a": NaN}', b'{"a": "\\ud800"}'],
)
def test_what_is_no_json_object_is_malformed(value) -> None:
    assert refused(b"r", value).reason == "malformed"


@pytest.mark.parametrize("version", [0, 2, "1", True, None, [1], {"deep": [[]]}])
def test_other_versions_are_not_guessed(version) -> None:
    error = refused(b"r", orjson.dumps({**STEP, "version": version}))
    assert error.reason == "version"


def test_whose_version_is_missing() -> None:
    data = {"type": "spans", "run": TRACE, "spans": []}
    assert refused(TRACE.encode(), orjson.dumps(data)).reason == "version"


@pytest.mark.parametrize("key", [None, b"", b"other", b"R", b"r ", b"\xff"])
def test_the_key_is_the_run(key) -> None:
    assert refused(key, orjson.dumps(STEP)).reason == "key"


@pytest.mark.parametrize(
    "changed",
    [
        {"run": 7},
        {"run": ""},
        {"run": None},
        {"run": "r" * (MAX_ID_BYTES + 1)},
        {"run": "é" * (MAX_ID_BYTES // 2 + 1)},
        {"type": "other"},
        {"type": None},
        {"action": 7},
        {"t": -1},
        {"t": 1.0},
        {"t": "1"},
        {"t": True},
        {"t": 1e30},
        {"type": "end", "steps": -1},
        {"type": "end", "steps": [3]},
        {"type": "outcome"},
        {"type": "outcome", "late_outcome": "3"},
        {"type": "spans", "version": 1},
    ],
)
def test_what_is_not_as_it_should_be_is_invalid(changed) -> None:
    data = {**STEP, **changed}
    key = data["run"].encode() if isinstance(data["run"], str) else b"r"
    error = refused(key, orjson.dumps(data))
    assert error.reason == "invalid"
    assert error.detail.isprintable()
    assert 0 < len(error.detail) <= 200


@pytest.mark.parametrize("run", ["A" * 32, "0" * 32, "0x" + "1" * 30, "short"])
def test_spans_are_keyed_by_their_trace(run) -> None:
    data = {"type": "spans", "version": 1, "run": run, "spans": []}
    assert refused(run.encode(), orjson.dumps(data)).reason == "invalid"
    assert refused(TRACE.encode(), orjson.dumps({**data, "run": run})).reason == "key"


def test_nesting_as_deep_as_json_may_be_is_no_fault_of_ours() -> None:
    deep = b"[" * 1_022 + b"]" * 1_022
    for field in (b"version", b"type", b"run", b"reach", b"t", b"calls", b"time"):
        start = b'{"type":"step","run":"r","action":"go",'
        if field == b"reach":
            start = b'{"type":"start","run":"r",'
        refused(b"r", start + b'"' + field + b'":' + deep + b"}")


def test_what_is_wrong_is_reported_in_one_line() -> None:
    error = MessageError("invalid", "one\ntwo\r\n" + "x" * 1_000)
    assert error.detail.startswith("one two x")
    assert len(error.detail) <= 200
    assert str(error) == f"invalid: {error.detail}"
