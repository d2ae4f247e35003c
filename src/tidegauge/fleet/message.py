"""What stands in the topic of a fleet: spans of one trace, or a step event; each keyed by its run.

Nothing is guessed: what is not of the documented form is a dead letter, with the reason.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from tidegauge.errors import StepEventError, TidegaugeError
from tidegauge.events import Outcome, RunEnded
from tidegauge.fleet.limits import MAX_ID_BYTES
from tidegauge.instrumentation.kafka.messages import MessageError, decode_spans
from tidegauge.instrumentation.spans.span import SpanData
from tidegauge.instrumentation.step_events import OpenStep, RecordedStep, StepEvent, parse_event

__all__ = ["VERSION", "Message", "Reason", "UnreadableError", "read_message"]

VERSION: Final = 1
"""Of all messages that this version writes and reads."""

Reason: TypeAlias = Literal["malformed", "version", "key", "invalid"]

_LONGEST_DETAIL: Final = 200


class UnreadableError(TidegaugeError, ValueError):
    """A message that cannot be taken.

    Attributes:
        reason: what kind of fault it is.
        detail: what is wrong, in one line.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = " ".join(detail[:_LONGEST_DETAIL].split())
        super().__init__(f"{reason}: {self.detail}")


class Message(NamedTuple):
    """A message that can be taken.

    Args:
        run: id of the run, or of the trace that the runs are in: its key.
        spans: spans of that trace; ``None``, it is a step event.
        event: the step event; ``None``, it is spans.
        turn: where the event stands in its run: a step's index and 0, the index of the step that
            an outcome belongs to and 1, the number of steps before an end and 0; ``None``, as it
            came.
        offset: its place in its partition.
        value: as it came.
    """

    run: str
    spans: list[SpanData] | None = None
    event: StepEvent | None = None
    turn: tuple[int, int] | None = None
    offset: int = -1
    value: bytes | None = None


def read_message(key: bytes | None, value: bytes | None, offset: int = -1) -> Message:
    """Read a message.

    Args:
        key: its key.
        value: it.
        offset: its place in its partition.

    Raises:
        UnreadableError: it is not of the documented form.

    >>> read_message(b"r", b'{"type": "end", "run": "r", "success": true}').event.success
    True
    """
    try:
        data = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        raise UnreadableError("malformed", f"no JSON: {error}") from None
    if not isinstance(data, dict):
        raise UnreadableError("malformed", "no JSON object")
    version = data.get("version", VERSION)
    if version != VERSION or isinstance(version, bool):
        told = version if isinstance(version, int) else "of another kind"
        raise UnreadableError("version", f"version {told} is not known, {VERSION} is")
    run = data.get("run")
    if not isinstance(run, str) or not 0 < len(run.encode()) <= MAX_ID_BYTES:
        raise UnreadableError("invalid", f"run is to be a text of 1 to {MAX_ID_BYTES} bytes")
    if key != run.encode():
        raise UnreadableError("key", "the key is not the run's id")
    try:
        if data.get("type") == "spans":
            return Message(run, spans=decode_spans(data, len(value or b"")))
        event = parse_event(data)
    except MessageError as error:
        raise UnreadableError(error.reason, str(error)) from error
    except StepEventError as error:
        raise UnreadableError("invalid", str(error)) from error
    return Message(run, event=event, turn=_turn(event, data), offset=offset, value=value)


def _turn(event: StepEvent, data: dict[str, Any]) -> tuple[int, int] | None:
    match event:
        case RecordedStep() | OpenStep():
            index = _count(data, "t")
            return None if index is None else (index, 0)
        case Outcome():
            return event.step or 0, 1
        case RunEnded():
            steps = _count(data, "steps")
            return None if steps is None else (steps, 0)
    return None


def _count(data: dict[str, Any], name: str) -> int | None:
    count = data.get(name)
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise UnreadableError("invalid", f"{name} is to be a whole number, 0 or more")
    return count
