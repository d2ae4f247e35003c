"""What the page shows in addition to numbers: the last steps of runs, and recent events."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidegauge.events import RunStarted
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.step_history import StepHistory

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
