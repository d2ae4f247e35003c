"""A decision as it travels: one record of the topic of decisions.

Its value is a JSON object, its key the id of the run. It may come twice, and after later ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

import orjson

from tidegauge.exporters.jsonl.encoding import encoded
from tidegauge.fleet.limits import MAX_ID_BYTES
from tidegauge.fleet.message import VERSION, UnreadableError

__all__ = ["MAX_BYTES", "DecisionAction", "DecisionRecord", "read_record"]

DecisionAction: TypeAlias = Literal["ended", "go_on", "nudge", "block", "stop"]
"""What holds for a run, the mildest first; ``ended``: it needs no decision any more."""

MAX_BYTES: Final = 65_536
"""Of a record."""

_ACTIONS: Final = get_args(DecisionAction)
_MAX_REASON: Final = 200
_MAX_MESSAGE: Final = 2_000


class DecisionRecord(NamedTuple):
    """What was decided for a run.

    Args:
        run: its id.
        action: what is to happen with it.
        step: index (from 0) of the step at which it was decided; ``None``, not known.
        reason: name of the signal that decided.
        message: the reason in a sentence.
        trace_id: of the trace that the run is in, if it is in one.
        time: when it was decided, in seconds since the epoch.

    >>> record = DecisionRecord("r1", "stop", step=6, reason="loop_repeats")
    >>> read_record(b"r1", record.encoded()) == record
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
        told = {"type": "decision", "version": VERSION, **self._asdict()}
        return encoded(told, nulls=True)


def read_record(key: bytes | None, value: bytes | None) -> DecisionRecord:
    """Read a record of the topic of decisions.

    Args:
        key: the run's id in UTF-8.
        value: the JSON object.

    Raises:
        UnreadableError: it is not of the documented form.
    """
    if len(value or b"") > MAX_BYTES:
        raise UnreadableError("invalid", f"more than {MAX_BYTES} bytes")
    try:
        told = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        raise UnreadableError("malformed", f"no JSON: {error}") from None
    if not isinstance(told, dict) or told.get("type") != "decision":
        raise UnreadableError("malformed", "no decision")
    if told.get("version") != VERSION:
        raise UnreadableError("version", f"not of version {VERSION}")
    run, action = _id(told, "run"), told.get("action")
    if run is None:
        raise UnreadableError("invalid", "there is no run")
    if key != run.encode():
        raise UnreadableError("key", "the key is not the run's id")
    if action not in _ACTIONS:
        raise UnreadableError("invalid", f"action is to be one of {', '.join(_ACTIONS)}")
    return DecisionRecord(
        run,
        cast("DecisionAction", action),
        _step(told.get("step")),
        _text(told, "reason", _MAX_REASON),
        _text(told, "message", _MAX_MESSAGE),
        _id(told, "trace_id"),
        _time(told.get("time")),
    )


def _id(told: Mapping[str, Any], name: str) -> str | None:
    text = told.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or not 0 < len(text.encode()) <= MAX_ID_BYTES:
        raise UnreadableError("invalid", f"{name} is to be a text of 1 to {MAX_ID_BYTES} bytes")
    return text


def _text(told: Mapping[str, Any], name: str, most: int) -> str | None:
    text = told.get(name)
    if text is not None and not isinstance(text, str):
        raise UnreadableError("invalid", f"{name} is to be a text")
    return text if text is None else text[:most]


def _step(told: object) -> int | None:
    """The index of a step; -1 is how a worker says that it is not known."""
    if told is None or told == -1:
        return None
    if isinstance(told, bool) or not isinstance(told, int) or told < 0:
        raise UnreadableError("invalid", "step is to be a whole number, at least 0")
    return told


def _time(told: object) -> float | None:
    if told is None:
        return None
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
        raise UnreadableError("invalid", "time is to be in seconds since the epoch")
    return float(told)
