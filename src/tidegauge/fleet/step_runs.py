"""Runs that are told as step events: some twice, some before those that they follow.

An event that says where it stands in its run waits for those before it, as long as a span would;
one that was there already is a duplicate. What does not say so is taken as it comes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Literal, TypeAlias

from tidegauge._guard import guarded
from tidegauge.errors import StepEventError
from tidegauge.events import Outcome, RunEnded, RunStarted, StepSink
from tidegauge.fleet.message import Message
from tidegauge.instrumentation.replay import Replay

__all__ = ["Refuse", "StepRuns"]

Refuse: TypeAlias = Callable[[Message, str], None]
"""Told of a message that was taken and turns out to be of no use, and why."""

_MAX_WAITING: Final = 1_000
_MAX_OUTCOMES: Final = 2_000
_LAST: Final = (1 << 64, 0)  # after every number that JSON brings


@dataclass(slots=True, eq=False)
class _Run:
    id: str
    last_seen: float
    started: bool = False
    over: bool = False
    steps: int = 0  # the index of the next one
    outcomes: set[int] = field(default_factory=set)  # steps whose outcome came on its own
    waiting: list[tuple[tuple[int, int], int, Message]] = field(default_factory=list)  # a heap
    since: float = 0.0  # when the first of them came
    came: int = 0

    def standing(self, message: Message) -> Literal["next", "ahead", "again"]:
        """Whether it is an event's turn."""
        event, turn = message.event, message.turn
        if self.over:
            return "again"
        if isinstance(event, RunStarted):
            return "again" if self.started or self.steps else "next"
        if isinstance(event, RunEnded):
            if any(isinstance(other.event, RunEnded) for _, _, other in self.waiting):
                return "again"
            return "ahead" if self.waiting or (turn and turn[0] > self.steps) else "next"
        if turn is None:
            return "next"
        if any(other == turn for other, _, _ in self.waiting):
            return "again"
        number = turn[0]
        if isinstance(event, Outcome):
            return (
                "again" if number in self.outcomes else "ahead" if number >= self.steps else "next"
            )
        if number < self.steps:
            return "again"
        return "ahead" if number > self.steps or not self.started else "next"

    def taken(self, message: Message) -> None:
        """An event was told."""
        event, turn = message.event, message.turn
        if isinstance(event, Outcome):
            if turn is not None:
                self.outcomes.add(turn[0])
            if len(self.outcomes) > _MAX_OUTCOMES:
                self.outcomes = set(sorted(self.outcomes)[_MAX_OUTCOMES // 2 :])
            return
        self.started = True
        if not isinstance(event, RunStarted):
            self.steps = (self.steps if turn is None else turn[0]) + 1


class StepRuns:
    """The open runs that step events tell of. One thread at a time.

    Args:
        sink: takes the events.
        refuse: told of messages that waited, and cannot be taken after all.
        settle_seconds: for so long an event waits for those before it.
        idle_seconds: a run without an event for so long is ended, as unknown.
        max_runs: open runs held; one more ends the one idle for longest.
        on_forgotten: told the id of each run that is not held any more.

    Attributes:
        duplicates: events that came again, or too late: those after them had been taken.
    """

    def __init__(
        self,
        sink: StepSink,
        refuse: Refuse,
        *,
        settle_seconds: float,
        idle_seconds: float,
        max_runs: int,
        on_forgotten: Callable[[str], None],
    ) -> None:
        self.duplicates = 0
        self._sink = sink
        self._replay = Replay(sink)
        self._refuse = refuse
        self._settle_seconds = settle_seconds
        self._idle_seconds = idle_seconds
        self._max_runs = max_runs
        self._on_forgotten = on_forgotten
        self._runs: OrderedDict[str, _Run] = OrderedDict()  # least recently seen first
        self._unsettled: OrderedDict[str, None] = OrderedDict()  # in which events wait, in order

    def holds(self, run: str) -> bool:
        """Whether a run is open."""
        return run in self._runs

    def take(self, message: Message, now: float) -> bool:
        """Take an event; ``False``, it was there already.

        Raises:
            StepEventError: it cannot be taken, and nothing has changed.
        """
        run = self._runs.get(message.run) or _Run(message.run, now)
        standing = run.standing(message)
        if standing == "ahead" and len(run.waiting) >= _MAX_WAITING:
            self._settle(run)
            standing = run.standing(message)
        if standing == "again":
            self.duplicates += 1
            return False
        if standing == "next":
            self._deliver(run, message)
        if not run.over:
            # Only what is new keeps a run alive, and what is new is kept: see Partition.
            run.last_seen = now
            self._runs[run.id] = run
            self._runs.move_to_end(run.id)
            if standing == "ahead":
                self._keep(run, message, now)
            else:
                self._follow(run)
        if len(self._runs) > self._max_runs:
            self._expel(next(iter(self._runs.values())), "too many runs")
        return True

    def expire(self, now: float) -> None:
        """Take what has waited for long enough; end the runs that nothing was heard of."""
        while self._unsettled:
            run = self._runs[next(iter(self._unsettled))]
            if run.since + self._settle_seconds > now:
                break
            self._settle(run)
        while self._runs:
            run = next(iter(self._runs.values()))
            if now - run.last_seen <= self._idle_seconds:
                break
            self._expel(run, "idle")

    def give_up(self, run_id: str) -> None:
        """End a run for being too large."""
        run = self._runs.get(run_id)
        if run is not None:
            self._expel(run, "too large")

    def _keep(self, run: _Run, message: Message, now: float) -> None:
        if not run.waiting:
            run.since = now
            self._unsettled[run.id] = None
        run.came += 1
        follows_all = message.turn is None or isinstance(message.event, RunEnded)
        turn = _LAST if follows_all else message.turn
        heappush(run.waiting, (turn or _LAST, run.came, message))

    def _follow(self, run: _Run) -> None:
        """Take those that have waited for what was taken just now."""
        while run.waiting:
            first = heappop(run.waiting)
            standing = run.standing(first[-1])
            if standing == "ahead":
                heappush(run.waiting, first)
                return
            if standing == "again":
                self.duplicates += 1
            else:
                self._try(run, first[-1])
        self._unsettled.pop(run.id, None)

    def _settle(self, run: _Run) -> None:
        """Take all that waits: what is missing before it comes too late, or never."""
        while run.waiting:
            self._try(run, heappop(run.waiting)[-1])
        self._unsettled.pop(run.id, None)

    @guarded("fleet.step_runs", default=None)
    def _try(self, run: _Run, message: Message) -> None:
        try:
            self._deliver(run, message)
        except StepEventError as error:
            self._refuse(message, str(error))

    def _deliver(self, run: _Run, message: Message) -> None:
        if message.event is None:
            return
        self._replay.feed(message.event)
        if isinstance(message.event, RunEnded):
            self._forget(run)
        else:
            run.taken(message)

    def _expel(self, run: _Run, reason: str) -> None:
        self._settle(run)
        if not run.over:
            self._end(run, reason)
            self._forget(run)

    @guarded("fleet.step_runs", default=None)
    def _end(self, run: _Run, reason: str) -> None:
        if run.started:
            self._sink.run_ended(RunEnded(run=run.id, outcome="unknown", reason=reason))

    def _forget(self, run: _Run) -> None:
        run.over = True
        self._runs.pop(run.id, None)
        self._unsettled.pop(run.id, None)
        self._replay.forget(run.id)
        self._on_forgotten(run.id)
