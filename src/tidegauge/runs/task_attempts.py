"""What the attempts of one task did, so that a task that is tried again counts once.

A framework may run a task again after it failed: a node of a graph with a retry policy. Or it was
interrupted: a node that asked a person runs from its start when the answer is there. The new
attempt makes its calls again. A turn with the same calls as one of an earlier attempt is that turn,
and no new step; each turn is made again once in an attempt. What an attempt does beyond that is
new. A run that failed with its task is continued by the next attempt.

Tasks are nested: what a task did is part of the task around it, too, which may be tried again.
At most 1,000 calls of a task are remembered. Later ones count in each attempt. A call is looked for
among the next 100 that were not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from tidegauge.runs.turn_calls import SavedArguments, Turn, TurnCall, same_arguments
from tidegauge.values import canonical_digest

_MAX_CALLS: Final = 1_000
_MAX_AHEAD: Final = 100  # turns that an attempt may leave out and still be recognized


class _Tracker(Protocol):
    """What is looked at of the tracker of a run's turns; see ``turns.TurnTracker``."""

    @property
    def run(self) -> str: ...

    def find(self, step: int | None) -> Turn | None: ...


class FailedRun(NamedTuple):
    """A run that failed, and that the next attempt of its task may continue.

    Attributes:
        run: the run.
        call: the call that it is of the run around it.
        whole: whether it is all of its task.
        end: ends it, as it failed.
    """

    run: Any
    call: object
    whole: bool
    end: Callable[[], None]


FirstTurns: TypeAlias = list[tuple[Any, Turn]]
"""What nearly all tasks need to remember, until one is tried again: their turns, and the trackers
of those. Kept by the adapter, which makes :class:`Attempts` of them when it asks for more."""

MAX_FIRST_TURNS: Final = 100


