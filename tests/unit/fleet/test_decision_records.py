"""Records of decisions: what is read, and what is not, and why."""

from __future__ import annotations

import orjson
import pytest

from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.kafka_records import MAX_DECISION_BYTES, DecisionRecord, read_decision

STOP = {
    "type": "decision",
    "version": 1,
    "run": "r1",
    "trace_id": None,
    "step": 4,
    "action": "stop",
    "reason": "loop_repeats",
    "message": "3 steps, repeated twice",
    "time": 1_700_000_000.5,
}


def read(**changed):
    return read_decision(b"r1", orjson.dumps({**STOP, **changed}))


def test_what_a_record_says() -> None:
    assert read() == DecisionRecord(
        "r1", "stop", 4, "loop_repeats", "3 steps, repeated twice", None, 1_700_000_000.5
    )


def test_all_but_run_and_action_may_be_left_out() -> None:
    bare = {name: STOP[name] for name in ("type", "version", "run", "action")}
    assert read_decision(b"r1", orjson.dumps(bare)) == DecisionRecord("r1", "stop")


def test_a_worker_that_does_not_know_the_step_says_minus_one() -> None:
    assert read(step=-1).step is None


def test_long_texts_are_cut() -> None:
    record = read(reason="r" * 10_000, message="m" * 10_000)
    assert (len(record.reason or ""), len(record.message or "")) == (200, 2_000)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "malformed"),
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"\xff", "malformed"),
        (b"[]", "malformed"),
        (b"[" * 10_000, "malformed"),
        (b"{}", "malformed"),
        (orjson.dumps({**STOP, "type": "summary"}), "malformed"),
        (orjson.dumps({**STOP, "version": 2}), "version"),
        (orjson.dumps({**STOP, "run": "r2"}), "key"),
        (orjson.dumps({**STOP, "run": None}), "invalid"),
        (orjson.dumps({**STOP, "run": ""}), "invalid"),
        (orjson.dumps({**STOP, "run": 1}), "invalid"),
        (orjson.dumps({**STOP, "run": "é" * 257}), "invalid"),
        (orjson.dumps({**STOP, "trace_id": 1}), "invalid"),
        (orjson.dumps({**STOP, "action": "explode"}), "invalid"),
        (orjson.dumps({**STOP, "action": ["stop"]}), "invalid"),
        (orjson.dumps({**STOP, "step": -2}), "invalid"),
        (orjson.dumps({**STOP, "step": True}), "invalid"),
        (orjson.dumps({**STOP, "step": 1.5}), "invalid"),
        (orjson.dumps({**STOP, "time": "soon"}), "invalid"),
        (orjson.dumps({**STOP, "message": 7}), "invalid"),
        (orjson.dumps({**STOP, "message": "m" * MAX_DECISION_BYTES}), "invalid"),
    ],
)
def test_what_is_not_of_the_form_is_refused_with_its_reason(value, reason) -> None:
    with pytest.raises(MessageError) as refused:
        read_decision(b"r1", value)
    assert refused.value.reason == reason
    assert "\n" not in str(refused.value)


def test_a_record_without_a_key_is_under_no_key_of_its_own() -> None:
    with pytest.raises(MessageError) as refused:
        read_decision(None, orjson.dumps(STOP))
    assert refused.value.reason == "key"
