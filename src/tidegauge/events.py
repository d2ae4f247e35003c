"""What happens in a run, as frozen records, and who takes them.

Every way in (decorators, callbacks, spans, recorded runs) turns what it sees into these records
and hands them to a :class:`StepSink`. A step becomes known in two moments: a :class:`Step` when
its action is issued, before it runs, and an :class:`Outcome` when its result is observed. Both
are answered by a :class:`Decision`.

Contents (arguments, states, outcomes) pass through as they are and are digested by whoever
measures; they are never stored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from tidegauge._checked import KINDS, Kind, Kinds, check_fields, function, whole

__all__ = [
    "ABSENT",
    "GO_ON",
    "Absent",
    "Call",
    "CallResult",
    "Decision",
    "Outcome",
    "Outlook",
    "RunEnded",
    "RunOutcome",
    "RunStarted",
    "RunSummary",
    "Signals",
    "Step",
    "StepSink",
    "Task",
    "ToolDeclaration",
]

Identity: TypeAlias = Hashable
"""Id of a place, an entity or a task: a string, or a tuple such as a grid cell ``(x, y)``."""

Reach: TypeAlias = Literal["adjacent", "anywhere"]
RunOutcome: TypeAlias = Literal["success", "failure", "unknown", "stopped", "error"]
Intervention: TypeAlias = Literal["go_on", "nudge", "block", "stop"]


class Absent(enum.Enum):
    """Marks what was not given, where ``None`` would be a value of its own."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
"""Not given. A tool that returned ``None`` has an outcome; one that was not observed has none."""


