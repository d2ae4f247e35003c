"""What a fleet writes to Kafka and reads back: messages, decisions, and a worker's changelog.

- A **message** of the topic has spans of one trace, or a step event. Its key is its run's id. A
  message that does not have the documented form is a dead letter, with the reason.
- A **decision** is a record of the topic of decisions. It may arrive twice, and after later ones.
- A **changelog record** is what a worker keeps of a run until it has ended: a snapshot of it, and
  the messages since then. Each is a line of JSON, and the snapshot or the message itself.
"""

from __future__ import annotations

import math
import struct
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

import orjson

from tidegauge.errors import StepEventError
from tidegauge.events import Outcome, RunEnded
from tidegauge.fields import FieldError, Fields, number, text_or_none, whole, wrong
from tidegauge.fleet.client import MAX_ID_BYTES
from tidegauge.fleet.fleet_messages import (
    VERSION,
    MessageError,
    check_version,
    decode_spans,
    json_object,
)
from tidegauge.foreign_spans.span import SpanData
from tidegauge.recordings.encoding import encoded
from tidegauge.recordings.step_events import OpenStep, RecordedStep, StepEvent, parse_event


class Message(NamedTuple):
    """A valid message.

    Args:
        run: its key: the id of the run, or of the trace that the runs are in.
        spans: spans of that trace; ``None``: it is a step event.
        turn: position of the event in its run: (index, 0) of a step, (index of its step, 1) of an
            outcome, (number of steps, 0) of an end; ``None``: unknown.
    """

    run: str
    spans: list[SpanData] | None = None
    event: StepEvent | None = None
    turn: tuple[int, int] | None = None
    offset: int = -1
    value: bytes | None = None


def read_message(key: bytes | None, value: bytes | None, offset: int = -1) -> Message:
    """Read a message.

    Raises:
        MessageError: it does not have the documented form.

    >>> read_message(b"r", b'{"type": "end", "run": "r", "success": true}').event.success
    True
    """
    data = json_object(value)
    check_version(data.get("version", VERSION))
    run = _run(data, key)
    try:
        if data.get("type") == "spans":
            return Message(run, spans=decode_spans(data, len(value or b"")))
        event = parse_event(data)
        turn = _turn(event, data)
    except (StepEventError, FieldError) as error:
        raise MessageError("invalid", str(error)) from error
    return Message(run, event=event, turn=turn, offset=offset, value=value)


DecisionAction: TypeAlias = Literal["ended", "go_on", "nudge", "block", "stop"]
"""The actions for a run, the mildest first; ``ended``: the run needs no decision any more."""

MAX_DECISION_BYTES: Final = 65_536

_ACTIONS: Final = get_args(DecisionAction)
_MAX_REASON: Final = 200
_MAX_MESSAGE: Final = 2_000


class DecisionRecord(NamedTuple):
    """A decision about a run.

    Args:
        step: index (from 0) of the step of the decision; ``None``: unknown.
        reason: name of the signal that decided.
        message: the reason in a sentence.
        time: time of the decision, in seconds since the epoch.

    >>> record = DecisionRecord("r1", "stop", step=6, reason="loop_repeats")
    >>> read_decision(b"r1", record.encoded()) == record
    True
    """

    run: str
    action: DecisionAction
    step: int | None = None
    reason: str | None = None
    message: str | None = None
    trace_id: str | None = None
    time: float | None = None

    def encoded(self) -> bytes:
        """The record's value."""
        return encoded({"type": "decision", "version": VERSION, **self._asdict()}, nulls=True)