class Attempts:
    """The attempts of one task.

    Args:
        outer: those of the task around it; ``None``, there is none.
        superstep: in which the task runs; ``None``, it is not known.

    Attributes:
        again: whether the attempt that goes on is not the first one, or one around it is not.
        before: runs in it that failed in earlier attempts, and were not continued yet.
        chain: callback id of what runs the attempt that goes on.
        outer: as given.
        superstep: as given.
        failed: runs in it that failed, in the attempt that goes on.
    """

    __slots__ = (
        "_again",
        "_calls",
        "_closed",
        "_made",
        "again",
        "before",
        "chain",
        "failed",
        "outer",
        "superstep",
    )

    def __init__(self, outer: Attempts | None, superstep: int | None = None) -> None:
        self.outer = outer
        self.again: bool = outer is not None and outer.again
        self.superstep = superstep
        self.chain = 0
        self._closed = False
        self._made: dict[_Tracker, dict[Turn, bool]] = {}  # and whether no task in it made them
        self._again: dict[_Tracker, dict[Turn, bool]] = {}  # not made again yet
        self._calls = 0
        self.failed: list[FailedRun] = []
        self.before: list[FailedRun] = []

    def state(self) -> list[Any]:
        """What the task did, as plain data without contents: see :meth:`load`."""
        return [
            (tracker.run, turn.step, [(call.name, _digest(call)) for call in turn.calls])
            for tracker, turns in self._made.items()
            for turn in turns
        ]

    @classmethod
    def load(cls, state: Iterable[Any], trackers: Mapping[str, _Tracker]) -> Attempts:
        """The attempts of a task that another process interrupted.

        Raises:
            TypeError, ValueError: the state has another form.
        """
        attempts = cls(None)
        for run, step, calls in state:
            tracker = trackers.get(run)
            if tracker is None:
                continue
            turn = tracker.find(step) or Turn([TurnCall(name) for name, _ in calls])
            for call, (_, digest) in zip(turn.calls, calls, strict=True):
                call.arguments = SavedArguments(digest and bytes.fromhex(digest))
            turn.observed = tracker.find(step) is None
            attempts.made(tracker, turn)
        return attempts

    def begin_again(self) -> None:
        """The next attempt begins."""
        self.again = True
        self._again = {tracker: dict(turns) for tracker, turns in self._made.items()}
        for turns in self._again.values():
            for turn in turns:
                turn.held = not (turn.observed or turn.loose)
        self.before += self.failed
        self.failed = []

    def made(self, tracker: _Tracker, turn: Turn, *, itself: bool = True) -> None:
        """A turn was made. Called by its tracker, as :meth:`find` and :meth:`take`.

        Args:
            itself: whether no task in it made the turn.
        """
        if self._calls < _MAX_CALLS:
            self._made.setdefault(tracker, {})[turn] = itself
            self._calls += len(turn.calls)

    def find(self, tracker: _Tracker, calls: Sequence[tuple[str, object]]) -> list[Any] | None:
        """The calls of an earlier attempt that are made again; ``None``, they are new."""
        attempts: Attempts | None = self
        while attempts is not None:
            for turn in islice(attempts._again.get(tracker, ()), _MAX_AHEAD):
                found = _matching(turn, calls)
                if found is not None:
                    self.take(tracker, turn)
                    return found
            attempts = attempts.outer
        return None

    def take(self, tracker: _Tracker, turn: Turn) -> None:
        """A turn is made again, or goes on."""
        attempts: Attempts | None = self
        while attempts is not None:
            turns = attempts._again.get(tracker)
            if turns is not None and turn in turns:
                del turns[turn]
                turn.held = False
                if attempts is not self:
                    self.made(tracker, turn)
            attempts = attempts.outer

    def fail(self, failed: FailedRun) -> bool:
        """A run in the task failed. If the task fails with it, the next attempt continues it.

        Returns:
            Whether there may be such an attempt.
        """
        if not self._closed:
            self.failed.append(failed)
        return not self._closed

    def caught(self) -> None:
        """The task goes on after runs in it failed: they end."""
        failed, self.failed = self.failed, []
        for one in failed:
            one.end()

    def interrupt(self) -> None:
        """The task is paused, and begins again later: the runs in it that failed end.

        What tasks in it did is not made again: their graph continues from its checkpoint.
        """
        made, self._made, self._calls = self._made, {}, 0
        for tracker, turns in made.items():
            for turn, itself in turns.items():
                if itself:
                    self.made(tracker, turn)
        runs, self.before, self.failed = [*self.before, *self.failed], [], []
        for one in runs:
            one.end()

    def continued(self, call: object) -> Any:
        """The run of an earlier attempt that is this call, and goes on; ``None``, there is none."""
        attempts: Attempts | None = self
        while attempts is not None:
            for failed in attempts.before:
                if failed.call is call:
                    attempts.before.remove(failed)
                    return None if failed.run.recorded.ended else failed.run
            attempts = attempts.outer
        return None

    def close(self, *, failed: bool) -> None:
        """The task is over: it is not tried again.

        Args:
            failed: whether the task around it failed with it, and may be tried again.
        """
        for again in self._again.values():
            for turn in again:
                turn.held = False
        self._closed = True
        outer, runs = self.outer, [*self.before, *self.failed]
        self._again, self.before, self.failed = {}, [], []
        if outer is not None:
            for tracker, turns in self._made.items():
                for turn in turns:
                    if turn not in outer._made.get(tracker, ()):
                        outer.made(tracker, turn, itself=False)
        self._made = {}
        if failed and outer is not None and not outer._closed:
            outer.failed += runs
            return
        for one in runs:
            one.end()


def _matching(turn: Turn, calls: Sequence[tuple[str, object]]) -> list[Any] | None:
    """The calls of a turn in the order of equal ones; ``None``, they are not equal."""
    if len(turn.calls) != len(calls):
        return None
    left, found = list(turn.calls), []
    for name, arguments in calls:
        for number, call in enumerate(left):
            if call.name == name and same_arguments(call.arguments, arguments):
                found.append(left.pop(number))
                break
        else:
            return None
    return found


def _digest(call: TurnCall) -> str | None:
    arguments = call.arguments
    digest = arguments.digest if type(arguments) is SavedArguments else canonical_digest(arguments)
    return None if digest is None else digest.hex()
