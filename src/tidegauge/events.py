"""The events of a run, the :class:`StepSink` that receives them, and who learns of them after it.

Every instrumentation (decorators, callbacks, spans, recorded runs) produces these records. A step
is reported twice: as a :class:`Step` when its action is issued, before it runs, and as an
:class:`Outcome` when its result is observed. Both are answered by a :class:`Decision`.

Contents (arguments, states, results) pass through unchanged; the component that
measures digests them, and never stores them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from tidegauge.settings import KINDS, Kinds, Range, ValueKind, check_fields, function, whole

Identity: TypeAlias = Hashable
"""Id of a place, an entity or a task: a string, or a tuple such as a grid cell ``(x, y)``."""

Reach: TypeAlias = Literal["adjacent", "anywhere"]
RunOutcome: TypeAlias = Literal["success", "failure", "unknown", "stopped", "error"]
Intervention: TypeAlias = Literal["go_on", "nudge", "block", "stop"]

made: Final = tuple.__new__
"""Makes a record of all its fields, in their order, at half of what a call of its class takes.

For records that are made at every step. Types don't count the fields: ``test_made_records`` does.
"""


class Absent(enum.Enum):
    """Marks what was not given, where ``None`` would be a value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT
"""Not given. A tool that returned ``None`` has a result; one that was not observed has none."""


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
        place: where the agent is at the start.
        exits: places that can be reached from there.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: whether the agent moves to neighbouring places only, or to any place it knows.
        parent: id of the run that started this one.
        conversation: id of the conversation or thread that the run belongs to.
        trace_id: trace of the run's span, 32 hexadecimal digits.
        span_id: the run's span, 16 hexadecimal digits.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        observe_only: whether nothing can be done about the run: the policy only counts what it
            would have stopped.
        detect_polls: whether calls that wait are taken for polls: it is a coding agent's session.
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
    observe_only: bool = False
    detect_polls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """A declaration of a tool whose repeated calls may be intended.

    Steps that wait or only think are counted (``tidegauge_steps_total``, TIDE's ratio, tokens), and
    for every signal it is as if they had not been there.

    Args:
        poll: the tool waits for something to change: within its polling allowance, its calls raise
            no signal. ``True`` allows 60 consecutive steps without a new result, a number that many
            steps, a ``timedelta`` that much time.
        key: takes a call's arguments and returns what is compared instead. Leave out irrelevant
            changes (a time, a request id, a page's cursor).
        mutates: a call that succeeds has changed something, even if its result is the same
            ("next page", "append a line"): it ends streaks, is no repetition, and a loop of such
            calls only is none. One that fails is a call like any other.
        thinks: the tool only writes down a thought, and so hides no loop, alone or beside other
            calls of a turn. Tools called ``think``,
            ``thinking`` or ``sequentialthinking``, of any server, are taken to, unless they are
            declared. After 60 thoughts in a row, further ones are calls like any other.

    Raises:
        ConfigurationError: a value is invalid.
    """

    poll: bool | int | timedelta = False
    key: Callable[[Any], object] | None = None
    mutates: bool = False
    thinks: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _DECLARED)


_STEPS: Final = whole(Range(0))


def _allowance(poll: Any) -> bool | int | timedelta:
    return poll if isinstance(poll, bool | timedelta) else _STEPS.read(poll)


