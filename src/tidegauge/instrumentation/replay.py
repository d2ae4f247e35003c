"""Replay: recorded runs go through a step sink as if they were going on now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import BinaryIO, Final, Literal, NamedTuple

from tidegauge.errors import StepEventError
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, Step, StepSink
from tidegauge.instrumentation.step_events import OpenStep, RecordedStep, StepEvent, parse_line

__all__ = ["MAX_LINE_BYTES", "Fault", "Line", "Replay", "read_lines"]

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
        reason: what is wrong.
        skipped: whether the line was left out; else it was taken, and something before it is odd.
    """

    source: str
    line: int
    reason: str
    skipped: bool = True

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.reason}"


def read_lines(stream: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """The lines of a stream as they come, none of them held beyond ``limit`` bytes.

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
    """A step whose outcome is still to come: its index in the replay, and the calls it kept."""

    step: int | None
    kept: list[int]


class Replay:
    """Feeds recordings to a sink, line by line; several files are one recording.

    A line that cannot be taken is told to ``on_fault`` and skipped: one of a wrong form, an end
    without a start, a step after its run's end. A run without a start is opened by its first
    step. A start of a run that is open opens a new run of that id, as it does live: the line is
    taken, and told as a fault that was not skipped. Empty lines are nothing.

    A run that the sink decides to stop ends there; what else is recorded of it is ignored.

    Memory grows with the number of runs (their ids), not with their length.

    Args:
        sink: takes the events.
        ignore_actions: actions whose calls are left out, as if they had not been recorded.
        t_max: the ``t_max`` of every run, instead of what the recording says.
        on_fault: told of every fault; what it raises ends the replay.

    Attributes:
        skipped_lines: how many lines were skipped.
    """

    def __init__(
        self,
        sink: StepSink,
        *,
        ignore_actions: Container[str] = (),
        t_max: int | None = None,
        on_fault: Callable[[Fault], None] | None = None,
    ) -> None:
        self.skipped_lines = 0
        self._sink = sink
        self._ignore_actions = ignore_actions
        self._t_max = t_max
        self._on_fault = on_fault
        self._standing: dict[str, Literal["open", "ended", "stopped"]] = {}
        self._open_steps: dict[str, OrderedDict[int, _OpenStep]] = {}

    def take(self, line: Line, source: str) -> None:
        """Take one line of the file ``source``."""
        try:
            self._deliver(line, source)
        except StepEventError as error:
            fault = Fault(source, line.number, str(error))
        else:
            return
        self.skipped_lines += 1
        self._tell(fault)

    def _deliver(self, line: Line, source: str) -> None:
        content = line.content
        if content is None:
            raise StepEventError(f"longer than {MAX_LINE_BYTES >> 20} MiB ({line.size} bytes)")
        if line.number == 1:
            content = content.removeprefix(_BYTE_ORDER_MARK)
        if content.isspace() or not content:
            return
        event = parse_line(content)
        if isinstance(event, RunStarted) and self._standing.get(event.run) == "open":
            reason = f"run {_shown(event.run)} starts again and had no end"
            self._tell(Fault(source, line.number, reason, skipped=False))
        self.feed(event)

    def feed(self, event: StepEvent) -> None:
        """Take one event that was read already.

        Raises:
            StepEventError: it cannot be taken: an end without a start, a step after its run's end.
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

    def forget(self, run: str) -> None:
        """Nothing more will come of a run: what was remembered of it may go."""
        self._standing.pop(run, None)
        self._open_steps.pop(run, None)

    def _start(self, event: RunStarted) -> None:
        self._standing[event.run] = "open"
        self._open_steps.pop(event.run, None)
        if self._t_max is not None:
            event = replace(event, t_max=self._t_max)
        self._sink.run_started(event)

    def _step(self, step: RecordedStep) -> None:
        issued, observed = step
        if not self._goes_on(issued):
            return
        kept = self._kept(issued)
        if kept is None:
            return
        decision = self._sink.step_issued(_with_calls(issued, kept))
        if not decision.stop:
            decision = self._sink.step_observed(_with_results(observed, kept))
        self._heed(decision, issued.run)

    def _open_step(self, step: OpenStep) -> None:
        issued = step.issued
        if not self._goes_on(issued):
            return
        kept, index = self._kept(issued), None
        if kept is not None:
            decision = self._sink.step_issued(_with_calls(issued, kept))
            index = decision.signals.step if decision.signals is not None else None
            self._heed(decision, issued.run)
        waiting = self._open_steps.setdefault(issued.run, OrderedDict())
        waiting[step.step] = _OpenStep(index, kept or [])
        if len(waiting) > _MAX_OPEN_STEPS:
            waiting.popitem(last=False)

    def _outcome(self, outcome: Outcome) -> None:
        run = outcome.run
        match self._standing.get(run):
            case "stopped":
                return
            case "ended" | None:
                raise StepEventError(f"an outcome of run {_shown(run)}, which is not open")
        waiting = self._open_steps.get(run)
        step = waiting.pop(outcome.step or 0, None) if waiting is not None else None
        if step is None:
            raise StepEventError(f"an outcome of step {outcome.step}, which waits for none")
        if step.step is not None:
            outcome = _with_results(outcome, step.kept)._replace(step=step.step)
            self._heed(self._sink.step_observed(outcome), run)

    def _goes_on(self, issued: Step) -> bool:
        """Whether a step's run is open; one that is not known is opened."""
        run = issued.run
        match self._standing.get(run):
            case "stopped":
                return False
            case "ended":
                raise StepEventError(f"a step of run {_shown(run)}, which has ended")
            case None:
                self._start(RunStarted(run=run, time=issued.time))
        return True

    def _heed(self, decision: Decision, run: str) -> None:
        if decision.stop:
            self._close(run, "stopped")
            self._sink.run_ended(RunEnded(run=run, outcome="stopped", reason=decision.reason))

    def _close(self, run: str, standing: Literal["ended", "stopped"]) -> None:
        self._standing[run] = standing
        self._open_steps.pop(run, None)

    def _kept(self, issued: Step) -> list[int] | None:
        """Which of a step's calls are left; ``None``, the step is ignored."""
        ignored = self._ignore_actions
        kept = [n for n, call in enumerate(issued.calls) if call.action not in ignored]
        return kept if kept or not issued.calls else None

    def _end(self, event: RunEnded) -> None:
        standing = self._standing.get(event.run)
        if standing in (None, "ended"):
            state = "is not known" if standing is None else "has ended before"
            raise StepEventError(f"an end of run {_shown(event.run)}, which {state}")
        self._close(event.run, "ended")
        if standing == "open":
            self._sink.run_ended(event)

    def _tell(self, fault: Fault) -> None:
        if self._on_fault is not None:
            self._on_fault(fault)


def _with_calls(issued: Step, kept: list[int]) -> Step:
    """A step with those of its calls. A round keeps its other calls."""
    if len(kept) == len(issued.calls):
        return issued
    return issued._replace(calls=tuple([issued.calls[n] for n in kept]))


def _with_results(observed: Outcome, kept: list[int]) -> Outcome:
    results = observed.results
    if kept == list(range(len(results))):
        return observed
    return observed._replace(results=tuple([results[n] for n in kept if n < len(results)]))


def _shown(run: str) -> str:
    return repr(run) if len(run) <= _MAX_SHOWN else repr(run[: _MAX_SHOWN - 1] + "…")
