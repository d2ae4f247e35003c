"""Replay: feeds recorded runs to a step sink as if they were live."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from tidegauge.errors import StepEventError
from tidegauge.events import (
    Answer,
    Decision,
    Outcome,
    RunEnded,
    RunObserver,
    RunStarted,
    Step,
    StepSink,
)
from tidegauge.recordings.step_events import OpenStep, RecordedStep, StepEvent, parse_line

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MAX_SHOWN: Final = 80
_MAX_OPEN_STEPS: Final = 1_000  # as many as the engine waits for


class Line(NamedTuple):
    """A line of a recording.

    Attributes:
        number: counted from 1.
        content: its bytes; ``None``, it was longer than the limit.
        size: how many bytes were read for it.
    """

    number: int
    content: bytes | None
    size: int


class Fault(NamedTuple):
    """Something wrong with a line of a recording.

    Attributes:
        source: the file's name.
        line: the line's number, counted from 1.
        skipped: whether the line was skipped; else it was used despite the fault.
    """

    source: str
    line: int
    reason: str
    skipped: bool = True

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.reason}"


def read_lines(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """The lines of a stream as they arrive, each limited to ``limit`` bytes of memory.

    >>> import io
    >>> [line.content for line in read_lines(io.BytesIO(b"short\\ntoo long\\nend"), limit=6)]
    [b'short\\n', None, b'end']
    """
    number = 0
    while content := stream.readline(limit + 1):
        number += 1
        if len(content) <= limit:
            yield Line(number, content, len(content))
            continue
        size, ended = len(content), content.endswith(b"\n")
        del content
        while not ended and (rest := stream.readline(limit)):
            size += len(rest)
            ended = rest.endswith(b"\n")
        yield Line(number, None, size)


class _OpenStep(NamedTuple):
    """A step without its outcome yet: its index in the replay, and the calls that are replayed."""

    step: int | None
    calls: list[int]


class Replay:
    """Feeds recordings to a sink, line by line; several files are one recording.

    An invalid line is reported to ``on_fault`` and skipped: a line of a wrong form, an end without
    a start, a step after its run's end. A run without a start is opened by its first step. A start
    of an open run opens a new run of that id, as it does live: the line is used, and reported as a
    fault that was not skipped. Empty lines are ignored.

    When the sink decides to stop a run, the run ends there; its other lines are ignored. What the
    sink or an observer raises ends the replay.

    Memory grows with the number of runs (their ids), not with their length.

    Args:
        ignore_actions: actions whose calls are skipped, as if they had not been recorded.
        t_max: the ``t_max`` of every run, or of the runs of each task group, instead of the
            recorded one.
        observers: get each event after the sink.
        on_fault: receives every fault; an exception that it raises ends the replay.
    """

    def __init__(
        self,
        sink: StepSink,
        *,
        ignore_actions: Container[str] = (),
        t_max: int | Mapping[str, int] | None = None,
        observers: Sequence[RunObserver] = (),
        on_fault: Callable[[Fault], None] | None = None,
    ) -> None:
        self.skipped_lines = 0
        self._sink = sink
        self._observers = observers
        self._ignore_actions = ignore_actions
        self._t_max = t_max
        self._on_fault = on_fault
        self._standing: dict[str, Literal["open", "ended", "stopped"]] = {}
        self._open_steps: dict[str, OrderedDict[int, _OpenStep]] = {}

    def take(self, line: Line, source: str) -> None:
        """Process one line of the file ``source``."""
        try:
            self._deliver(line, source)
        except StepEventError as error:
            self.skip(Fault(source, line.number, str(error)))

    def skip(self, fault: Fault) -> None:
        """Count a line that cannot be used, and report why."""
        self.skipped_lines += 1
        self._report(fault)

    def _deliver(self, line: Line, source: str) -> None:
        content = line.content
        if content is None:
            limit = MAX_LINE_BYTES >> 20
            raise StepEventError(f"the line has {line.size} bytes; use at most {limit} MiB")
        if line.number == 1:
            content = content.removeprefix(_BYTE_ORDER_MARK)
        if content.isspace() or not content:
            return
        event = parse_line(content)
        if isinstance(event, RunStarted) and self._standing.get(event.run) == "open":
            reason = f"run {_shown(event.run)} starts again before its end"
            self._report(Fault(source, line.number, reason, skipped=False))
        self.feed(event)

    def feed(self, event: StepEvent) -> None:
        """Process one parsed event.

        Raises:
            StepEventError: an end without a start, or a step after its run's end.
        """
        match event:
            case RunStarted():
                self._start(event)
            case RunEnded():
                self._end(event)
            case RecordedStep():
                self._step(event)
            case OpenStep():
                self._open_step(event)
            case Outcome():
                self._outcome(event)
            case Answer():
                self._answer(event)

    def forget(self, run: str) -> None:
        """Drop the state of a run of which no more events come."""
        self._standing.pop(run, None)
        self._open_steps.pop(run, None)

    def saved(self, run: str) -> list[Any]:
        """A run as plain data, for :meth:`load`."""
        waiting = self._open_steps.get(run)
        return [
            self._standing.get(run),
            [[step, one.step, one.calls] for step, one in (waiting or {}).items()],
        ]

    def load(self, run: str, saved: Sequence[Any]) -> None:
        """Continue a run that another process has replayed so far."""
        standing, waiting = saved
        if standing is not None:
            self._standing[run] = standing
        if waiting:
            self._open_steps[run] = OrderedDict(
                (step, _OpenStep(index, calls)) for step, index, calls in waiting
            )

    def _start(self, event: RunStarted) -> None:
        self._standing[event.run] = "open"
        self._open_steps.pop(event.run, None)
        t_max = self._t_max
        if isinstance(t_max, Mapping):
            t_max = t_max.get(event.task_group)
        if t_max is not None:
            event = replace(event, t_max=t_max)
        self._sink.run_started(event)
        for observer in self._observers:
            observer.run_started(event)

    def _step(self, step: RecordedStep) -> None:
        issued, observed = step
        if not self._is_open(issued):
            return
        calls = self._replayed(issued)
        if calls is None:
            return
        decision = self._issue(_with_calls(issued, calls))
        if not decision.stop:
            decision = self._observe(_with_results(observed, calls))
        self._apply(decision, issued.run)

    def _open_step(self, step: OpenStep) -> None:
        issued = step.issued
        if not self._is_open(issued):
            return
        calls, index = self._replayed(issued), None
        if calls is not None:
            decision = self._issue(_with_calls(issued, calls))
            index = decision.signals.step if decision.signals is not None else None
            self._apply(decision, issued.run)
        waiting = self._open_steps.setdefault(issued.run, OrderedDict())
        waiting[step.step] = _OpenStep(index, calls or [])
        if len(waiting) > _MAX_OPEN_STEPS:
            waiting.popitem(last=False)

    def _outcome(self, outcome: Outcome) -> None:
        run = outcome.run
        match self._standing.get(run):
            case "stopped":
                return
            case "ended" | None:
                raise StepEventError(f"the run {_shown(run)} is not open")
        waiting = self._open_steps.get(run)
        step = waiting.pop(outcome.step or 0, None) if waiting is not None else None
        if step is None:
            raise StepEventError(f"step {outcome.step} does not wait for a result")
        if step.step is not None:
            outcome = _with_results(outcome, step.calls)._replace(step=step.step)
            self._apply(self._observe(outcome), run)

    def _answer(self, event: Answer) -> None:
        if not self._is_open(event):
            return
        decision = self._sink.answered(event)
        for observer in self._observers:
            observer.answered(event, decision)
        self._apply(decision, event.run)

    def _issue(self, event: Step) -> Decision:
        decision = self._sink.step_issued(event)
        for observer in self._observers:
            observer.step_issued(event, decision)
        return decision

    def _observe(self, event: Outcome) -> Decision:
        decision = self._sink.step_observed(event)
        for observer in self._observers:
            observer.step_observed(event, decision)
        return decision

    def _ended(self, event: RunEnded) -> None:
        self._sink.run_ended(event)
        for observer in self._observers:
            observer.run_ended(event)

    def _is_open(self, issued: Step | Answer) -> bool:
        """Whether the run of a step or an answer is open; an unknown run is opened."""
        run = issued.run
        match self._standing.get(run):
            case "stopped":
                return False
            case "ended":
                raise StepEventError(f"the run {_shown(run)} has already ended")
            case None:
                self._start(RunStarted(run=run, time=issued.time))
        return True

    def _apply(self, decision: Decision, run: str) -> None:
        if decision.stop:
            self._close(run, "stopped")
            self._ended(RunEnded(run=run, outcome="stopped", reason=decision.reason))

    def _close(self, run: str, standing: Literal["ended", "stopped"]) -> None:
        self._standing[run] = standing
        self._open_steps.pop(run, None)

    def _replayed(self, issued: Step) -> list[int] | None:
        """The calls of a step that are not ignored; ``None``: the whole step is."""
        ignored = self._ignore_actions
        calls = [n for n, call in enumerate(issued.calls) if call.action not in ignored]
        return calls if calls or not issued.calls else None

    def _end(self, event: RunEnded) -> None:
        standing = self._standing.get(event.run)
        if standing in (None, "ended"):
            state = "was never started" if standing is None else "has already ended"
            raise StepEventError(f"the run {_shown(event.run)} {state}")
        self._close(event.run, "ended")
        if standing == "open":
            self._ended(event)

    def _report(self, fault: Fault) -> None:
        if self._on_fault is not None:
            self._on_fault(fault)


def _with_calls(issued: Step, calls: list[int]) -> Step:
    """The step with these of its calls only."""
    if len(calls) == len(issued.calls):
        return issued
    return issued._replace(calls=tuple([issued.calls[n] for n in calls]))


def _with_results(observed: Outcome, calls: list[int]) -> Outcome:
    results = observed.results
    if calls == list(range(len(results))):
        return observed
    return observed._replace(results=tuple([results[n] for n in calls if n < len(results)]))


def _shown(run: str) -> str:
    return repr(run) if len(run) <= _MAX_SHOWN else repr(run[: _MAX_SHOWN - 1] + "…")