def read_decision(key: bytes | None, value: bytes | None) -> DecisionRecord:
    """Read a record of the topic of decisions.

    Raises:
        MessageError: it does not have the documented form.
    """
    if len(value or b"") > MAX_DECISION_BYTES:
        raise MessageError("invalid", f"larger than {MAX_DECISION_BYTES} bytes")
    data = json_object(value)
    if data.get("type") != "decision":
        raise MessageError("malformed", "not a decision")
    check_version(data.get("version"))
    run, action = _run(data, key), data.get("action")
    if action not in _ACTIONS:
        raise MessageError("invalid", f"action must be one of {', '.join(_ACTIONS)}")
    try:
        reason, message = text_or_none(data, "reason"), text_or_none(data, "message")
        return DecisionRecord(
            run,
            cast("DecisionAction", action),
            # -1 is how a worker writes that the step is unknown.
            None if data.get("step") == -1 else whole(data, "step"),
            None if reason is None else reason[:_MAX_REASON],
            None if message is None else message[:_MAX_MESSAGE],
            None if data.get("trace_id") is None else _id(data, "trace_id"),
            _time(data),
        )
    except FieldError as error:
        raise MessageError("invalid", str(error)) from None


_RECORD: Final = b"r"
_SNAPSHOT: Final = b"l"
_MARKER: Final = b"e"
CLOCK_KEY: Final = b"c"
"""Key of the time up to which the output of the changelog's messages was produced."""

NAMES_KEY: Final = b"a"
"""Key of the names of agents that were seen, which decide what later runs are called."""

_OFFSET: Final = struct.Struct(">q")


class ChangelogRecord(NamedTuple):
    """A message of a run that has not ended, or a snapshot of the run after its last message.

    Args:
        offset: the message's offset in its partition.
        now: time at which it was processed, in seconds since the epoch.
        value: its value, or the snapshot.

    >>> ChangelogRecord(7, 1.5, "r", b'{"type":"end"}').encoded()
    b'{"version":1,"offset":7,"now":1.5,"key":"r"}\\n{"type":"end"}'
    """

    offset: int
    now: float
    key: str
    value: bytes

    def encoded(self) -> bytes:
        """The record in the changelog."""
        known = {"version": VERSION, "offset": self.offset, "now": self.now, "key": self.key}
        return orjson.dumps(known) + b"\n" + self.value


def load_changelog_record(data: bytes) -> ChangelogRecord:
    """Read what :meth:`ChangelogRecord.encoded` wrote.

    Raises:
        ValueError: it has another version or another form.
    """
    head, _, value = data.partition(b"\n")
    try:
        known = orjson.loads(head)
        if known["version"] != VERSION:
            raise ValueError(f"changelog version {known['version']!r} is not supported")
        return ChangelogRecord(int(known["offset"]), float(known["now"]), str(known["key"]), value)
    except (KeyError, TypeError) as error:
        raise ValueError("not a changelog record") from error


def record_key(offset: int) -> bytes:
    """The key of a message's record: keys sort in the order of the log."""
    return _RECORD + _OFFSET.pack(offset)


def snapshot_key(run: str) -> bytes:
    """The key of the newest snapshot of a run."""
    return _SNAPSHOT + run.encode("utf-8", "surrogatepass")


def is_snapshot(key: bytes) -> bool:
    """Whether a key is that of a snapshot."""
    return key.startswith(_SNAPSHOT)


def marker_key(run: str) -> bytes:
    """The key of the marker that a run has ended."""
    return _MARKER + run.encode("utf-8", "surrogatepass")


def ended_run(key: bytes) -> str | None:
    """The run of a marker's key; ``None``: it is the key of a record."""
    return key[1:].decode("utf-8", "surrogatepass") if key[:1] == _MARKER else None


def _run(data: Fields, key: bytes | None) -> str:
    run = _id(data, "run")
    if key != run.encode():
        raise MessageError("key", "the key is not the run's id")
    return run


def _id(data: Fields, name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode()) <= MAX_ID_BYTES:
        raise MessageError("invalid", f"{name} must be a string of 1 to {MAX_ID_BYTES} bytes")
    return value


def _turn(event: StepEvent, data: Fields) -> tuple[int, int] | None:
    match event:
        case RecordedStep() | OpenStep():
            index = whole(data, "t")
            return None if index is None else (index, 0)
        case Outcome():
            return event.step or 0, 1
        case RunEnded():
            steps = whole(data, "steps")
            return None if steps is None else (steps, 0)
    return None


def _time(data: Fields) -> float | None:
    value = number(data, "time")
    if value is not None and not math.isfinite(value):
        raise wrong("time", "seconds since the epoch", value)
    return None if value is None else float(value)
