"""The last steps of runs and their events, as a page shows them: names, digests and numbers."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.events import RunStarted
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.streaming_metrics.records import ObservedStep
from tidegauge.streaming_metrics.snapshot import RunReport

MAX_STEPS: Final = 40
"""How many of the last steps of a run are kept."""

Report: TypeAlias = Callable[["StepHistory", str, int, str], int]
"""Takes what happens; gives back the number of the log event."""


class HistoryStep(NamedTuple):
    """One step as it is shown.

    Attributes:
        step: its index.
        tool: name of its tool; of a round of several, their names joined by ``+``.
        action: digest of the action.
        looped: whether it is part of a loop, from the first repeated step on.
        observed: whether its outcome is there.
        outcome: digest of what came back; ``None``, not given.
        failed: whether every call of it failed; ``None``, not known.
        tokens: tokens spent on it; ``None``, not reported.
        seconds: how long it took; ``None``, not reported.
        stale_score: S after it; ``None``, not measured.
        intervention: what was decided at it; ``None``, to go on.
        arguments: the beginning of its arguments; ``None``, contents are not captured.
        result: the beginning of its results; ``None`` likewise.
    """

    step: int
    tool: str
    action: bytes
    looped: bool = False
    observed: bool = False
    outcome: bytes | None = None
    failed: bool | None = None
    tokens: float | None = None
    seconds: float | None = None
    stale_score: int | None = None
    intervention: str | None = None
    arguments: str | None = None
    result: str | None = None


_STREAKS: Final = ("result_streak", "failed_rounds")
_LOOPED, _OBSERVED, _STALE_SCORE, _INTERVENTION, _ARGUMENTS, _RESULT = 3, 4, 9, 10, 11, 12
_OF_THE_OUTCOME: Final = slice(_OBSERVED, _STALE_SCORE + 1)


class StepHistory:
    """Keeps the last :data:`MAX_STEPS` steps of one run. Called with the run's lock held.

    It is on the step path, so a step is a plain list until it is read, in the order of
    :class:`HistoryStep`'s fields. O(1) amortised a step.

    Args:
        number: distinguishes the run from all others of this process, also those of the same id.
        started: when it was opened, in seconds since the epoch.
        report: takes what happens in the run: this history, what happened, at which step, why.
        clock: seconds since the epoch.

    Attributes:
        onset: number of the log event that its last loop set in with.
        stuck: step and time at which the last streak of equal results set in, and of failed rounds.
        calm: last step after which the stale score was 0, and its time; -1 and the start, none.

    >>> history = StepHistory(1, started=0.0)
    >>> history.issued(0, b"digest", "look", (), None)
    >>> history.observed(ObservedStep(0, seconds=0.5), 2, None)
    >>> [(step.tool, step.seconds, step.stale_score) for step in history.steps()]
    [('look', 0.5, 2)]
    """

    __slots__ = ("_clock", "_report", "_rows", "calm", "number", "onset", "started", "stuck")

    def __init__(
        self,
        number: int,
        *,
        started: float,
        report: Report | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.number = number
        self.started = started
        self.onset = 0
        self.stuck: dict[str, tuple[int, float]] = {}
        self.calm = (-1, started)
        self._clock = clock
        self._report = report
        self._rows: dict[int, list[Any]] = {}  # by step, in order

    def issued(
        self, t: int, action: bytes, tool: str, looped: Sequence[int], shown: str | None
    ) -> None:
        """A step was issued.

        Args:
            t: its index.
            action: digest of the action.
            tool: name of its tool.
            looped: the steps that turn out to be part of a loop with it.
            shown: the beginning of its arguments; ``None``, contents are not shown.
        """
        row = [t, tool, action, False, False, None, None, None, None, None, None, None, None]
        rows = self._rows
        rows[t] = row
        if len(rows) > MAX_STEPS:
            del rows[next(iter(rows))]
        for step in looped:
            earlier = rows.get(step)
            if earlier is not None:
                earlier[_LOOPED] = True
        row[_ARGUMENTS] = shown

    def observed(self, step: ObservedStep, stale_score: int | None, shown: str | None) -> None:
        """The result of a step was observed; one that is no longer kept is ignored.

        Args:
            step: the step.
            stale_score: S after it.
            shown: the beginning of its results; ``None``, contents are not shown.
        """
        if not stale_score:
            self.calm = (step.t, self._clock())
        row = self._rows.get(step.t)
        if row is None:
            return
        row[_OF_THE_OUTCOME] = (
            True,
            step.outcome,
            step.failed,
            step.tokens,
            step.seconds,
            stale_score,
        )
        row[_RESULT] = shown

    def intervened(self, action: str, reason: str, t: int) -> None:
        """A policy intervened at a step, or would have."""
        row = self._rows.get(t)
        if row is not None and (action != "would_stop" or row[_INTERVENTION] is None):
            row[_INTERVENTION] = action
        self.report(action, t, reason)

    def report(self, what: str, t: int, why: str) -> None:
        """Report something that happened to the log."""
        if self._report is not None:
            number = self._report(self, what, t, why)
            if what == "loop":
                self.onset = number
            elif what in _STREAKS:
                self.stuck[what] = (t, self._clock())

    def steps(self) -> list[HistoryStep]:
        """The last steps, in order."""
        return [HistoryStep(*row) for row in self._rows.values()]

    def stale_scores(self) -> list[int | None]:
        """The stale score after each of the last steps whose outcome is there."""
        return [row[_STALE_SCORE] for row in self._rows.values() if row[_OBSERVED]]


MAX_EVENTS: Final = 100
"""How many of the last events are kept; of ends with success, as many more."""

_MAX_MODELS: Final = 100

MAX_ENDED: Final = 50
"""How many of the runs that ended last are kept."""


class LogEvent(NamedTuple):
    """Something in a run.

    Attributes:
        number: they are counted from 1.
        time: seconds since the epoch.
        run_number: number of the run's history.
        run: id of the run.
        agent: its agent.
        what: ``cycle``, ``result_streak`` or ``failed_rounds`` set in; ``nudge``, ``block``,
            ``stop`` or ``would_stop``; or ``ended``.
        step: at which step; of a run that ended, how many it took.
        why: the reason of an intervention, or the outcome of a run.
    """

    number: int
    time: float
    run_number: int
    run: str
    agent: str
    what: str
    step: int
    why: str


class Spent(NamedTuple):
    """Tokens of runs that ended, and those that loops cost."""

    tokens: float = 0
    lost: float = 0


class EndedRun(NamedTuple):
    """A run that ended: its report without the list of loops, and its last steps."""

    report: RunReport
    history: StepHistory


class EventLog:
    """Keeps what the page shows in addition to numbers: bounded, and not read by scrapes.

    An engine that is given one keeps the last steps of every run. Without it they cost nothing.

    Args:
        contents: keep the beginnings of arguments and results.
        clock: seconds since the epoch.

    >>> log = EventLog(clock=lambda: 5.0)
    >>> history = log.history(RunStarted(run="r1", agent="browser"))
    >>> history.report("loop", 7, "")
    >>> [(one.agent, one.what, one.step) for one in log.events()]
    [('browser', 'loop', 7)]
    """

    def __init__(self, *, contents: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.contents = contents
        self._clock = clock
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._run_numbers = itertools.count(1)
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()  # re-entrant for readers, as the engine's
        self._events: deque[LogEvent] = deque(maxlen=MAX_EVENTS)
        # Apart, so that many runs that succeed do not displace what matters.
        self._successes: deque[LogEvent] = deque(maxlen=MAX_EVENTS)
        self._ended: OrderedDict[int, EndedRun] = OrderedDict()  # by number, oldest first
        self._spent: dict[str | None, Spent] = {}  # by model, of runs that ended and have tokens

    def history(self, started: RunStarted) -> StepHistory:
        """The history of a run that begins."""
        run, agent = started.run, started.agent

        def report(history: StepHistory, what: str, step: int, why: str) -> int:
            now = self._clock()
            return self._keep(LogEvent(0, now, history.number, run, agent, what, step, why))

        number, started_at = next(self._run_numbers), self._clock()
        return StepHistory(number, started=started_at, report=report, clock=self._clock)

    def run_ended(self, report: RunReport, history: StepHistory) -> None:
        """A run ended."""
        ended = EndedRun(report.replaced(loops=[]), history)
        with here.critical, self._lock:
            if history.number in self._ended:
                return  # an exception has arrived in the middle of this
            known = report.model in self._spent or len(self._spent) < _MAX_MODELS
            model = report.model if known else None
            spent = self._spent.get(model, Spent())
            if report.tokens is not None:
                spent = Spent(spent.tokens + report.tokens, spent.lost + (report.lost_tokens or 0))
            self._ended[history.number] = ended  # nothing can come between these
            if report.tokens is not None:
                self._spent[model] = spent
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        history.report("ended", report.steps, report.outcome)

    def spent_by_model(self) -> dict[str | None, Spent]:
        """Tokens of the runs that ended, by model, where they are reported."""
        with here.critical, self._lock:
            return dict(self._spent)

    def ended(self, number: int) -> EndedRun | None:
        """The run of that number, if it is one of those that ended last."""
        return self._ended.get(number)

    def events(self, after: int = 0) -> list[LogEvent]:
        """What happened since the event of that number, as far as it is kept, in order."""
        with here.critical, self._lock:
            kept = [one for one in (*self._events, *self._successes) if one.number > after]
        return sorted(kept)  # by number

    def _keep(self, one: LogEvent) -> int:
        with here.critical, self._lock:
            number = next(self._numbers)
            success = one.what == "ended" and one.why == "success"
            (self._successes if success else self._events).append(one._replace(number=number))
        return number
