"""What holds for each run, out of records that come at least once and in any order.

Of the records of a run one holds: that it ended, whatever else is known; else its first stop; else
the newest by step and time. Each is the greatest in one order, so that duplicates, replays and
overtaking change nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from tidegauge.fleet.decision_record import DecisionAction, DecisionRecord

__all__ = ["DecisionTable"]

_SEVERITY: Final[dict[DecisionAction, int]] = {
    "ended": 0,
    "go_on": 1,
    "nudge": 2,
    "block": 3,
    "stop": 4,
}


class DecisionTable:
    """The decision that holds, by run and by trace. Not for several threads at once.

    Args:
        max_runs: runs that are known at most. Beyond them those that ended go first, then those
            that have had no news for longest.
        ended_seconds: for so long it is known of a run that it ended.

    Attributes:
        dropped: runs that were forgotten because there were too many.

    >>> table = DecisionTable()
    >>> table.take(DecisionRecord("r1", "stop", step=4), now=0.0)
    True
    >>> table.take(DecisionRecord("r1", "nudge", step=5), now=1.0)
    False
    >>> table.find("r1").action
    'stop'
    """

    def __init__(self, *, max_runs: int = 100_000, ended_seconds: float = 3_600.0) -> None:
        self._max_runs = max_runs
        self._ended_seconds = ended_seconds
        # the one without news for longest first; the other, the one that ended first
        self._open: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._ended: OrderedDict[str, tuple[DecisionRecord, float]] = OrderedDict()
        self._traces: dict[str, set[str]] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    def __iter__(self) -> Iterator[DecisionRecord]:
        """What holds for the runs that have not ended."""
        return iter(self._open.values())

    def take(self, record: DecisionRecord, now: float) -> bool:
        """Take a record in.

        Args:
            record: it.
            now: seconds on any clock that only goes forward.

        Returns:
            Whether another decision holds for the run now.
        """
        held = self._of_run(record.run)
        if held is not None and _order(record) <= _order(held):
            return False
        if held is not None:
            self._forget(held)
        if record.action == "ended":
            self._ended[record.run] = (record, now)
        else:
            self._open[record.run] = record
        if record.trace_id is not None:
            self._traces.setdefault(record.trace_id, set()).add(record.run)
        self.forget_ended(now)
        while len(self) > self._max_runs:
            self._forget(self._oldest())
            self.dropped += 1
        return True

    def find(self, run_or_trace: str) -> DecisionRecord | None:
        """What holds for a run, or for a trace: the severest of its runs. ``None``, not known.

        The outermost run of a trace is called by the trace's id: whoever asks for it is told of
        the runs inside, too. Of two as severe it is the one that was decided first.
        """
        found = list(self.of_trace(run_or_trace))
        own = self._of_run(run_or_trace)
        if own is not None and own.trace_id != run_or_trace:
            found.append(own)
        return min(
            found,
            key=lambda record: (-_SEVERITY[record.action], _when(record), record.run),
            default=None,
        )

    def of_trace(self, trace_id: str) -> Iterator[DecisionRecord]:
        """What holds for each run of a trace, in no order."""
        for run in self._traces.get(trace_id, ()):
            record = self._of_run(run)
            if record is not None:
                yield record

    def forget_ended(self, now: float) -> None:
        """Forget the runs that ended long ago."""
        while self._ended:
            record, since = next(iter(self._ended.values()))
            if now - since < self._ended_seconds:
                return
            self._forget(record)

    def _of_run(self, run: str) -> DecisionRecord | None:
        held = self._open.get(run)
        return held if held is not None else self._ended.get(run, (None,))[0]

    def _oldest(self) -> DecisionRecord:
        if self._ended:
            return next(iter(self._ended.values()))[0]
        return next(iter(self._open.values()))

    def _forget(self, record: DecisionRecord) -> None:
        self._open.pop(record.run, None)
        self._ended.pop(record.run, None)
        if record.trace_id is not None:
            runs = self._traces[record.trace_id]
            runs.discard(record.run)
            if not runs:
                del self._traces[record.trace_id]


def _order(record: DecisionRecord) -> tuple[Any, ...]:
    """Of two records of a run, the greater holds.

    Of two at the same moment it is the severer: which one was meant to come later cannot be known.
    """
    step, time = _when(record)
    rest = (_SEVERITY[record.action], record.reason or "", record.message or "")
    if record.action == "ended":
        return (2, step, time, *rest)
    if record.action == "stop":
        return (1, -step, -time, *rest)
    return (0, step, time, *rest)


def _when(record: DecisionRecord) -> tuple[int, float]:
    return (
        -1 if record.step is None else record.step,
        0.0 if record.time is None else record.time,
    )
