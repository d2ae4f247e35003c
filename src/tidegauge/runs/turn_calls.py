"""A turn and its calls: what a run keeps of them until their results are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge.events import ABSENT, CallResult, Decision, Outcome, Signals, Step, StepSignals
from tidegauge.values import canonical_digest
from tidegauge.values.safe_reading import same_value

MAX_CALLS: Final = 1_000
"""Limit of the calls that a run waits for, and of the blocked calls that it knows."""


class ChosenCall(NamedTuple):
    """A tool call that the model chose."""

    name: str
    arguments: object
    id: str | None = None


class SavedArguments(NamedTuple):
    """Arguments of a call that another process made: contents are not saved.

    Attributes:
        digest: of their canonical text; ``None``, they are not comparable.
    """

    digest: bytes | None


class TurnCall:
    """One call of a turn.

    Attributes:
        turn: the turn that it belongs to.
        name: name of the tool.
        arguments: its arguments; ``ABSENT``, not known yet.
        id: the model's id of the call; ``None``, it has none.
        begun: whether its tool was started.
        result: its result; ``None``, it has not ended.
        raised: whether it raised an exception, so that it may be tried again.
        output: the result that a hook reported before the call ended.
        span: its span, if the adapter opens one.
        order: sorts it among calls that may begin in any order.
    """

    __slots__ = (
        "arguments",
        "begun",
        "id",
        "name",
        "order",
        "output",
        "raised",
        "result",
        "span",
        "turn",
    )

    turn: Turn

    def __init__(self, name: str, arguments: object = ABSENT, call_id: str | None = None) -> None:
        self.name = name
        self.arguments = arguments
        self.id = call_id
        self.begun = False
        self.result: CallResult | None = None
        self.raised = False
        self.output: object = ABSENT
        self.span: Span = INVALID_SPAN
        self.order: tuple[int, str, str] | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.result is not None


class Turn:
    """The calls of one step.

    Attributes:
        calls: in the order in which they were chosen.
        loose: whether it is a group of calls that was not issued yet.
        seconds: how long a group took; ``None`` takes the time since the step was issued.
        node: the execution of a graph's node in which they were chosen; ``None``, no graph.
        step: index of the step; ``None`` if there is nothing to observe: the step is blocked, or
            could not be reported.
        decision: the decision when the step was issued; ``None``, not issued yet.
        observed: whether its result was reported, or will never be reported.
        spent: tokens spent on choosing it.
        tokens: tokens spent inside its tools.
        issued: when it was issued, by the monotonic clock.
        waited: how long it waited for a person since then, in seconds.
        reported: the step as code inside the run reported it; ``None``, an adapter did.
        outcome: what that code reported of its result.
        seen: the signals when its result was observed; ``None``, it was not.
        held: whether the task that made it is tried again, and did not make it again yet.
        same_ids: whether several of its calls have the same id.
    """

    __slots__ = (
        "calls",
        "decision",
        "held",
        "issued",
        "node",
        "observed",
        "outcome",
        "reported",
        "same_ids",
        "seen",
        "spent",
        "step",
        "tokens",
        "waited",
    )

    loose: bool = False
    seconds: float | None = None

    def __init__(self, calls: list[TurnCall], node: object = None) -> None:
        self.calls = calls
        for call in calls:
            call.turn = self
        self.node = node
        self.step: int | None = None
        self.decision: Decision | None = None
        self.observed = False
        self.spent: int | None = None
        self.tokens: int | None = None
        self.issued = 0.0
        self.waited = 0.0
        self.reported: Step | None = None
        self.outcome: Outcome | None = None
        self.seen: Signals | StepSignals | None = None
        self.held = False
        self.same_ids = False

    @property
    def signals(self) -> Signals | StepSignals | None:
        """The signals when the step was issued."""
        return None if self.decision is None else self.decision.signals

    @property
    def blocked(self) -> bool:
        """Whether its calls must be answered without running them."""
        return self.decision is not None and self.decision.action == "block"

    @property
    def ended(self) -> bool:
        """Whether all calls have ended."""
        for call in self.calls:  # noqa: SIM110 -- at every step: no generator for one call
            if call.result is None:
                return False
        return True

    @property
    def raised(self) -> bool:
        """Whether a call raised an exception, so that it may be tried again."""
        for call in self.calls:  # noqa: SIM110 -- as above
            if call.raised:
                return True
        return False


class OpenTurns:
    """Turns in order, with at most :data:`MAX_CALLS` calls; beyond that, the oldest are dropped.

    Attributes:
        turns: the turns.
    """

    __slots__ = ("_calls", "turns")

    def __init__(self) -> None:
        self.turns: dict[Turn, None] = {}
        self._calls = 0

    def __bool__(self) -> bool:
        return bool(self.turns)

    def __contains__(self, turn: object) -> bool:
        return turn in self.turns

    def __iter__(self) -> Iterator[Turn]:
        return iter(tuple(self.turns))

    def add(self, turn: Turn) -> list[Turn]:
        """Append a turn. Returns the turns that were dropped for it."""
        turns = self.turns
        if turn in turns:
            self.remove(turn)
        turns[turn] = None
        self._calls += len(turn.calls)
        if self._calls <= MAX_CALLS:
            return []
        dropped: list[Turn] = []
        while self._calls > MAX_CALLS and len(turns) > 1:
            dropped.append(next(iter(turns)))
            self.remove(dropped[-1])
        return dropped

    def find(self, step: int) -> Turn | None:
        """The turn whose step has this index."""
        return next((turn for turn in tuple(self.turns) if turn.step == step), None)

    def remove(self, turn: Turn) -> bool:
        """Remove a turn. Returns whether it was present."""
        if turn not in self.turns:
            return False
        del self.turns[turn]
        self._calls -= len(turn.calls)
        return True


def with_id(call: TurnCall) -> list[TurnCall]:
    """The calls of its answer that have the same id."""
    return [one for one in call.turn.calls if one.id == call.id]


def same_call(calls: Sequence[TurnCall], name: str, arguments: object) -> TurnCall | None:
    """Of these calls the one that is about to run, by its name and arguments, else by its name."""
    named = [call for call in calls if call.name == name]
    same = [call for call in named if same_value(call.arguments, arguments)]
    fresh = next((call for call in (*same, *named) if not call.begun), None)
    return fresh or next(iter(same), None)


def same_arguments(known: object, arguments: object) -> bool:
    """Whether a call that was made before had these arguments."""
    if type(known) is not SavedArguments:
        return same_value(known, arguments)
    return known.digest is not None and known.digest == canonical_digest(arguments)
