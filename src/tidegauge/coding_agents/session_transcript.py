"""One session of a coding agent, record by record, as lines of a recording.

A run is what one prompt of the user asks for, until the agent has answered, where its records show
that, else until the next prompt or the end of the session; its id has that of the session. The
calls of one answer of the model are one step, which is complete when the next answer, prompt or end
comes. A call without a result keeps none. Files, to-do lists and test runs are read from the calls.
``docs/replay.md`` describes the lines.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from tidegauge.errors import TidegaugeError
from tidegauge.events import ABSENT, Call, CallResult, Identity
from tidegauge.instrumentation.extractors import CodingAgent
from tidegauge.runs.extraction import extract_observation, extract_uses
from tidegauge.values.exact_json import bounded_json

Record: TypeAlias = Mapping[str, Any]

_LATEST: Final = 253_402_300_799.0
"""Seconds since the epoch at the end of the year 9999."""

_REACH: Final = CodingAgent().reach
_MAX_CALLS: Final = 1_000
"""Calls of one answer; further ones are left out."""

_OURS: Final = re.compile(r"\n\n?tidegauge(?::| stopped this run:) .*\Z", re.DOTALL)


class SessionError(TidegaugeError, ValueError):
    """A file that is no session of this agent; the message says why."""


class CallingAnswer(NamedTuple):
    """An answer of the model: the ids of the calls that it chose, and the tokens that it took."""

    call_ids: tuple[str, ...]
    tokens: int | None


class SessionTranscript(ABC):
    """Makes lines of the records of a session.

    Args:
        session: its id, if the records do not give one.

    Attributes:
        folder: the folder in which it was started; ``""``, not known.
        model: the model that decides; ``None``, not known.
        name: name of the agent of its runs; ``None``, the kind's.
        task_group: what its tasks belong to; ``None``, not known.
        run: id of the open run.
        calls: those of the last answer of the model, by their ids.
        results: the results that these have, by their ids.
        tokens: what the answer took; ``None``, not known.
    """

    agent: ClassVar[str]
    """Name of the agent, as the ``agent`` of its runs."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.folder = ""
        self.model: str | None = None
        self.name: str | None = None
        self.task_group: str | None = None
        self._lines: list[dict[str, Any]] = []
        self.run: str | None = None
        self._runs = 0
        self._task: str | None = None
        self.calls: dict[str, Call] = {}
        self.results: dict[str, CallResult] = {}
        self.tokens: int | None = None
        self._issued: float | None = None
        self._observed: float | None = None
        self._mentions: tuple[Identity, ...] = ()  # what the next step sees

    @classmethod
    @abstractmethod
    def recognizes(cls, record: Record) -> bool:
        """Whether a record is one of this agent's."""

    @abstractmethod
    def read(self, record: Record) -> None:
        """Read one record."""

    def take(self, record: Record) -> list[dict[str, Any]]:
        """The lines that one more record completes."""
        self.read(record)
        lines, self._lines = self._lines, []
        return lines

    def close(self) -> list[dict[str, Any]]:
        """The lines that the end of the session completes."""
        self.end()
        lines, self._lines = self._lines, []
        return lines

    def prompt(
        self, task: str | None, time: float | None = None, *, asks_model: bool = True
    ) -> None:
        """The user asks for something: the next run.

        If that does not ask the model, the run begins with its first call, if any.
        """
        self.end(time=time)
        self._task = task
        if asks_model:
            self._begin(time)

    def choose(
        self, chosen: Mapping[str, Call], *, tokens: int | None = None, time: float | None = None
    ) -> None:
        """The model has answered with these calls, by their ids: the next step."""
        self._complete()
        if not chosen:
            return
        self.calls = dict(list(chosen.items())[:_MAX_CALLS])
        self.tokens, self._issued = tokens, time

    def choose_also(self, call_id: str, call: Call, time: float | None = None) -> None:
        """The same answer of the model has one more call."""
        if not self.calls:
            self.choose({call_id: call}, time=time)
        elif len(self.calls) < _MAX_CALLS:
            self.calls[call_id] = call

    def spend(self, tokens: int | None) -> None:
        """How many tokens the last answer took."""
        if self.calls and tokens is not None:
            self.tokens = tokens

    def observe(self, call_id: str, result: CallResult, time: float | None = None) -> None:
        """The result of a call; the first one counts."""
        if call_id in self.calls and call_id not in self.results:
            self.results[call_id] = result
            self._observed = time

    def answer_with(self, call_id: str) -> CallingAnswer | None:
        """The last answer, if it has chosen this call."""
        return CallingAnswer(tuple(self.calls), self.tokens) if call_id in self.calls else None

    def open_answer(self) -> CallingAnswer | None:
        """The last answer, if it has chosen calls that have no result yet."""
        if len(self.results) == len(self.calls):
            return None
        return CallingAnswer(tuple(self.calls), self.tokens)

    def end(
        self,
        *,
        success: bool | None = None,
        reason: str | None = None,
        time: float | None = None,
    ) -> None:
        """The run is over."""
        self._complete()
        if self.run is not None:
            self._add("end", success=success, reason=reason, time=_written(time))
            self.run = None
        self._task = None

    def _begin(self, time: float | None) -> None:
        if self.run is None:
            self._runs += 1
            self.run = f"{self.agent}-{self.session}-{self._runs}"
            task, model, at = self._task, self.model, _written(time)
            fields: dict[str, Any] = {"task": task, "model": model, "reach": _REACH, "time": at}
            fields["detect_polls"] = True  # agents with a shell, which wait with it
            self._add("start", agent=self.name or self.agent, task_group=self.task_group, **fields)
            self._mentions = ()

    def _complete(self) -> None:
        """The calls of the last answer are a step."""
        if not self.calls:
            return
        self._begin(self._issued)
        calls = list(self.calls.values())
        results = [self.results.get(call_id, CallResult()) for call_id in self.calls]
        seconds = None
        if self._issued is not None and self._observed is not None:
            seconds = max(0.0, self._observed - self._issued)
        issued = _written(self._issued)
        rounds = [_round(call, result) for call, result in zip(calls, results, strict=True)]
        spent = {"tokens": self.tokens, "seconds": seconds, "time": issued}
        self._add("step", calls=rounds, **spent, **self._read_from(calls, results))
        self.calls, self.results = {}, {}
        self.tokens = self._issued = self._observed = None

    def _read_from(self, calls: list[Call], results: list[CallResult]) -> dict[str, Any]:
        """Where the calls of a step stood, and the tasks and entities in them."""
        reads = (CodingAgent(working_directory=self.folder),)
        seen = extract_observation(reads, calls, results)
        mentions, self._mentions = self._mentions, seen.mentions
        found = {
            "place": seen.place,
            "tasks": [{"id": task.id} for task in seen.tasks] or None,
            "achieved": seen.achieved or None,
            "progress": seen.progress,
            "mentions": mentions or None,
            "uses": extract_uses(reads, calls) or None,
        }
        return found if seen.exits is None else {**found, "exits": seen.exits}

    def _add(self, kind: str, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self._lines.append({"type": kind, "run": self.run, **given})


def _round(call: Call, result: CallResult) -> dict[str, Any]:
    """A call of a round, with its result."""
    found: dict[str, Any] = {"action": call.action, "args": call.arguments}
    if result.outcome is not ABSENT:
        found["outcome"] = result.outcome
    if result.error is not None:
        found["error"] = result.error
    return found


def _written(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()


def mapping(value: object) -> Record:
    """The value, if it is an object; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """The value, if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Record]:
    """The values of a list, each as an object."""
    return [mapping(one) for one in listed(value)]


def joined_texts(parts: object) -> str | None:
    """The texts of a list of parts, one below the other; ``None``, there is none."""
    return "\n".join(filter(None, [text_in(part, "text") for part in mappings(parts)])) or None


def text_in(record: Record, name: str) -> str | None:
    """The text with this name; ``None``, there is none."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def total_of(*counts: object) -> int | None:
    """The sum of the counts that are given; ``None``, there is none."""
    given = [count for count in counts if type(count) is int and count >= 0]
    return sum(given) if given else None


def parsed_arguments(given: Any) -> Any:
    """The arguments of a call, if they are the JSON text of an object; anything else, unchanged.

    >>> parsed_arguments('{"q": 1}'), parsed_arguments("5")
    ({'q': 1}, '5')
    """
    try:
        found = bounded_json(given) if isinstance(given, str) else given
    except ValueError:
        return given
    return found if isinstance(found, dict) else given


def parsed_time(value: object) -> float | None:
    """Seconds since the epoch of a time in ISO 8601, or in milliseconds.

    >>> parsed_time("1970-01-01T00:00:02Z"), parsed_time(2000), parsed_time("soon")
    (2.0, 2.0, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1_000
    elif isinstance(value, str):
        try:
            seconds = datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return None
    else:
        return None
    return seconds if 0 <= seconds <= _LATEST else None


def without_our_text(result: object) -> Any:
    r"""A result without what ``tidegauge watch`` has added to it, and without its last line breaks.

    >>> without_our_text("nothing\n\ntidegauge: the same result again")
    'nothing'
    """
    return _OURS.sub("", result).rstrip("\n") if isinstance(result, str) else result