_DECLARED: Final[Kinds] = {
    **KINDS,
    "bool | int | timedelta": ValueKind("True, a number of steps or a timedelta", _allowance),
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
    """The result of one call, and whether it failed (``None``: not known)."""

    outcome: object = ABSENT
    error: bool | None = None


class Step(NamedTuple):
    """An action was issued and has not been run yet.

    Args:
        run: id of the run.
        calls: the calls of the round; several calls chosen in one turn are one action.
        state: what the agent saw before it acted; absent, the previous result.
        tokens: tokens spent on choosing the action.
        entropy: entropy of the choice, nats per token.
        uses: entities that the action uses.
        mentions: entities that occur in the state.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        blockable: whether the reporter can answer the calls without running them: a decision
            to ``block`` is given to no other.
        similarity: similarity of the action to earlier ones, from 0 to 1, if its words are not
            known (a recording of digests).
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
    """The result of a step was observed.

    Args:
        run: id of the run.
        results: one result for each of the step's calls, in the order of the calls.
        step: index of the step; ``None`` means the one issued last.
        place: where the agent is after the step.
        exits: places that can be reached from there.
        tasks: tasks found there.
        achieved: tasks that the step achieved, if places do not show it.
        progress: how much of the task is done, from 0 to 1.
        tokens: tokens spent on the step, beyond those of :class:`Step`.
        seconds: how long the step took; ``None`` takes the time since it was issued.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        blocked: the calls were answered and not run. The step counts as having the same result as
            the last time in its loop, so that the policy escalates if the agent insists.
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


class Answer(NamedTuple):
    """The model answered and chose no call: a turn that is no step.

    Args:
        run: id of the run.
        text: what it said; absent, not known. White space means nothing.
        shown: the last message that it was shown; absent, not known.
        messages: how many messages it was shown; ``None``, not known.
        tokens: tokens spent on it. They are not among those of the next :class:`Step`, whose cost
            they are part of.
        time: seconds since the epoch; ``None`` takes the sink's clock.
    """

    run: str
    text: object = ABSENT
    shown: object = ABSENT
    messages: int | None = None
    tokens: float | None = None
    time: float | None = None


class ModelUsage(NamedTuple):
    """What a model call used, in tokens; ``None``: not reported.

    Args:
        tokens: of both directions together, where they are not known apart.
        input_tokens: that it read, those from a cache included.
        output_tokens: that it wrote, those of its reasoning included.
        cache_read_tokens: of those that it read, from the provider's cache.
        cache_write_tokens: of those that it read, written to the provider's cache.
        reasoning_tokens: of those that it wrote, of its reasoning.
        model: name of the model that answered.
        asked: name of the model that was asked for.
        usd: what the call cost in $, where the provider says so.
        began: when the call began, in seconds since the epoch, where that is not known from when
            it is reported.
        ended: when it ended.
    """

    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    model: str | None = None
    asked: str | None = None
    usd: float | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def total(self) -> int | None:
        """Tokens of both directions together.

        >>> ModelUsage(None, 7, 3).total
        10
        """
        if self.tokens is not None or self.input_tokens is self.output_tokens is None:
            return self.tokens
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class PolicyInForce(NamedTuple):
    """The calibrated thresholds that applied to a run, for later calibrations.

    Args:
        version: of the policy: equal policies have equal versions.
        acts: whether a threshold could nudge or stop the run: it was neither held out nor only
            observed. A threshold learned from such runs would be too low, because those that it
            ended are not known to be successful.
        held_out: whether the run was in the holdout.
        exceeded: the scores that exceeded their thresholds in it.
    """

    version: str
    acts: bool
    held_out: bool
    exceeded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run ended.

    Args:
        run: id of the run.
        success: whether the task was solved; ``None``, not known.
        outcome: how it ended; ``None`` derives it from ``success``.
        reason: why it ended, in a word.
        time: seconds since the epoch; ``None`` takes the sink's clock.
        agent_name: the agent's name, where it became known after the start and is another than the
            one that the run was counted by.
        children: ids of runs inside it whose starts do not name it as their parent, because it was
            not known yet.
        policy: the calibrated thresholds that applied to it; ``None``, there were none.
        refused_calls: how many of its calls were refused, if the sink counts none itself.
        evicted: whether it was ended because it was idle for too long, or there was no room for it.
    """

    run: str
    success: bool | None = None
    outcome: RunOutcome | None = None
    reason: str | None = None
    time: float | None = None
    agent_name: str | None = None
    children: tuple[str, ...] = ()
    policy: PolicyInForce | None = None
    refused_calls: int = 0
    evicted: bool = False


class RunSummary(NamedTuple):
    """A sink's summary of an ended run, for its span. ``None``: not measured.

    The fields are those of the run's report, and ``troubles``: what makes it a run to look at.
    """

    steps: int
    outcome: RunOutcome
    loop_ratio: float | None = None
    stale_score_max: float | None = None
    novelty: float | None = None
    recurrence_max: int | None = None
    repetition: float | None = None
    repetition_recent: float | None = None
    stagnation: float | None = None
    loop_entropy: float | None = None
    other_entropy: float | None = None
    progress_auv: float | None = None
    loop_steps: int | None = None
    lost_tokens: float | None = None
    lost_seconds: float | None = None
    troubles: tuple[str, ...] | None = None


class StepSignals(NamedTuple):
    """The signals of every counted step: its identity, the loop it is in, and how it ended.

    The attributes are those of :class:`Signals`. The stale score and the case are known when the
    step was observed; a score of 0 is left out. ``skipped``: the step only waits or thinks.
    """

    run: str
    step: int
    action_digest: bytes
    state_digest: bytes
    loop_period: int = 0
    loop_repeats: int = 0
    loop_first_step: int = -1
    tool: str = ""
    stale_score: int | None = None
    case: int | None = None
    skipped: bool = False
    repeats_step: int = -1


_NOTHING_MORE: Final[Mapping[str, Any]] = {}


class Signals(NamedTuple):
    """The signals of a run at one moment of one step. Numbers, not verdicts.

    Attributes:
        run: id of the run.
        step: index of the step.
        steps: steps issued so far, this one included.
        action_digest: 16-byte digest of the action.
        state_digest: 16-byte digest of the state before it.
        loop_period: steps in one round of the current loop; 0, no loop.
        loop_repeats: complete repetitions of the current loop after its first round.
        loop_first_step: first step of the current loop that repeats another; -1, no loop.
        loop_cost_steps: steps of the current loop, from its first repeated step on.
        loop_cost_tokens: tokens of these steps, as far as they were reported.
        loop_cost_seconds: seconds of these steps.
        result_streak: consecutive steps with the same result; ``None``, not observed.
        failed_rounds: consecutive rounds whose calls all failed; ``None``, not observed.
        recurrence: how often the last (action, result) occurred before in the run.
        novelty: share of the last steps whose result was new to the run.
        agent: name of the run's agent.
        tool: name of the step's tool; of a round of several, their names joined by ``+``.
        stale_score: the stale score now; ``None``, neither places nor states are known.
        stale_rises: at how many steps it rose since the last progress.
        frontier: places seen and not visited; ``None``, not reported.
        pending: tasks ready and not achieved; ``None``, not reported.
        oldest_lead_age: steps since the oldest of those places was seen; ``None``, there is none.
        tokens: tokens spent so far; ``None``, not reported.
        task_group: the run's task group.
        completed_steps: steps whose result was observed.
        similarity: similarity of the last action to the most similar earlier one, from 0 to 1;
            halved if its result was new, 0 if its call changes something; ``None``, not measured.
        likeness: the same, whatever its result is and its call does; ``None``, not measured.
        repetition: sum of the squared similarities of all actions; ``None``, not measured.
        features: the features of learned scores at the last issued action; ``None``, not measured.
        loop_times: how often the calls of the current loop were repeated, as people count: of three
            equal calls twice. Messages say this number.
        more: further signals that metrics declare, by name; they are read as attributes, too.
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
    stale_score: int | None = None
    stale_rises: int = 0
    frontier: int | None = None
    pending: int | None = None
    oldest_lead_age: int | None = None
    tokens: float | None = None
    task_group: str = ""
    completed_steps: int = 0
    similarity: float | None = None
    likeness: float | None = None
    repetition: float | None = None
    features: Any = None
    loop_times: int = 0
    more: Mapping[str, Any] = _NOTHING_MORE

    def __getattr__(self, name: str) -> Any:
        if name not in self.more:
            raise AttributeError(f"there is no signal called {name}")
        return self.more[name]


class Situation(NamedTuple):
    """What a run can do next, by name: contents, which stay in the process.

    Attributes:
        place: where the agent is; ``None``, not reported.
        unexplored: places seen and not visited, those known for longest first, at most 10.
        pending: tasks that are ready and not done, at most 10.
        repeated: names of the tools of the loop that the run is in, in order.
    """

    place: Identity | None = None
    unexplored: tuple[Identity, ...] = ()
    pending: tuple[Identity, ...] = ()
    repeated: tuple[str, ...] = ()


class Decision(NamedTuple):
    """What must happen next with the run.

    Args:
        action: ``go_on``, ``nudge``, ``block`` or ``stop``.
        reason: name of the signal that decided.
        message: the reason in a sentence, for logs and for people.
        signals: the signals at the decision: all of them, if there was a reason to intervene;
            ``None`` if the step was not counted.
        advice: text for the model: what repeats, since when, and what it has not tried. It names
            places and tasks, which are contents.
        situation: the same in parts; ``None`` if there is no reason to intervene.
    """

    action: Intervention = "go_on"
    reason: str | None = None
    message: str | None = None
    signals: Signals | StepSignals | None = None
    advice: str | None = None
    situation: Situation | None = None

    @property
    def nudge(self) -> bool:
        """Whether the model gets :attr:`advice` before it chooses again."""
        return self.action == "nudge"

    @property
    def block(self) -> bool:
        """Whether the call is answered with :attr:`advice` and not run."""
        return self.action == "block"

    @property
    def stop(self) -> bool:
        """Whether the run ends here."""
        return self.action == "stop"


GO_ON: Final = Decision()
"""Nothing to do; also the answer to a step that is not counted."""


class StepSink(Protocol):
    """The component that receives the records: the live pipeline, a recording, a forwarder.

    No method raises, blocks on I/O or waits for another run.
    """

    def run_started(self, event: RunStarted, /) -> None:
        """A run began."""

    def step_issued(self, event: Step, /) -> Decision:
        """An action was issued; the answer comes before it is run."""

    def step_observed(self, event: Outcome, /) -> Decision:
        """A result was observed; the answer comes before the next action is chosen."""

    def answered(self, event: Answer, /) -> Decision:
        """The model answered without a call; the decision comes before it is asked again."""
        return GO_ON

    def run_ended(self, event: RunEnded, /) -> RunSummary | None:
        """A run ended."""


class RunObserver:
    """Learns what the live sink has taken: a method for each event, which does nothing by default.

    It is called when the agent's answer is known, without the run's lock, in the thread of the
    event, which waits for it. Steps of one run that overlap may come in another order than they
    were measured in. What it raises is counted and logged, and reaches neither the agent nor other
    observers.

    Attributes:
        name: under which it is counted.
    """

    name = "observer"

    def run_started(self, event: RunStarted, /) -> None:
        """A run began."""

    def step_issued(self, event: Step, decision: Decision, /) -> None:
        """An action was issued; the decision names its step, and has no result if it blocks it."""

    def step_observed(self, event: Outcome, decision: Decision, /) -> None:
        """A result was observed."""

    def answered(self, event: Answer, decision: Decision, /) -> None:
        """The model answered without a call."""

    def run_ended(self, event: RunEnded, /) -> None:
        """A run ended, by its adapter or to make room, as the engine counted it."""

    def run_restored(self, event: RunStarted, steps: int, completed: int, /) -> None:
        """A run that waited continues here, after so many steps, and so many results."""

    def run_detached(self, run: str, /) -> None:
        """A run that waits may continue in another process."""
