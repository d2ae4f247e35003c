"""What is kept for somebody who looks on: trails of runs, and what happened lately."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegauge._critical import here, reset_after_fork
from tidegauge.events import RunStarted
from tidegauge.streaming_metrics.trail import Trail

if TYPE_CHECKING:
    from tidegauge.streaming_metrics.run_report import RunReport

__all__ = ["MAX_ENDED", "MAX_HAPPENINGS", "Chronicle", "EndedRun", "Happening"]

MAX_HAPPENINGS: Final = 100
"""How many of the last happenings are kept."""

MAX_ENDED: Final = 50
"""How many of the runs that ended last are kept."""


class Happening(NamedTuple):
    """Something that happened in a run.

    Attributes:
        number: they are counted from 1.
        time: seconds since the epoch.
        run_number: number of the run's trail.
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


class EndedRun(NamedTuple):
    """A run that ended: its report, the list of its loops left out, and its last steps."""

    report: RunReport
    trail: Trail


class Chronicle:
    """Keeps what a page shows beside the numbers: bounded, and nothing that a scrape reads.

    An engine that is given one lets every run leave a trail in it. Without, a step costs what it
    did.

    Args:
        contents: let trails keep the beginnings of arguments and results.
        clock: seconds since the epoch.

    >>> chronicle = Chronicle(clock=lambda: 5.0)
    >>> trail = chronicle.trail(RunStarted(run="r1", agent="browser"))
    >>> trail.happened("cycle", 7, "")
    >>> [(told.agent, told.what, told.step) for told in chronicle.happenings()]
    [('browser', 'cycle', 7)]
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
        self._happenings: deque[Happening] = deque(maxlen=MAX_HAPPENINGS)
        self._ended: OrderedDict[int, EndedRun] = OrderedDict()  # by number, oldest first
        self.tells_tokens = False  # whether a run that ended had told of tokens

    def trail(self, started: RunStarted) -> Trail:
        """The trail of a run that begins."""
        run, agent = started.run, started.agent

        def tell(trail: Trail, what: str, step: int, why: str) -> int:
            now = self._clock()
            return self._keep(Happening(0, now, trail.number, run, agent, what, step, why))

        return Trail(next(self._run_numbers), started=self._clock(), tell=tell)

    def run_ended(self, report: RunReport, trail: Trail) -> None:
        """A run ended."""
        ended = EndedRun(report._replace(loops=[]), trail)
        with here.critical, self._lock:
            self._ended[trail.number] = ended
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
            self.tells_tokens = self.tells_tokens or report.tokens is not None
        trail.happened("ended", report.steps, report.outcome)

    def ended(self, number: int) -> EndedRun | None:
        """The run of that number, if it is one of those that ended last."""
        return self._ended.get(number)

    def happenings(self, after: int = 0) -> list[Happening]:
        """What happened since the happening of that number, as far as it is kept, in order."""
        with here.critical, self._lock:
            return [one for one in self._happenings if one.number > after]

    def _keep(self, one: Happening) -> int:
        with here.critical, self._lock:
            number = next(self._numbers)
            self._happenings.append(one._replace(number=number))
        return number