class Task(NamedTuple):
    """A task found at a place.

    ``requires`` lists alternative prerequisite sets: none, the task is free; one, all of its
    tasks are needed (AND); several, any one set suffices (OR of ANDs).
    """

    id: Identity
    requires: tuple[tuple[Identity, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began: one attempt of one agent at one task.

    Args:
        run: id of the run.
        agent: name of the agent; a label of its metrics.
        task: the task, as text or id; while no state is given, what the agent sees first.
        task_group: family of tasks whose runs are compared; a label of its metrics.
        model: name of the model that decides.
        t_max: turns within which a solved task counts towards AUV.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        operations: how many operations the task needs (LORE).
        height: height of the task's dependency tree (LORE).
        place: where the agent stands at the start.
        exits: places that can be reached from there.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: whether the agent moves to neighbouring places only, or to any place it knows.
        parent: id of the run that started this one.
        conversation: id of the conversation or thread that the run belongs to.
        trace_id: trace of the run's span, 32 hexadecimal digits.
        span_id: the run's span, 16 hexadecimal digits.
        time: seconds since the epoch; ``None`` takes the sink's clock.
    """

    run: str
    agent: str = ""
    task: str | None = None
    task_group: str = ""
    model: str | None = None
    t_max: int | None = None
    memory: str | None = None
    operations: int | None = None
    height: int | None = None
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    goal: Identity | None = None
    reach: Reach = "adjacent"
    parent: str | None = None
    conversation: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """What is known of a tool beforehand, so that its repeated calls are judged for what they are.

    It changes which calls are the same (``key``) and what a policy is told (``poll``,
    ``mutates``). The loop ratio and every other number go by their definitions all the same.

    Args:
        poll: the tool waits for something to change: while it brings nothing new, its calls raise
            no signal until its patience is used up. ``True`` is a patience of 60 steps in a row;
            a number, so many steps; a ``timedelta``, so long.
        key: takes a call's arguments and gives what is compared in their place: leave out of it
            what changes and means nothing (a time, a request id, a page's cursor).
        mutates: a call that succeeds has changed something, even where its answer is the same
            ("next page", "append a line"): it proves no standstill and raises no signal.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    poll: bool | int | timedelta = False
    key: Callable[[Any], object] | None = None
    mutates: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _DECLARED)


_STEPS: Final = whole(0)


def _patience(poll: Any) -> bool | int | timedelta:
    return poll if isinstance(poll, bool | timedelta) else _STEPS.read(poll)


_DECLARED: Final[Kinds] = {
    **KINDS,
    "bool | int | timedelta": Kind("True, a number of steps or a timedelta", _patience),
    "Callable[[Any], object]": function("a function that takes the arguments of a call"),
}
"""What the fields of a :class:`ToolDeclaration` take, by their annotations."""


class Call(NamedTuple):
    """One call of a round: the tool's name, its arguments and what was declared of the tool.

    ``declared`` is for calls whose tool says it; tools can be declared by name as well.
    """

    action: str
    arguments: object = None
    declared: ToolDeclaration | None = None


class CallResult(NamedTuple):
    """What one call brought back, and whether it failed (``None``: not known)."""

    outcome: object = ABSENT
    error: bool | None = None


class Step(NamedTuple):
    """An action was issued and has not been run yet.

    Args:
        run: id of the run.
        calls: the calls of the round; several calls chosen in one turn are one action.
        state: what the agent saw before it acted; absent, the previous outcome.
        tokens: tokens spent on choosing the action.
        entropy: entropy of the choice, nats per token.
        uses: entities that the action uses.
        mentions: entities that occur in the state.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        blockable: whether the reporter can answer the calls without running them: a decision
            to ``block`` is given to no other.
        similarity: likeness of the action to one before it, from 0 to 1, where it is known and
            the words are not (a recording of digests).
    """

    run: str
    calls: tuple[Call, ...]
    state: object = ABSENT
    tokens: float | None = None
    entropy: float | None = None
    uses: tuple[Identity, ...] = ()
    mentions: tuple[Identity, ...] = ()
    time: float | None = None
    blockable: bool = False
    similarity: float | None = None


class Outcome(NamedTuple):
    """The outcome of a step was observed.

    Args:
        run: id of the run.
        results: one result for each of the step's calls, in the order of the calls.
        step: index of the step; ``None`` means the one issued last.
        place: where the agent stands after the step.
        exits: places that can be reached from there.
        tasks: tasks found there.
        achieved: tasks that the step achieved, where places don't say it.
        progress: how much of the task is done, from 0 to 1.
        tokens: tokens spent on the step, beyond those of :class:`Step`.
        seconds: how long the step took; ``None`` takes the time since it was issued.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        blocked: the calls were answered and not run. The step counts as having brought what it
            brought the last time in its loop, so that whoever insists climbs the ladder.
    """

    run: str
    results: tuple[CallResult, ...]
    step: int | None = None
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    achieved: tuple[Identity, ...] = ()
    progress: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    time: float | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run ended.

    Args:
        run: id of the run.
        success: whether the task was solved; ``None``, not known.
        outcome: how it ended; ``None`` derives it from ``success``.
        reason: why it ended, in a word.
        time: seconds since the epoch; ``None`` takes the sink's clock.
    """

    run: str
    success: bool | None = None
    outcome: RunOutcome | None = None
    reason: str | None = None
    time: float | None = None


class RunSummary(NamedTuple):
    """What a sink says of a run that ended, for its span. ``None``: not measured."""

    steps: int
    outcome: RunOutcome
    loop_ratio: float | None = None
    stale_score_max: float | None = None


class Signals(NamedTuple):
    """What is known of a run at one moment of one step. Numbers, not verdicts.

    Attributes:
        run: id of the run.
        step: index of the step.
        steps: steps issued so far, this one included.
        action_digest: 16 bytes that stand for the action.
        state_digest: 16 bytes that stand for the state before it.
        loop_period: steps in one round of the current loop; 0, no loop.
        loop_repeats: complete repetitions of the current loop after its first round.
        loop_first_step: first repeated step of the current loop; -1, no loop.
        loop_cost_steps: steps issued since the loop's onset, the onset's step included.
        loop_cost_tokens: tokens of those steps, as far as they were told.
        loop_cost_seconds: seconds of those steps.
        result_streak: consecutive steps with one and the same outcome; ``None``, not observed.
        failed_rounds: consecutive rounds whose calls all failed; ``None``, not observed.
        recurrence: how often the last (action, outcome) was seen before in the run.
        novelty: share of the last steps whose outcome was new to the run.
        agent: name of the run's agent.
        tool: name of the step's tool; of a round of several, their names joined by ``+``.
        excused_steps: how many of the last steps in a row prove no standstill by being the same:
            declared pollers within their patience, and successful calls that change something.
        stale_score: S now; ``None``, the run is nowhere.
        stale_rises: at how many steps it rose since the last progress.
        frontier: places seen and not visited; ``None``, not told.
        pending: tasks ready and not achieved; ``None``, not told.
        oldest_lead_age: steps since the oldest of those places was seen; ``None``, there is none.
        tokens: tokens spent so far; ``None``, not told.
        task_group: the run's task group.
        completed_steps: steps whose outcome was observed.
        similarity: likeness of the last action to the most similar of those before it, from 0 to
            1; halved once it brought something new; ``None``, not measured.
        repetition: squared likeness of all actions so far, added up; ``None``, not measured.
    """

    run: str
    step: int
    steps: int
    action_digest: bytes
    state_digest: bytes
    loop_period: int = 0
    loop_repeats: int = 0
    loop_first_step: int = -1
    loop_cost_steps: int = 0
    loop_cost_tokens: float | None = None
    loop_cost_seconds: float | None = None
    result_streak: int | None = None
    failed_rounds: int | None = None
    recurrence: int | None = None
    novelty: float | None = None
    agent: str = ""
    tool: str = ""
    excused_steps: int = 0
    stale_score: int | None = None
    stale_rises: int = 0
    frontier: int | None = None
    pending: int | None = None
    oldest_lead_age: int | None = None
    tokens: float | None = None
    task_group: str = ""
    completed_steps: int = 0
    similarity: float | None = None
    repetition: float | None = None


class Outlook(NamedTuple):
    """What a run has before it, by name: contents, which stay in the process.

    Attributes:
        place: where the agent stands; ``None``, not told.
        unexplored: places seen and not visited, those known for longest first, at most 10.
        pending: tasks that are ready and not done, at most 10.
        repeated: names of the tools of the loop that the run is in, in order.
    """

    place: Identity | None = None
    unexplored: tuple[Identity, ...] = ()
    pending: tuple[Identity, ...] = ()
    repeated: tuple[str, ...] = ()


class Decision(NamedTuple):
    """What is to happen next with the run.

    Args:
        action: ``go_on``, ``nudge``, ``block`` or ``stop``.
        reason: name of the signal that decided.
        message: the reason in a sentence, for logs and for people.
        signals: what was known when it was decided; ``None`` when nothing was measured.
        advice: what the model is to be told: what repeats, since when, and what it has not
            tried. It names places and tasks: contents.
        outlook: the same in parts; ``None`` when there is nothing to step in for.
    """

    action: Intervention = "go_on"
    reason: str | None = None
    message: str | None = None
    signals: Signals | None = None
    advice: str | None = None
    outlook: Outlook | None = None

    @property
    def nudge(self) -> bool:
        """Whether the model is to be told :attr:`advice` before it chooses again."""
        return self.action == "nudge"

    @property
    def block(self) -> bool:
        """Whether the call is to be answered with :attr:`advice` and not to be run."""
        return self.action == "block"

    @property
    def stop(self) -> bool:
        """Whether the run is to end here."""
        return self.action == "stop"


GO_ON: Final = Decision()
"""Nothing to do: what a sink answers when it has nothing to say."""


class StepSink(Protocol):
    """Whoever takes the records: the live pipeline, a recording, a forwarder.

    No method raises, blocks on I/O or waits for another run.
    """

    def run_started(self, event: RunStarted, /) -> None:
        """A run began."""

    def step_issued(self, event: Step, /) -> Decision:
        """An action was issued; the answer comes before it is run."""

    def step_observed(self, event: Outcome, /) -> Decision:
        """An outcome was observed; the answer comes before the next action is chosen."""

    def run_ended(self, event: RunEnded, /) -> RunSummary | None:
        """A run ended."""
