"""Runs from step events that may arrive twice or out of order.

An event with a position in its run waits for the events before it, for the allowed lateness; an
event that arrives again is a duplicate. Events without a position are processed as they arrive.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import StepEventError
from tidegauge.events import Outcome, RunEnded, RunStarted, StepSink
from tidegauge.fleet.kafka_records import Message, read_message
from tidegauge.recordings.line_replay import Replay
from tidegauge.safety.guard import guarded
from tidegauge.values.plain_objects import Kept, PlainObjects

Reject: TypeAlias = Callable[[Message, str], None]
"""Called with an accepted message that turns out to be invalid, and why."""

_MAX_WAITING: Final = 1_000
_MAX_OUTCOMES: Final = 2_000
_LAST: Final = (1 << 64, 0)  # after every number in JSON


@dataclass(slots=True, eq=False)
class _Run:
    id: str
    last_seen: float
    started: bool = False
    over: bool = False
    steps: int = 0  # the index of the next step
    outcomes: set[int] = field(
        default_factory=set
    )  # steps whose result arrived as a separate event
    waiting: list[tuple[tuple[int, int], int, Message]] = field(default_factory=list)  # a heap
    since: float = 0.0  # when the first of them arrived
    arrived: int = 0

    def position(self, message: Message) -> Literal["next", "early", "duplicate"]:
        """Whether an event is the next of its run, comes too early, or again."""
        event, turn = message.event, message.turn
        if self.over:
            return "duplicate"
        if isinstance(event, RunStarted):
            return "duplicate" if self.started or self.steps else "next"
        if isinstance(event, RunEnded):
            if any(isinstance(other.event, RunEnded) for _, _, other in self.waiting):
                return "duplicate"
            return "early" if self.waiting or (turn and turn[0] > self.steps) else "next"
        if turn is None:
            return "next"
        if any(other == turn for other, _, _ in self.waiting):
            return "duplicate"
        number = turn[0]
        if isinstance(event, Outcome):
            return (
                "duplicate"
                if number in self.outcomes
                else "early"
                if number >= self.steps
                else "next"
            )
        if number < self.steps:
            return "duplicate"
        return "early" if number > self.steps or not self.started else "next"

    def emitted(self, message: Message) -> None:
        """An event was emitted."""
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


_RUNS: Final = PlainObjects([Kept(_Run, lambda: _Run("", 0.0), ("over", "waiting"))])


class StepRuns:
    """The open runs of step events. One thread at a time.

    Args:
        reject: called with messages that waited and turn out to be invalid.
        allowed_lateness: seconds that an event waits for the events before it.
        idle_seconds: a run without an event for this long is ended, with outcome unknown.
        max_runs: limit of open runs; one more ends the run that was idle for longest.
        on_forgotten: called with the id of each run that is no longer held.

    Attributes:
        duplicates: events that arrived again, or too late, after later events were emitted.
    """

    def __init__(
        self,
        sink: StepSink,
        reject: Reject,
        *,
        allowed_lateness: float,
        idle_seconds: float,
        max_runs: int,
        on_forgotten: Callable[[str], None],
    ) -> None:
        self.duplicates = 0
        self._sink = sink
        self._replay = Replay(sink)
        self._reject = reject
        self._allowed_lateness = allowed_lateness
        self._idle_seconds = idle_seconds
        self._max_runs = max_runs
        self._on_forgotten = on_forgotten
        self._runs: OrderedDict[str, _Run] = OrderedDict()  # least recently seen first
        self._waiting: OrderedDict[str, None] = OrderedDict()  # runs with waiting events, in order

    def holds(self, run: str) -> bool:
        """Whether a run is open."""
        return run in self._runs

    def saved(self, run_id: str) -> dict[str, Any] | None:
        """A run as plain data, for :meth:`load`; ``None``: it is not open."""
        run = self._runs.get(run_id)
        if run is None:
            return None
        waiting = [
            [
                *(turn if turn != _LAST else (None, None)),
                arrived,
                message.offset,
                (message.value or b"").decode(),
            ]
            for turn, arrived, message in run.waiting
        ]
        replay = self._replay.saved(run_id)
        return {"run": _RUNS.write(run), "waiting": waiting, "replay": replay}

    def load(self, run_id: str, saved: Mapping[str, Any]) -> None:
        """Continue a run of another process; call :meth:`in_order` after the last."""
        run = self._runs[run_id] = _RUNS.read(saved["run"])
        key = run_id.encode()
        for first, second, arrived, offset, value in saved["waiting"]:
            turn = _LAST if first is None else (first, second)
            message = read_message(key, value.encode(), offset)
            run.waiting.append((turn, arrived, message))
        self._replay.load(run_id, saved["replay"])

    def in_order(self) -> None:
        """After loads: the runs that were idle, or have waited, for longest come first."""
        runs = sorted(self._runs.values(), key=lambda run: run.last_seen)
        self._runs = OrderedDict((run.id, run) for run in runs)
        waiting = sorted((run for run in runs if run.waiting), key=lambda run: run.since)
        self._waiting = OrderedDict((run.id, None) for run in waiting)

    def take(self, message: Message, now: float) -> bool:
        """Take an event; ``False``: it is a duplicate.

        Raises:
            StepEventError: it is invalid, and nothing has changed.
        """
        run = self._runs.get(message.run) or _Run(message.run, now)
        position = run.position(message)
        if position == "early" and len(run.waiting) >= _MAX_WAITING:
            self._emit_waiting(run)
            position = run.position(message)
        if position == "duplicate":
            self.duplicates += 1
            return False
        if position == "next":
            self._emit(run, message)
        if not run.over:
            # Only new events keep a run alive, and new events are in the changelog: see Partition.
            run.last_seen = now
            self._runs[run.id] = run
            self._runs.move_to_end(run.id)
            if position == "early":
                self._wait(run, message, now)
            else:
                self._emit_followers(run)
        if len(self._runs) > self._max_runs:
            self._abort(next(iter(self._runs.values())), "too many runs")
        return True

    def expire(self, now: float) -> None:
        """Emit the events that waited for long enough; end the runs that were idle for too long."""
        while self._waiting:
            run = self._runs[next(iter(self._waiting))]
            if run.since + self._allowed_lateness > now:
                break
            self._emit_waiting(run)
        while self._runs:
            run = next(iter(self._runs.values()))
            if now - run.last_seen <= self._idle_seconds:
                break
            self._abort(run, "idle")

    def abort(self, run_id: str) -> None:
        """End a run because it is too large."""
        run = self._runs.get(run_id)
        if run is not None:
            self._abort(run, "too large")

    def _wait(self, run: _Run, message: Message, now: float) -> None:
        if not run.waiting:
            run.since = now
            self._waiting[run.id] = None
        run.arrived += 1
        follows_all = message.turn is None or isinstance(message.event, RunEnded)
        turn = _LAST if follows_all else message.turn
        heappush(run.waiting, (turn or _LAST, run.arrived, message))

    def _emit_followers(self, run: _Run) -> None:
        """Emit the events that waited for the last one."""
        while run.waiting:
            first = heappop(run.waiting)
            position = run.position(first[-1])
            if position == "early":
                heappush(run.waiting, first)
                return
            if position == "duplicate":
                self.duplicates += 1
            else:
                self._try_emit(run, first[-1])
        self._waiting.pop(run.id, None)

    def _emit_waiting(self, run: _Run) -> None:
        """Emit all waiting events: the missing ones before them come too late, or never."""
        while run.waiting:
            self._try_emit(run, heappop(run.waiting)[-1])
        self._waiting.pop(run.id, None)

    @guarded("fleet.step_runs", default=None)
    def _try_emit(self, run: _Run, message: Message) -> None:
        try:
            self._emit(run, message)
        except StepEventError as error:
            self._reject(message, str(error))

    def _emit(self, run: _Run, message: Message) -> None:
        if message.event is None:
            return
        self._replay.feed(message.event)
        if isinstance(message.event, RunEnded):
            self._forget(run)
        else:
            run.emitted(message)

    def _abort(self, run: _Run, reason: str) -> None:
        self._emit_waiting(run)
        if not run.over:
            self._end(run, reason)
            self._forget(run)

    @guarded("fleet.step_runs", default=None)
    def _end(self, run: _Run, reason: str) -> None:
        if run.started:
            ended = RunEnded(run=run.id, outcome="unknown", reason=reason, evicted=True)
            self._sink.run_ended(ended)

    def _forget(self, run: _Run) -> None:
        run.over = True
        self._runs.pop(run.id, None)
        self._waiting.pop(run.id, None)
        self._replay.forget(run.id)
        self._on_forgotten(run.id)
