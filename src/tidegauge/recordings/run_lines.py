"""Step events as lines: what :mod:`tidegauge.recordings.line_replay` reads."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from tidegauge.events import (
    Absent,
    Answer,
    Call,
    CallResult,
    Decision,
    Identity,
    Outcome,
    RunEnded,
    RunObserver,
    RunStarted,
    Signals,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.recordings.encoding import ContentEncoder, amount, encoded, moment
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded, swallowed
from tidegauge.streaming_metrics.digested import (
    DigestedAnswer,
    DigestedOutcome,
    DigestedStep,
    declared_by_name,
    full_calls,
    thinking,
)
from tidegauge.streaming_metrics.fingerprint import action_name, compared_arguments
from tidegauge.streaming_metrics.polls import polling_of
from tidegauge.values import ValueCache

_MAX_UNOBSERVED: Final = 1_000  # as many as the engine waits for
_NO_LOCK: Final = nullcontext()


class Lines(Protocol):
    """Receives lines."""

    def add(self, line: bytes, once: Iterator[bytes] | None = None, /) -> None:
        """Add one line, without its newline.

        Args:
            once: has the line as its only element, or none if the line was added before. It is
                added and taken out in one step, that an exception cannot come between.
        """


class RunLines(RunObserver):
    """Writes a line for the start, the end and every step of every run.

    A replay of the lines gives the numbers of the live run, so lines keep the order of the events.
    One line contains both moments of a step, unless another event of its run came between them:
    then the step's line contains its index, and a separate line contains the result. Only the last
    step of a run waits for its result.

    :meth:`step_line` and :meth:`result_lines` encode the user's values before. The steps of one run
    then come one at a time, in the engine's order: their reporter holds :meth:`locked` around
    the engine's call and that of :meth:`issued` or :meth:`observed`. The engine knows which runs
    are open: nothing here expires.

    Args:
        declarations: declared tools by name, as for the engine.
        detect_polls: whether calls that wait are taken for polls, as for the engine.
    """

    name = "jsonl"

    def __init__(
        self,
        lines: Lines,
        contents: ContentEncoder,
        *,
        declarations: Mapping[str, ToolDeclaration] | None = None,
        detect_polls: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = lines
        self._contents = contents
        self._declarations = dict(declarations or {})
        self._detect_polls = detect_polls
        self._clock = clock
        self._faults = swallowed("jsonl")
        self._runs: dict[str, _OpenRun] = {}
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._runs = {}

    def locked(self, run: str) -> AbstractContextManager[object]:
        """A lock to hold, in a critical section, while reporting to the engine and here."""
        known = self._runs.get(run)
        return _NO_LOCK if known is None else known.lock

    def run_started(self, event: RunStarted) -> None:
        """A run began; the event is as the engine has read it."""
        t_max, detects = event.t_max, self._detect_polls
        line = encoded(
            {
                "type": "start",
                "run": event.run,
                "agent": event.agent or None,
                "task": None if event.task is None else self._contents.content(event.task),
                "task_group": event.task_group or None,
                "model": event.model,
                "t_max": t_max if t_max and t_max > 0 else None,
                "memory": event.memory,
                "operations": amount(event.operations),
                "height": amount(event.height),
                **self._where(event.place, event.exits, event.tasks),
                "goal": None if event.goal is None else self._contents.identity(event.goal),
                "reach": event.reach if event.reach != "adjacent" else None,
                "parent": event.parent,
                "trace_id": event.trace_id,
                "detect_polls": (event.detect_polls if detects is None else detects) or None,
                "time": moment(event.time),
            }
        )
        run = self._runs[event.run] = _OpenRun(line)
        self._lines.add(*run.start)

    @guarded("jsonl", default=None)
    def step_line(
        self, event: Step, step: DigestedStep, cache: ValueCache | None = None
    ) -> dict[str, Any] | None:
        """The part of an action's line that depends on the user's values."""
        line: dict[str, Any] = {"type": "step", "run": step.run}
        shown = self._contents
        if step.state_given:
            if shown.plain:
                line["state"] = shown.content(event.state, cache)
            elif step.state is not None:
                line["state"] = shown.digest(step.state, step.exact_state)
        if len(event.calls) == 1:
            line.update(
                self._call(event.calls[0], step.action, step.exact_action, step.noise, cache)
            )
        else:
            exact: Sequence[bytes | None] = step.exact_calls or [None] * len(step.calls)
            # The noise of the round stands at its first call: a reader takes that of all together.
            line["calls"] = [
                self._call(call, digest, whole, () if index else step.noise, cache)
                for index, (call, digest, whole) in enumerate(
                    zip(event.calls, full_calls(step.calls), exact, strict=True)
                )
            ]
        if step.tokens is not None:
            line["tokens"] = step.tokens
        if step.entropy is not None:
            line["entropy"] = amount(step.entropy)
        if step.uses:
            line["uses"] = self._identities(step.uses)
        if step.mentions:
            line["mentions"] = self._identities(step.mentions)
        line["time"] = moment(step.time)
        return line

    @guarded("jsonl", default=())
    def result_lines(
        self, event: Outcome, outcome: DigestedOutcome, cache: ValueCache | None = None
    ) -> Sequence[dict[str, Any]]:
        """The parts of a result's line that depend on the results; as :meth:`step_line`."""
        # A round with a result that is not comparable has no outcome: none of them is written.
        comparable = all(digest is not None for digest, _ in outcome.results)
        exact = outcome.exact or [None] * len(outcome.results)
        noise = outcome.noise or [()] * len(outcome.results)
        return [
            self._result(
                result,
                digest if comparable else None,
                whole,
                left_out,
                failed=failed,
                cache=cache,
            )
            for result, (digest, failed), whole, left_out in zip(
                event.results, outcome.results, exact, noise, strict=True
            )
        ]

    def issued(self, step: DigestedStep, line: dict[str, Any] | None, decision: Decision) -> None:
        """Write an issued action, and that it was blocked.

        Args:
            line: the result of :meth:`step_line`.
            decision: the engine's answer; without signals, it has not taken the action.
        """
        signals, run = decision.signals, self._runs.get(step.run)
        if signals is None or run is None:
            return
        with self._faults:
            self._write_waiting(run)
            likeness = signals.likeness if isinstance(signals, Signals) else None
            if line is not None and likeness is not None and not self._contents.plain:
                line["similarity"] = likeness  # its words are not written
            run.last = signals.step
            run.waiting = line
            run.unobserved[signals.step] = _Issued(self._clock(), step.time, len(step.calls))
            if len(run.unobserved) > _MAX_UNOBSERVED:
                run.unobserved.popitem(last=False)
            if decision.block:
                blocked = DigestedOutcome(step.run, (), signals.step, blocked=True)
                self.observed(blocked, (), decision)

    def timed(self, outcome: DigestedOutcome) -> DigestedOutcome:
        """The result with its step's index and seconds, so that all receivers agree on them."""
        with self._faults:
            run = self._runs.get(outcome.run)
            step = outcome.step if outcome.step is not None or run is None else run.last
            issued = run.unobserved.get(step) if run is not None and step is not None else None
            if issued is None:
                return outcome
            seconds = outcome.seconds
            if seconds is None and not outcome.blocked:
                if outcome.time is None or issued.time is None:
                    seconds = self._clock() - issued.clock
                elif outcome.time >= issued.time:
                    seconds = outcome.time - issued.time
            return outcome._replace(step=step, seconds=seconds)
        return outcome

    def observed(
        self, outcome: DigestedOutcome, results: Sequence[Mapping[str, Any]], decision: Decision
    ) -> None:
        """Write an observed result with the index of its step.

        Args:
            outcome: the result of :meth:`timed`.
            results: the result of :meth:`result_lines`.
            decision: as for :meth:`issued`.
        """
        run, step = self._runs.get(outcome.run), outcome.step
        if decision.signals is None or run is None or step is None:
            return
        with self._faults:
            issued = run.unobserved.pop(step, None)
            if issued is None:
                return
            if step == run.last and run.waiting is not None:
                line, run.waiting = run.waiting, None
            else:
                self._write_waiting(run)
                line = {"type": "outcome", "run": outcome.run, "late_outcome": step}
            self._add(line, outcome, results, issued.calls)
            self._write(line)

    @guarded("jsonl", default=None)
    def answer_line(self, event: Answer, answer: DigestedAnswer) -> dict[str, Any]:
        """The line of an answer without a call."""
        line: dict[str, Any] = {"type": "answer", "run": answer.run}
        shown = self._contents
        if answer.answer is not None:
            line["text"] = (
                shown.content(event.text) if shown.plain else shown.digest(answer.answer, None)
            )
        if answer.shown is not None:
            line["shown"] = shown.digest(answer.shown, None)
        line["messages"], line["tokens"] = answer.messages, answer.tokens
        line["time"] = moment(answer.time)
        return line

    def wrote_answer(self, run_id: str, line: dict[str, Any] | None, decision: Decision) -> None:
        """Write an answer without a call; as :meth:`issued`."""
        run = self._runs.get(run_id)
        if decision.signals is None or run is None or line is None:
            return
        with self._faults:
            self._write_waiting(run)
            self._write(line)

    def run_restored(self, event: RunStarted, steps: int, completed: int) -> None:
        """A run that waited continues here: its rest is recorded as a run of the same id."""
        self.run_started(event)

    def run_detached(self, run: str) -> None:
        """A run may continue elsewhere."""
        self.run_ended(RunEnded(run=run, reason="moved"))

    def run_ended(self, event: RunEnded) -> None:
        """A run ended. If an exception has arrived meanwhile, a second call does what is left."""
        run = self._runs.get(event.run)
        if run is None:
            return
        if run.end is None:
            run.end = _once(encoded(self._end_line(run, event)))
        self._lines.add(*run.start)
        self._lines.add(*run.end)
        self._runs.pop(event.run, None)

    def _end_line(self, run: _OpenRun, event: RunEnded) -> dict[str, Any]:
        with here.critical, run.lock:  # events being reported come first
            self._write_waiting(run)
        line: dict[str, Any] = {
            "type": "end",
            "run": event.run,
            "success": event.success,
            "reason": event.reason,
            "time": moment(event.time),
        }
        if event.outcome in ("stopped", "error"):  # the others say no more than success does
            line["outcome"] = event.outcome
        if event.agent_name is not None:
            line["agent_name"] = event.agent_name
        if event.children:
            line["children"] = list(event.children)
        if event.policy is not None:
            line["policy"] = event.policy._asdict()
        if event.refused_calls:
            line["refused_calls"] = event.refused_calls
        return line

    def _write_waiting(self, run: _OpenRun) -> None:
        """Write the waiting step, because another event comes before its result."""
        line, run.waiting = run.waiting, None
        if line is not None:
            line["late_outcome"] = run.last
            self._write(line)

    def _add(
        self,
        line: dict[str, Any],
        outcome: DigestedOutcome,
        results: Sequence[Mapping[str, Any]],
        calls: int,
    ) -> None:
        if outcome.blocked:
            line["blocked"] = True
        elif calls == 1:
            line.update(results[0] if results else {})
        else:
            given = line.setdefault("calls", [{} for _ in range(calls)])
            for call, result in zip(given, results, strict=False):
                call.update(result)
        if outcome.tokens is not None:
            line["tokens"] = (line.get("tokens") or 0) + outcome.tokens
        if outcome.seconds is not None and not outcome.blocked:
            line["seconds"] = amount(outcome.seconds)
        progress = outcome.progress
        if progress is not None and not math.isnan(progress):
            line["progress"] = min(max(progress, 0.0), 1.0)
        if outcome.achieved:
            line["achieved"] = self._identities(outcome.achieved)
        if outcome.place is not None or outcome.exits is not None or outcome.tasks:
            line.update(self._where(outcome.place, outcome.exits, outcome.tasks))

    def _write(self, line: Mapping[str, Any]) -> None:
        self._lines.add(encoded(line))

    def _call(
        self,
        call: Call,
        digest: bytes,
        exact: bytes | None,
        noise: Sequence[str],
        cache: ValueCache | None,
    ) -> dict[str, Any]:
        """A call as compared; ``digest`` distinguishes it from others of the same tool."""
        declared = call.declared or declared_by_name(self._declarations, call.action)
        line: dict[str, Any] = {"action": action_name(call.action)}
        if not self._contents.plain:
            written = self._contents.digest(digest, exact, noise=noise)
            line["args"] = written + self._contents.polling(call)
        else:
            arguments = compared_arguments(declared, call.arguments)
            line["args"] = None if arguments is None else self._contents.arguments(arguments, cache)
        if declared is not None:
            if polling_of(call) is not None:
                line["poll"] = False  # what is declared decides, in a replay, too
            line.update(_declared(declared))
            if declared.thinks or thinking(call.action) is not None:
                line["thinks"] = declared.thinks
        return line

    def _result(
        self,
        result: CallResult,
        digest: bytes | Absent | None,
        exact: bytes | Absent | None,
        noise: Sequence[str],
        *,
        failed: bool | None,
        cache: ValueCache | None,
    ) -> dict[str, Any]:
        line: dict[str, Any] = {}
        if failed is not None:
            line["error"] = failed
        if isinstance(
            digest, bytes
        ):  # else not observed, or not comparable: absent in a replay too
            shown = self._contents
            outcome = result.outcome
            line["outcome"] = (
                shown.content(outcome, cache)
                if shown.plain
                else shown.digest(digest, exact if exact != digest else None, outcome, noise)
            )
        return line

    def _where(
        self, place: Identity | None, exits: Iterable[Identity] | None, tasks: Iterable[Task]
    ) -> dict[str, Any]:
        shown = self._contents
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
        return [self._contents.identity(value) for value in values] or None


class _Issued(NamedTuple):
    clock: float
    time: float | None
    calls: int


_Once: TypeAlias = tuple[bytes, Iterator[bytes]]


def _once(line: bytes) -> _Once:
    """A line to add once, as ``Lines.add`` takes it."""
    return line, iter((line,))


class _OpenRun:
    __slots__ = ("end", "last", "lock", "start", "unobserved", "waiting")

    def __init__(self, start: bytes) -> None:
        self.start = _once(start)
        self.end: _Once | None = None
        self.lock = threading.RLock()  # re-entrant: its end is reported while it ends
        self.last: int | None = None
        self.waiting: dict[str, Any] | None = None  # the line of the last step, before its result
        self.unobserved: OrderedDict[int, _Issued] = OrderedDict()


def _declared(declared: ToolDeclaration) -> dict[str, Any]:
    poll = declared.poll
    line: dict[str, Any] = {"mutates": True} if declared.mutates else {}
    if isinstance(poll, timedelta):
        line["poll_seconds"] = poll.total_seconds()
    elif poll:
        line["poll"] = poll if type(poll) is bool else int.__index__(poll)
    return line
