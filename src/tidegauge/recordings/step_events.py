"""One line of a recording as events: strict about types, lenient about unknown keys.

A recording has one JSON object a line, of type ``start``, ``step``, ``outcome``, ``answer`` or
``end``; ``docs/replay.md`` describes every key. A step is recorded with its result: one line gives
both; if steps overlap, a separate line gives the result. Contents (``state``, ``outcome``,
``args``) may be any JSON value. An ``outcome`` of ``null`` is the result of a call that returns
nothing; for every other optional key ``null`` means "not given".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

import orjson

from tidegauge.errors import StepEventError
from tidegauge.events import (
    ABSENT,
    Answer,
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
from tidegauge.fields import (
    FieldError,
    Fields,
    flag,
    kind,
    number_from_0,
    required_whole,
    shown,
    text,
    text_or_none,
    texts,
    whole,
    wrong,
)
from tidegauge.values.elements import MOST_OF_A_FILE, TooManyElementsError
from tidegauge.values.exact_json import bounded_json

_MAX_DEPTH: Final = 32


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


StepEvent: TypeAlias = RunStarted | RecordedStep | OpenStep | Outcome | Answer | RunEnded


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
        raise StepEventError(f"the line is {kind(data)}; use a JSON object")
    return parse_event(data)


def parse_event(data: Fields) -> StepEvent:
    """Parse the object of a line.

    Raises:
        StepEventError: as for :func:`parse_line`.
    """
    try:
        return _event(data)
    except FieldError as error:
        raise StepEventError(str(error)) from None


def _event(data: Fields) -> StepEvent:
    found = text(data, "type")
    match found:
        case "start":
            return _run_started(data)
        case "step":
            return _step(data)
        case "outcome":
            return _outcome(data, _results(data), required_whole(data, "late_outcome"))
        case "answer":
            return _answer(data)
        case "end":
            return _run_ended(data)
    raise StepEventError(f"type is {shown(found)}; use start, step, outcome, answer or end")


def _run_started(data: Fields) -> RunStarted:
    return RunStarted(
        run=text(data, "run"),
        agent=text_or_none(data, "agent") or "",
        task=text_or_none(data, "task"),
        task_group=text_or_none(data, "task_group") or "",
        model=text_or_none(data, "model"),
        t_max=whole(data, "t_max", 1),
        memory=text_or_none(data, "memory"),
        operations=whole(data, "operations"),
        height=whole(data, "height"),
        place=_identity(data, "place"),
        exits=_identities(data, "exits"),
        tasks=_tasks(data),
        goal=_identity(data, "goal"),
        reach=_reach(data),
        time=_time(data),
        detect_polls=flag(data, "detect_polls") or False,
    )


def _step(data: Fields) -> RecordedStep | OpenStep:
    run = text(data, "run")
    calls, results = _round(data)
    issued = Step(
        run=run,
        calls=calls,
        state=ABSENT if data.get("state") is None else data["state"],
        tokens=number_from_0(data, "tokens"),
        entropy=number_from_0(data, "entropy"),
        similarity=number_from_0(data, "similarity", 1),
        uses=_identities(data, "uses") or (),
        mentions=_identities(data, "mentions") or (),
        time=_time(data),
    )
    step = whole(data, "late_outcome")
    if step is not None:
        return OpenStep(issued, step)
    # A step has one number of tokens: those of both moments.
    return RecordedStep(issued, _outcome(data, results)._replace(tokens=None))


def _outcome(data: Fields, results: tuple[CallResult, ...], step: int | None = None) -> Outcome:
    # Only the issue of a step has a time; `seconds` gives the time of the result.
    return Outcome(
        run=text(data, "run"),
        results=results,
        step=step,
        place=_identity(data, "place"),
        exits=_identities(data, "exits"),
        tasks=_tasks(data),
        achieved=_identities(data, "achieved") or (),
        progress=number_from_0(data, "progress", 1),
        tokens=number_from_0(data, "tokens"),
        seconds=number_from_0(data, "seconds"),
        blocked=flag(data, "blocked") or False,
    )


def _answer(data: Fields) -> Answer:
    said, shown_last = data.get("text"), data.get("shown")
    return Answer(
        run=text(data, "run"),
        text=ABSENT if said is None else said,
        shown=ABSENT if shown_last is None else shown_last,
        messages=whole(data, "messages"),
        tokens=number_from_0(data, "tokens"),
        time=_time(data),
    )


def _run_ended(data: Fields) -> RunEnded:
    return RunEnded(
        run=text(data, "run"),
        success=flag(data, "success"),
        outcome=_run_outcome(data),
        reason=text_or_none(data, "reason"),
        time=_time(data),
        agent_name=text_or_none(data, "agent_name"),
        children=texts(data, "children"),
        policy=_policy(data),
        refused_calls=whole(data, "refused_calls") or 0,
    )


def _policy(data: Fields) -> PolicyInForce | None:
    given = data.get("policy")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise wrong("policy", "an object", given)
    return PolicyInForce(
        text(given, "version", "policy"),
        acts=flag(given, "acts", "policy") or False,
        held_out=flag(given, "held_out", "policy") or False,
        exceeded=texts(given, "exceeded"),
    )


def _run_outcome(data: Fields) -> RunOutcome | None:
    value = text_or_none(data, "outcome")
    for known in get_args(RunOutcome):
        if value == known:
            return cast("RunOutcome", known)
    return None  # any other value is ignored


def _round(data: Fields) -> tuple[tuple[Call, ...], tuple[CallResult, ...]]:
    """The calls of a step and their results."""
    listed = data.get("calls")
    if listed is None:
        return (_call(data),), _results(data)
    if data.get("action") is not None and isinstance(listed, list):
        raise StepEventError("the step has both an action and calls; use one of them")
    results = _results(data)
    return tuple([_call(item, f"calls[{index}]") for index, item in enumerate(listed)]), results


def _call(data: Fields, where: str = "") -> Call:
    action = text(data, "action", where)
    if not _DECLARED.isdisjoint(data):
        return Call(action, data.get("args"), _declaration(data, where))
    return Call(action, data.get("args"))


_DECLARED: Final = frozenset({"poll", "poll_seconds", "mutates", "thinks"})


def _declaration(data: Fields, where: str) -> ToolDeclaration:
    poll: bool | int | timedelta
    poll = data["poll"] if type(data.get("poll")) is bool else whole(data, "poll") or False
    seconds = number_from_0(data, "poll_seconds")
    if seconds is not None:
        try:
            poll = timedelta(seconds=seconds)
        except OverflowError:
            poll = timedelta.max
    return ToolDeclaration(
        poll=poll,
        mutates=flag(data, "mutates", where) or False,
        thinks=flag(data, "thinks", where) or False,
    )


def _results(data: Fields) -> tuple[CallResult, ...]:
    """The results of a step's calls.

    In a round, the step's ``outcome`` and ``error`` apply to the calls without their own.
    """
    result = CallResult(data.get("outcome", ABSENT), flag(data, "error"))
    listed = data.get("calls")
    if listed is None:
        return (result,)
    if not isinstance(listed, list):
        raise wrong("calls", "a list", listed)
    results = []
    for index, item in enumerate(listed):
        where = f"calls[{index}]"
        if not isinstance(item, dict):
            raise wrong(where, "an object", item)
        error = flag(item, "error", where) if "error" in item else result.error
        results.append(CallResult(item.get("outcome", result.outcome), error))
    return tuple(results)


def _reach(data: Fields) -> Reach:
    match data.get("reach"):
        case None | "adjacent":
            return "adjacent"
        case "anywhere":
            return "anywhere"
        case str(other):
            raise StepEventError(f"reach is {shown(other)}; use adjacent or anywhere")
        case other:
            raise wrong("reach", "a string", other)


def _time(data: Fields) -> float | None:
    """Seconds since the epoch; a time without a zone is UTC."""
    written = text_or_none(data, "time")
    if written is None:
        return None
    try:
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise StepEventError(f"time is {shown(written)}; use ISO 8601") from None


def _identity(data: Fields, key: str) -> Identity | None:
    value = data.get(key)
    return None if value is None else _as_identity(value, key)


def _identities(data: Fields, key: str) -> tuple[Identity, ...] | None:
    value = data.get(key)
    return None if value is None else _as_identities(value, key)


def _tasks(data: Fields) -> tuple[Task, ...]:
    listed = data.get("tasks")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise wrong("tasks", "a list", listed)
    return tuple([_task(item, f"tasks[{index}]") for index, item in enumerate(listed)])


def _task(item: Any, where: str) -> Task:
    if not isinstance(item, dict):
        raise wrong(where, "an object", item)
    if item.get("id") is None:
        raise StepEventError(f"{where}.id is missing")
    requires = item.get("requires")
    if requires is None:
        requires = []
    if not isinstance(requires, list):
        raise wrong(f"{where}.requires", "a list of lists", requires)
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
        raise wrong(where, "a list", value)
    return tuple([_as_identity(item, f"{where}[{index}]") for index, item in enumerate(value)])


def _as_identity(value: Any, where: str) -> Identity:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _as_tuple(value, where, _MAX_DEPTH)
    raise wrong(where, "a string or a list", value)


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
            raise wrong(f"a part of {where}", "strings, numbers and lists", part)
    return tuple(parts)


def _unreadable(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        byte = line[broken.start]
        return f"invalid UTF-8: byte 0x{byte:02x} at column {broken.start + 1}"
    return f"invalid JSON: {error.msg} at column {error.colno}"
