"""Step events as lines: what :mod:`tidegauge.instrumentation.replay` reads."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import orjson

from tidegauge._guard import guarded
from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Identity,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.streaming_metrics.fingerprint import (
    Normaliser,
    arguments_bytes,
    canonical_bytes,
    content_digest,
)

__all__ = ["Digest", "JsonlSink", "Lines"]

Digest = Callable[[bytes], str]
"""What leaves the process in place of a digest."""

_MAX_RUNS: Final = 10_000
_MAX_WAITING: Final = 100


class Lines(Protocol):
    """Takes lines."""

    def add(self, line: bytes, /) -> None:
        """Take one line, without its end."""


class JsonlSink:
    """Writes a line for the start, the end and every observed step of every run.

    A replay of the lines has the numbers of the live run. A step is written when its outcome is
    there, in the order in which the steps were issued; steps of one run that overlap wait for
    each other, at most 100 of them. What was issued and never observed is written when its run
    ends. A run beyond the 10,000 that are open is written without a start.

    Without ``contents`` everything that could be content is a digest ``"sha:..."``, of what is
    left of it by the normaliser and the tools' keys; equality is all that a replay needs.

    Args:
        lines: takes the lines.
        digest: makes what is written in place of a digest.
        contents: write contents as they are.
        normaliser: the one of the engine.
        declarations: the ones of the engine, by tool.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        digest: Digest,
        contents: bool = False,
        normaliser: Normaliser | None = None,
        declarations: Mapping[str, ToolDeclaration] | None = None,
    ) -> None:
        self._lines = lines
        self._digest = digest
        self._contents = contents
        self._normaliser = normaliser
        self._declarations = dict(declarations or {})
        self._open: OrderedDict[str, _OpenRun] = OrderedDict()

    @guarded("jsonl", default=None)
    def run_started(self, event: RunStarted, *, t_max: int | None = None) -> None:
        """A run began.

        Args:
            event: what is known of it.
            t_max: turns within which success counts, where settings tell it and not the run.
        """
        self._open[event.run] = _OpenRun()
        while len(self._open) > _MAX_RUNS:
            self._open.popitem(last=False)
        line = {
            "type": "start",
            "run": event.run,
            "agent": event.agent or None,
            "task": None if event.task is None else self._content(event.task),
            "task_group": event.task_group or None,
            "model": event.model,
            "t_max": event.t_max or t_max,
            "memory": event.memory,
            "operations": event.operations,
            "height": event.height,
            **self._where(event.place, event.exits, event.tasks),
            "goal": None if event.goal is None else self._identity(event.goal),
            "reach": event.reach if event.reach != "adjacent" else None,
            "parent": event.parent,
            "trace_id": event.trace_id,
            "time": _iso(event.time),
        }
        self._write(line)

    @guarded("jsonl", default=None)
    def step_issued(self, event: Step, step: int) -> None:
        """An action was issued, as the step of that index."""
        run = self._open.get(event.run)
        if run is None:
            run = self._open[event.run] = _OpenRun()
        line: dict[str, Any] = {"type": "step", "run": event.run}
        if event.state is not ABSENT:
            line["state"] = self._content(event.state)
        elif run.waiting:  # the outcome before it is not there: what it saw equals nothing
            line["state"] = f"unknown:{step}"
        calls = [{"action": call.action, "args": self._arguments(call)} for call in event.calls]
        if len(calls) == 1:
            line.update(calls[0])
        else:
            line["calls"] = calls
        line["tokens"] = event.tokens
        line["entropy"] = event.entropy
        line["uses"] = self._identities(event.uses)
        line["mentions"] = self._identities(event.mentions)
        line["time"] = _iso(event.time)
        with run.lock:
            run.waiting[step] = _Waiting(line, time.monotonic())
            if len(run.waiting) > _MAX_WAITING:
                self._write(run.waiting.pop(next(iter(run.waiting))).line)

    @guarded("jsonl", default=None)
    def step_observed(self, event: Outcome, step: int) -> None:
        """The outcome of the step of that index was observed."""
        run = self._open.get(event.run)
        waiting = run.waiting.get(step) if run is not None else None
        if run is None or waiting is None:
            return
        line = waiting.line
        if event.blocked:
            line["blocked"] = True
        elif "calls" in line:
            for call, result in zip(line["calls"], event.results, strict=False):
                call.update(self._result(result))
        elif event.results:
            line.update(self._result(event.results[0]))
        if event.tokens is not None:
            line["tokens"] = (line["tokens"] or 0) + event.tokens
        seconds = time.monotonic() - waiting.issued if event.seconds is None else event.seconds
        line["seconds"] = None if event.blocked else round(seconds, 6)
        line["progress"] = event.progress
        line["achieved"] = self._identities(event.achieved)
        line.update(self._where(event.place, event.exits, event.tasks))
        with run.lock:
            waiting.observed = True
            while run.waiting and next(iter(run.waiting.values())).observed:
                self._write(run.waiting.pop(next(iter(run.waiting))).line)

    @guarded("jsonl", default=None)
    def run_ended(self, event: RunEnded) -> None:
        """A run ended."""
        run = self._open.pop(event.run, None)
        if run is not None:
            with run.lock:
                for waiting in run.waiting.values():
                    self._write(waiting.line)
                run.waiting.clear()
        line = {
            "type": "end",
            "run": event.run,
            "success": event.success,
            "reason": event.reason,
            "time": _iso(event.time),
        }
        if event.outcome is not None:
            line["outcome"] = event.outcome
        self._write(line)

    def _write(self, line: Mapping[str, Any]) -> None:
        # A call may bring back nothing: that null is an outcome, every other is "not told".
        told = {key: value for key, value in line.items() if value is not None or key == "outcome"}
        self._lines.add(orjson.dumps(told))

    def _content(self, value: object) -> Any:
        if self._contents:
            return _as_json(value)
        return self._shown(content_digest(value, self._normaliser))

    def _arguments(self, call: Call) -> Any:
        declared = call.declared or self._declarations.get(call.action)
        arguments = call.arguments
        if declared is not None and declared.key is not None:
            arguments = declared.key(arguments)
        if self._contents:
            return _as_json(arguments)
        return self._shown(content_digest(arguments_bytes(arguments), self._normaliser))

    def _result(self, result: CallResult) -> dict[str, Any]:
        told: dict[str, Any] = {"error": result.error}
        if result.outcome is not ABSENT:
            told["outcome"] = self._content(result.outcome)
        return told

    def _where(
        self, place: Identity | None, exits: Iterable[Identity] | None, tasks: Iterable[Task]
    ) -> dict[str, Any]:
        return {
            "place": None if place is None else self._identity(place),
            "exits": None if exits is None else [self._identity(one) for one in exits],
            "tasks": [
                {
                    "id": self._identity(task.id),
                    "requires": [
                        [self._identity(one) for one in needed] for needed in task.requires
                    ],
                }
                for task in tasks
            ]
            or None,
        }

    def _identities(self, values: Iterable[Identity]) -> list[Any] | None:
        return [self._identity(value) for value in values] or None

    def _identity(self, value: Identity) -> Any:
        if self._contents:
            return value if isinstance(value, str) else _listed(value)
        return self._shown(content_digest(repr(value)))

    def _shown(self, digest: bytes) -> str:
        return "sha:" + self._digest(digest)


class _Waiting:
    __slots__ = ("issued", "line", "observed")

    def __init__(self, line: dict[str, Any], issued: float) -> None:
        self.line = line
        self.issued = issued
        self.observed = False


class _OpenRun:
    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[int, _Waiting] = {}  # by index, in the order of their issue


def _as_json(value: object) -> Any:
    """``value`` as what JSON has a form for."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    try:
        return orjson.loads(canonical_bytes(value))
    except orjson.JSONDecodeError:
        return str(type(value))


def _listed(value: Identity) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _iso(seconds: float | None) -> str:
    moment = time.time() if seconds is None else seconds
    return datetime.fromtimestamp(moment, UTC).isoformat()
