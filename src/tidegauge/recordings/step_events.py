"""One line of a recording as events: strict about types, lenient about unknown keys.

A recording has one JSON object a line, of type ``start``, ``step``, ``outcome`` or ``end``;
``docs/replay.md`` describes every key. A step is recorded with its result, so that one line gives
both; if steps overlap, a separate line gives the result. Contents (``state``, ``outcome``,
``args``) may be any JSON value. An ``outcome`` of ``null`` is the result of a call that returns
nothing; for every other optional key ``null`` means "not given".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

import orjson

from tidegauge.errors import StepEventError
from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Identity,
    Outcome,
    PolicyInForce,
    Reach,
    RunEnded,
    RunOutcome,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.values.elements import MOST_OF_A_FILE, TooManyElementsError
from tidegauge.values.exact_json import bounded_json

_MAX_DEPTH: Final = 32
_MAX_SHOWN: Final = 60


class RecordedStep(NamedTuple):
    """A step with its result."""

    issued: Step
    observed: Outcome


class OpenStep(NamedTuple):
    """A step whose result has a separate line, or never came.

    ``step`` is its index in the recording, which the line of the result contains.
    """

    issued: Step
    step: int


StepEvent: TypeAlias = RunStarted | RecordedStep | OpenStep | Outcome | RunEnded


def parse_line(line: bytes) -> StepEvent:
    """Parse a line of a recording.

    Raises:
        StepEventError: the line is not a JSON object, lacks a required key or has a value of the
            wrong type.

    >>> parse_line(b'{"type": "end", "run": "r1", "success": true}').success
    True
    >>> parse_line(b'{"type": "step", "run": "r1", "action": 7}')
    Traceback (most recent call last):
        ...
    tidegauge.errors.StepEventError: action is a number; use a string
    """
    try:
        data = bounded_json(line, MOST_OF_A_FILE)
    except TooManyElementsError as error:
        raise StepEventError(f"the line has {error}") from None
    except orjson.JSONDecodeError as error:
        raise StepEventError(_unreadable(line, error)) from None
    if not isinstance(data, dict):
        raise StepEventError(f"the line is {_kind(data)}; use a JSON object")
    return parse_event(data)


def parse_event(data: Mapping[str, Any]) -> StepEvent:
    """Parse the object of a line.

    Raises:
        StepEventError: as for :func:`parse_line`.
    """
    kind = _required_text(data, "type")
    match kind:
        case "start":
            return _run_started(data)
        case "step":
            return _step(data)
        case "outcome":
            return _outcome(data, _results(data), _required_number(data, "late_outcome"))
        case "end":
            return _run_ended(data)
    raise StepEventError(f"type is {_shown(kind)}; use start, step, outcome or end")


def _run_started(data: Mapping[str, Any]) -> RunStarted:
    return RunStarted(
        run=_required_text(data, "run"),
        agent=_text(data, "agent") or "",
        task=_text(data, "task"),
        task_group=_text(data, "task_group") or "",
        model=_text(data, "model"),
        t_max=_whole_number(data, "t_max", minimum=1),
        memory=_text(data, "memory"),
        operations=_whole_number(data, "operations"),
        height=_whole_number(data, "height"),
        place=_identity(data, "place"),
        exits=_identities(data, "exits"),
        tasks=_tasks(data),
        goal=_identity(data, "goal"),
        reach=_reach(data),
        time=_time(data),
        detect_polls=_flag(data, "detect_polls") or False,
    )


def _step(data: Mapping[str, Any]) -> RecordedStep | OpenStep:
    run = _required_text(data, "run")
    calls, results = _round(data)
    issued = Step(
        run=run,
        calls=calls,
        state=ABSENT if data.get("state") is None else data["state"],
        tokens=_number(data, "tokens"),
        entropy=_number(data, "entropy"),
        similarity=_number(data, "similarity", maximum=1),
        uses=_identities(data, "uses") or (),
        mentions=_identities(data, "mentions") or (),
        time=_time(data),
    )
    step = _whole_number(data, "late_outcome")
    if step is not None:
        return OpenStep(issued, step)
    # A step has one number of tokens: those of both moments.
    return RecordedStep(issued, _outcome(data, results)._replace(tokens=None))


def _outcome(
    data: Mapping[str, Any], results: tuple[CallResult, ...], step: int | None = None
) -> Outcome:
    # Only the issue of a step has a time; `seconds` gives the time of the result.
    return Outcome(
        run=_required_text(data, "run"),
        results=results,
        step=step,
        place=_identity(data, "place"),
        exits=_identities(data, "exits"),
        tasks=_tasks(data),
        achieved=_identities(data, "achieved") or (),
        progress=_number(data, "progress", maximum=1),
        tokens=_number(data, "tokens"),
        seconds=_number(data, "seconds"),
        blocked=_flag(data, "blocked") or False,
    )


def _run_ended(data: Mapping[str, Any]) -> RunEnded:
    return RunEnded(
        run=_required_text(data, "run"),
        success=_flag(data, "success"),
        outcome=_run_outcome(data),
        reason=_text(data, "reason"),
        time=_time(data),
        agent_name=_text(data, "agent_name"),
        children=_texts(data, "children"),
        policy=_policy(data),
        refused_calls=_whole_number(data, "refused_calls") or 0,
    )


def _policy(data: Mapping[str, Any]) -> PolicyInForce | None:
    given = data.get("policy")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise _wrong("policy", "an object", given)
    return PolicyInForce(
        _required_text(given, "version", "policy"),
        acts=_flag(given, "acts", "policy") or False,
        held_out=_flag(given, "held_out", "policy") or False,
        exceeded=_texts(given, "exceeded"),
    )


def _run_outcome(data: Mapping[str, Any]) -> RunOutcome | None:
    value = _text(data, "outcome")
    for known in get_args(RunOutcome):
        if value == known:
            return cast("RunOutcome", known)
    return None  # any other value is ignored


def _round(data: Mapping[str, Any]) -> tuple[tuple[Call, ...], tuple[CallResult, ...]]:
    """The calls of a step and their results."""
    listed = data.get("calls")
    if listed is None:
        return (_call(data),), _results(data)
    if data.get("action") is not None and isinstance(listed, list):
        raise StepEventError("the step has both an action and calls; use one of them")
    results = _results(data)
    return tuple([_call(item, f"calls[{index}]") for index, item in enumerate(listed)]), results


def _call(data: Mapping[str, Any], where: str = "") -> Call:
    action = _required_text(data, "action", where)
    if not _DECLARED.isdisjoint(data):
        return Call(action, data.get("args"), _declaration(data, where))
    return Call(action, data.get("args"))


_DECLARED: Final = frozenset({"poll", "poll_seconds", "mutates", "thinks"})


def _declaration(data: Mapping[str, Any], where: str) -> ToolDeclaration:
    poll: bool | int | timedelta
    poll = data["poll"] if type(data.get("poll")) is bool else _whole_number(data, "poll") or False
    seconds = _number(data, "poll_seconds")
    if seconds is not None:
        try:
            poll = timedelta(seconds=seconds)
        except OverflowError:
            poll = timedelta.max
    return ToolDeclaration(
        poll=poll,
        mutates=_flag(data, "mutates", where) or False,
        thinks=_flag(data, "thinks", where) or False,
    )


def _results(data: Mapping[str, Any]) -> tuple[CallResult, ...]:
    """The results of a step's calls.

    In a round, the step's ``outcome`` and ``error`` apply to the calls without their own.
    """
    result = CallResult(data.get("outcome", ABSENT), _flag(data, "error"))
    listed = data.get("calls")
    if listed is None:
        return (result,)
    if not isinstance(listed, list):
        raise _wrong("calls", "a list", listed)
    results = []
    for index, item in enumerate(listed):
        where = f"calls[{index}]"
        if not isinstance(item, dict):
            raise _wrong(where, "an object", item)
        error = _flag(item, "error", where) if "error" in item else result.error
        results.append(CallResult(item.get("outcome", result.outcome), error))
    return tuple(results)


def _required_text(data: Mapping[str, Any], key: str, where: str = "") -> str:
    if key not in data:
        raise StepEventError(f"{_name(key, where)} is missing")
    value = data[key]
    if not isinstance(value, str):
        raise _wrong(_name(key, where), "a string", value)
    return value


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _wrong(key, "a string", value)


def _flag(data: Mapping[str, Any], key: str, where: str = "") -> bool | None:
    value = data.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(_name(key, where), "true, false or null", value)


def _whole_number(data: Mapping[str, Any], key: str, minimum: int = 0) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, "a whole number", value)
    if value < minimum:
        raise StepEventError(f"{key} is {value}; use at least {minimum}")
    return value


def _required_number(data: Mapping[str, Any], key: str) -> int:
    value = _whole_number(data, key)
    if value is None:
        raise StepEventError(f"{key} is missing")
    return value


def _number(data: Mapping[str, Any], key: str, maximum: float | None = None) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(key, "a number", value)
    if value < 0 or (maximum is not None and value > maximum):
        limits = "at least 0" if maximum is None else f"0 to {maximum}"
        raise StepEventError(f"{key} is {value}; use {limits}")
    return value


def _reach(data: Mapping[str, Any]) -> Reach:
    match data.get("reach"):
        case None | "adjacent":
            return "adjacent"
        case "anywhere":
            return "anywhere"
        case str(other):
            raise StepEventError(f"reach is {_shown(other)}; use adjacent or anywhere")
        case other:
            raise _wrong("reach", "a string", other)


def _time(data: Mapping[str, Any]) -> float | None:
    """Seconds since the epoch; a time without a zone is UTC."""
    text = _text(data, "time")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise StepEventError(f"time is {_shown(text)}; use ISO 8601") from None


def _identity(data: Mapping[str, Any], key: str) -> Identity | None:
    value = data.get(key)
    return None if value is None else _as_identity(value, key)


def _identities(data: Mapping[str, Any], key: str) -> tuple[Identity, ...] | None:
    value = data.get(key)
    return None if value is None else _as_identities(value, key)


def _texts(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    listed = data.get(key)
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise _wrong(key, "a list of texts", listed)
    return tuple(listed)


def _tasks(data: Mapping[str, Any]) -> tuple[Task, ...]:
    listed = data.get("tasks")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise _wrong("tasks", "a list", listed)
    return tuple([_task(item, f"tasks[{index}]") for index, item in enumerate(listed)])


def _task(item: Any, where: str) -> Task:
    if not isinstance(item, dict):
        raise _wrong(where, "an object", item)
    if item.get("id") is None:
        raise StepEventError(f"{where}.id is missing")
    requires = item.get("requires")
    if requires is None:
        requires = []
    if not isinstance(requires, list):
        raise _wrong(f"{where}.requires", "a list of lists", requires)
    return Task(
        _as_identity(item["id"], f"{where}.id"),
        tuple(
            [
                _as_identities(alternative, f"{where}.requires[{index}]")
                for index, alternative in enumerate(requires)
            ]
        ),
    )


def _as_identities(value: Any, where: str) -> tuple[Identity, ...]:
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    return tuple([_as_identity(item, f"{where}[{index}]") for index, item in enumerate(value)])


def _as_identity(value: Any, where: str) -> Identity:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _as_tuple(value, where, _MAX_DEPTH)
    raise _wrong(where, "a string or a list", value)


def _as_tuple(value: list[Any], where: str, depth: int) -> tuple[Identity, ...]:
    if not depth:
        raise StepEventError(f"{where} is nested too deeply; use at most {_MAX_DEPTH} levels")
    parts: list[Identity] = []
    for part in value:
        if isinstance(part, list):
            parts.append(_as_tuple(part, where, depth - 1))
        elif isinstance(part, str | int | float) and not isinstance(part, bool):
            parts.append(part)
        else:
            raise _wrong(f"a part of {where}", "strings, numbers and lists", part)
    return tuple(parts)


def _unreadable(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        byte = line[broken.start]
        return f"invalid UTF-8: byte 0x{byte:02x} at column {broken.start + 1}"
    return f"invalid JSON: {error.msg} at column {error.colno}"


def _wrong(name: str, expected: str, value: object) -> StepEventError:
    return StepEventError(f"{name} is {_kind(value)}; use {expected}")


def _name(key: str, where: str) -> str:
    return f"{where}.{key}" if where else key


def _shown(value: str) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
