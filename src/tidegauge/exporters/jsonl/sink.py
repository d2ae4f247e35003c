"""Step events as lines: what :mod:`tidegauge.instrumentation.replay` reads."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

from tidegauge._guard import guarded
from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Identity,
    Outcome,
    RunEnded,
    RunStarted,
    Signals,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.exporters.jsonl.contents import Contents
from tidegauge.exporters.jsonl.encoding import amount, encoded, moment
from tidegauge.streaming_metrics.fingerprint import compared_arguments

__all__ = ["JsonlSink", "Lines"]

_MAX_UNOBSERVED: Final = 1_000  # as many as the engine waits for
_NO_LOCK: Final = nullcontext()


class Lines(Protocol):
    """Takes lines."""

    def add(self, line: bytes, /) -> None:
        """Take one line, without its end."""


class JsonlSink:
    """Writes a line for the start, the end and every step of every run.

    A replay of the lines has the numbers of the live run, so they tell what happened in the order
    in which it did. One line tells both moments of a step, unless something else of its run came
    between them: then the step's line tells its index, and a line of its own tells its outcome.
    Only the last step of a run is ever held back, until its outcome is there.

    The events of one run come one at a time: whoever reports them holds :meth:`locked`. What runs
    are open is told from outside, too: nothing here expires.

    Args:
        lines: takes the lines.
        contents: the form in which contents are written.
        declarations: what is declared of tools by name, as the engine has it.
        clock: seconds.
    """

    def __init__(
        self,
        lines: Lines,
        contents: Contents,
        *,
        declarations: Mapping[str, ToolDeclaration] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = lines
        self._shown = contents
        self._declarations = dict(declarations or {})
        self._clock = clock
        self._runs: dict[str, _OpenRun] = {}

    def locked(self, run: str) -> AbstractContextManager[object]:
        """Hold this while an event of the run is reported, to the engine and here."""
        known = self._runs.get(run)
        return _NO_LOCK if known is None else known.lock

    @guarded("jsonl", default=None)
    def run_started(self, event: RunStarted, *, t_max: int | None = None) -> None:
        """A run began.

        Args:
            event: what is known of it.
            t_max: turns within which success counts, as the engine has it.
        """
        self._runs[event.run] = _OpenRun()
        self._write(
            {
                "type": "start",
                "run": event.run,
                "agent": event.agent or None,
                "task": None if event.task is None else self._shown.content(event.task),
                "task_group": event.task_group or None,
                "model": event.model,
                "t_max": t_max if t_max and t_max > 0 else None,
                "memory": event.memory,
                "operations": amount(event.operations),
                "height": amount(event.height),
                **self._where(event.place, event.exits, event.tasks),
                "goal": None if event.goal is None else self._shown.identity(event.goal),
                "reach": event.reach if event.reach != "adjacent" else None,
                "parent": event.parent,
                "trace_id": event.trace_id,
                "time": moment(event.time),
            }
        )

    @guarded("jsonl", default=None)
    def step_issued(self, event: Step, signals: Signals) -> None:
        """An action was issued, as the step that the engine's answer tells."""
        run = self._runs.get(event.run)
        if run is None:
            return
        self._release(run)
        line: dict[str, Any] = {"type": "step", "run": event.run}
        if event.state is not ABSENT:
            plain = self._shown.plain
            state, digest = self._shown.content, self._shown.digest
            line["state"] = state(event.state) if plain else digest(signals.state_digest)
        if len(event.calls) == 1:
            line.update(self._call(event.calls[0], signals.action_digest))
        else:
            line["calls"] = [self._call(call) for call in event.calls]
        if event.tokens is not None:
            line["tokens"] = amount(event.tokens)
        if event.entropy is not None:
            line["entropy"] = amount(event.entropy)
        if signals.similarity is not None and not self._shown.plain:
            line["similarity"] = signals.similarity  # its words are not written
        if event.uses:
            line["uses"] = self._identities(event.uses)
        if event.mentions:
            line["mentions"] = self._identities(event.mentions)
        line["time"] = moment(event.time)
        run.last = signals.step
        run.waiting = line
        run.unobserved[signals.step] = _Issued(self._clock(), event.time, len(event.calls))
        if len(run.unobserved) > _MAX_UNOBSERVED:
            run.unobserved.popitem(last=False)

    @guarded("jsonl", default=None)
    def timed(self, event: Outcome) -> Outcome | None:
        """The outcome with its step's index and seconds, so that all who take it agree on them."""
        run = self._runs.get(event.run)
        step = event.step if event.step is not None or run is None else run.last
        issued = run.unobserved.get(step) if run is not None and step is not None else None
        if issued is None:
            return event
        seconds = event.seconds
        if seconds is None and not event.blocked:
            if event.time is None or issued.time is None:
                seconds = self._clock() - issued.clock
            elif event.time >= issued.time:
                seconds = event.time - issued.time
        # Not `_replace`, which takes twice as long: this is on the step path.
        return Outcome._make((*event[:2], step, *event[3:9], seconds, *event[10:]))

    @guarded("jsonl", default=None)
    def step_observed(self, event: Outcome, step: int) -> None:
        """The outcome of the step of that index was observed."""
        run = self._runs.get(event.run)
        issued = run.unobserved.pop(step, None) if run is not None else None
        if run is None or issued is None:
            return
        if step == run.last and run.waiting is not None:
            line, run.waiting = run.waiting, None
        else:
            self._release(run)
            line = {"type": "outcome", "run": event.run, "late_outcome": step}
        self._tell(line, event, issued.calls)
        self._write(line)

    @guarded("jsonl", default=None)
    def run_ended(self, event: RunEnded) -> None:
        """A run ended."""
        run = self._runs.pop(event.run, None)
        if run is None:
            return
        self._release(run)
        line: dict[str, Any] = {
            "type": "end",
            "run": event.run,
            "success": event.success,
            "reason": event.reason,
            "time": moment(event.time),
        }
        if event.outcome in ("stopped", "error"):  # the others say no more than success does
            line["outcome"] = event.outcome
        self._write(line)

    def _release(self, run: _OpenRun) -> None:
        """Write the step that waits: something else comes before its outcome, if that comes."""
        line, run.waiting = run.waiting, None
        if line is not None:
            line["late_outcome"] = run.last
            self._write(line)

    def _tell(self, line: dict[str, Any], event: Outcome, calls: int) -> None:
        if event.blocked:
            line["blocked"] = True
        elif calls == 1:
            line.update(self._result(event.results[0]) if event.results else {})
        else:
            told = line.setdefault("calls", [{} for _ in range(calls)])
            for call, result in zip(told, event.results, strict=False):
                call.update(self._result(result))
        more = amount(event.tokens)
        if more is not None:
            line["tokens"] = (line.get("tokens") or 0) + more
        if event.seconds is not None and not event.blocked:
            line["seconds"] = amount(event.seconds)
        if event.progress is not None and not math.isnan(event.progress):
            line["progress"] = min(max(event.progress, 0.0), 1.0)
        if event.achieved:
            line["achieved"] = self._identities(event.achieved)
        if event.place is not None or event.exits is not None or event.tasks:
            line.update(self._where(event.place, event.exits, event.tasks))

    def _write(self, line: Mapping[str, Any]) -> None:
        self._lines.add(encoded(line))

    def _call(self, call: Call, digest: bytes | None = None) -> dict[str, Any]:
        """A call as it is compared; ``digest`` tells it from others of the same tool."""
        declared = call.declared or self._declarations.get(call.action)
        line: dict[str, Any] = {"action": call.action}
        if digest is not None and not self._shown.plain:
            line["args"] = self._shown.digest(digest)
        else:
            arguments = compared_arguments(declared, call.arguments)
            line["args"] = None if arguments is None else self._shown.arguments(arguments)
        if declared is not None:
            line.update(_declared(declared))
        return line

    def _result(self, result: CallResult) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if result.error is not None:
            told["error"] = bool(result.error)
        if result.outcome is not ABSENT:
            outcome = self._shown.content(result.outcome)
            if outcome is not None:
                told["outcome"] = outcome
        return told

    def _where(
        self, place: Identity | None, exits: Iterable[Identity] | None, tasks: Iterable[Task]
    ) -> dict[str, Any]:
        shown = self._shown
        return {
            "place": None if place is None else shown.place(place),
            "exits": None if exits is None else [shown.place(one) for one in exits],
            "tasks": [
                {
                    "id": shown.identity(task.id),
                    "requires": [
                        [shown.identity(one) for one in needed] for needed in task.requires
                    ],
                }
                for task in tasks
            ]
            or None,
        }

    def _identities(self, values: Iterable[Identity]) -> list[Any] | None:
        return [self._shown.identity(value) for value in values] or None


class _Issued(NamedTuple):
    clock: float
    time: float | None
    calls: int


class _OpenRun:
    __slots__ = ("last", "lock", "unobserved", "waiting")

    def __init__(self) -> None:
        self.lock = threading.RLock()  # its end is told while it is being ended
        self.last: int | None = None
        self.waiting: dict[str, Any] | None = None  # the line of the last step, before its outcome
        self.unobserved: OrderedDict[int, _Issued] = OrderedDict()


def _declared(declared: ToolDeclaration) -> dict[str, Any]:
    poll = declared.poll
    line: dict[str, Any] = {"mutates": True} if declared.mutates else {}
    if isinstance(poll, timedelta):
        line["poll_seconds"] = poll.total_seconds()
    elif poll:
        line["poll"] = poll
    return line
