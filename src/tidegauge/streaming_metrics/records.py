"""The records that metrics take: one for each moment, of digests and numbers only.

A metric names in :attr:`~tidegauge.streaming_metrics.metric.Metric.takes` which of them it
takes. Runs create them from digested events, so they contain no contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidegauge.events import Identity, RunOutcome, Task, ToolDeclaration
from tidegauge.streaming_metrics.clues import CallClues, ResultClues
from tidegauge.streaming_metrics.known_noise import Numbers

MAX_AMOUNT: Final = 2.0**53
"""The most tokens or seconds of one step."""


class IssuedStep(NamedTuple):
    """An action was issued.

    Attributes:
        t: index of the step.
        state: digest of what the agent saw.
        action: digest of what it chose, name and arguments.
        name: name of the action; of a round, the names of its calls joined by ``+``.
        uses: entities that the action uses.
        mentions: entities that occur in the state.
        calls: how many calls the round has, without thoughts beside others.
        declared: what is declared of the tool of each call; empty, nothing of any.
        time: when, in seconds; ``None``, not known.
        words: checksums of the action's distinct words, where they are compared.
        similarity: its likeness to an earlier action, where that was reported.
        choice_tokens: tokens spent on choosing it; ``None``, not reported.
        at: when, in seconds since the epoch, where that was reported.
        clues: what its texts say, where they are read.
        overlaps: whether it was issued while another step had no result, and its state is not
            reported: then results before it say nothing of what the agent saw.
        mutates: whether each of its calls is declared to change something.
        exact_state: digest of what the agent saw, noise included; ``None``, the same as ``state``.
        exact_action: digest of what it chose, noise included; ``None``, the same as ``action``.
        noise: the kinds of known noise that were left out of what it chose and saw.
        duplicates: how many of its calls equal one before them in the round.

    For a call that repeats a blocked one, state, action and name are those of the loop's next step.
    """

    t: int
    state: bytes
    action: bytes
    name: str = ""
    uses: tuple[Identity, ...] = ()
    mentions: tuple[Identity, ...] = ()
    calls: int = 1
    declared: Sequence[ToolDeclaration | None] = ()
    time: float | None = None
    words: frozenset[int] = frozenset()
    similarity: float | None = None
    choice_tokens: float | None = None
    at: float | None = None
    clues: CallClues | None = None
    overlaps: bool = False
    mutates: bool = False
    exact_state: bytes | None = None
    exact_action: bytes | None = None
    noise: Sequence[str] = ()
    duplicates: int = 0


class Answered(NamedTuple):
    """The model answered without choosing a call.

    Attributes:
        answer: digest of its text, white space apart; ``None``, not known.
        shown: digest of the last message that it was shown; ``None``, not known.
        messages: how many it was shown; ``None``, not known.
        at: when, in seconds since the epoch; ``None``, not known.
    """

    answer: bytes | None
    shown: bytes | None = None
    messages: int | None = None
    at: float | None = None


class LoopSpending(NamedTuple):
    """What a step spent, by one of its two moments, and which steps loop by then.

    Attributes:
        t: index of the step.
        issued: whether the step is issued now; else its result is observed.
        settled: the steps that turned out to be loop steps with it.
        pending_since: the first step that may still turn out to be a loop step; ``None``, none may.
        first_step: the first step of the current loop; -1, there is none.
        tokens: tokens spent; ``None``, not reported.
        seconds: how long it took; ``None``, not reported.
        entropy: entropy of the choice, nats per token; ``None``, not reported.
        looped: of an observed step, whether it is a loop step by now.
    """

    t: int
    issued: bool = True
    settled: tuple[int, ...] = ()
    pending_since: int | None = None
    first_step: int = -1
    tokens: float | None = None
    seconds: float | None = None
    entropy: float | None = None
    looped: bool = False


class ObservedStep(NamedTuple):
    """The result of a step was observed.

    Attributes:
        t: index of the step.
        action: digest of the action.
        outcome: digest of what came back; ``None``, not given.
        calls: how many calls the round had.
        failed: whether every call of the round failed; ``None``, not known.
        tokens: tokens spent on the step; ``None``, not reported.
        seconds: how long it took; ``None``, not reported.
        progress: how much of the task is done, 0 to 1; ``None``, not reported.
        entropy: entropy of the choice, nats per token; ``None``, not reported.
        looped: whether it is known by now to be a loop step.
        place: where the agent is after the step; ``None``, not reported.
        exits: places that can be reached from there; ``None``, not reported.
        tasks: tasks found there.
        achieved: tasks the step achieved, if places do not show it.
        state: digest of what the agent saw before it acted; ``None``, not known.
        likeness: similarity of the action to an earlier one, computed when the step was issued.
        latest: whether no step was issued since.
        result_tokens: tokens spent on the step after its action was chosen.
        nearer: the answer of the user's distance about the move, if any.
        clues: what the texts of its results say, where they are read.
        mutates: whether each of its calls is declared to change something.
        changed: whether it does, and did not fail.
        reported: whether the state before it was reported, and is not the result before it.
        empty: whether its results are empty, or say only that nothing was found.
        negative: whether its results say that it failed, or that nothing was found.
        known: how often this action had this result before in the run.
        noise: the kinds of known noise that were left out of its results.
        numbers: the numbers in its only result, where they are at hand.
    """

    t: int
    action: bytes = b""
    outcome: bytes | None = None
    calls: int = 1
    failed: bool | None = None
    tokens: float | None = None
    seconds: float | None = None
    progress: float | None = None
    entropy: float | None = None
    looped: bool = False
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    achieved: tuple[Identity, ...] = ()
    state: bytes | None = None
    likeness: float = 0.0
    latest: bool = True
    result_tokens: float | None = None
    nearer: object = None
    clues: ResultClues | None = None
    mutates: bool = False
    changed: bool = False
    reported: bool = False
    empty: bool = False
    negative: bool = False
    known: int = 0
    noise: Sequence[str] = ()
    numbers: Numbers | None = None


class EntropySums(NamedTuple):
    """Action entropy of one run, as sums over its loop steps and over its other steps.

    Attributes:
        loop_sum: nats per token, added up over the loop steps that reported theirs.
        loop_steps: how many those are.
        other_sum: the same over the other steps.
        other_steps: how many those are.
    """

    loop_sum: float = 0.0
    loop_steps: int = 0
    other_sum: float = 0.0
    other_steps: int = 0

    @property
    def loop_mean(self) -> float | None:
        """Mean over the loop steps; ``None`` without any."""
        return self.loop_sum / self.loop_steps if self.loop_steps else None

    @property
    def other_mean(self) -> float | None:
        """Mean over the other steps; ``None`` without any."""
        return self.other_sum / self.other_steps if self.other_steps else None

    @property
    def difference(self) -> float | None:
        """:attr:`loop_mean` - :attr:`other_mean`; ``None`` while either is."""
        loop, other = self.loop_mean, self.other_mean
        return None if loop is None or other is None else loop - other


class RecallCounts(NamedTuple):
    """Recall lags of one run.

    Attributes:
        total: steps, added up over all lags.
        counts: how many lags, by bucket of
            :data:`~tidegauge.streaming_metrics.recall_lag.RECALL_LAG_BOUNDS`.
    """

    total: int
    counts: tuple[int, ...]


class FinishedRun(NamedTuple):
    """A run ended.

    Attributes:
        success: whether the task was solved; ``None``, not known.
        steps: how many steps it took.
        outcome: how it ended.
        reason: why it ended, in a word; ``None``, not reported.
        task: the task's name, for repeated runs of one task.
        t_max: turns within which success counts; ``None``, not set.
        loop_steps: how many of its steps looped.
        tide_loop_steps: how many TIDE's loop ratio counts.
        tide_cycle_steps: how many lay inside TIDE's closed cycles.
        progress_auv: area under its progress; ``None``, not measured.
        operations: operations the task needs; ``None``, not reported.
        height: height of its dependency tree; ``None``, not reported.
        memory: arm of a memory experiment; ``None``, not reported.
        frontier: places seen and not visited when it ended; ``None``, not measured.
        pending: tasks ready and not achieved when it ended; ``None``, not measured.
        displaced_leads: unvisited leads of older batches; ``None``, not measured.
        loop_actions: how many of the loop steps each action has, by name.
        tide_cycle_actions: how many actions of each name TIDE's loops have in one round.
        entropy: its action entropy; ``None``, not reported.
        recall: its recall lags; ``None``, no entity was recalled.
        stale_score_max: its highest stale score; ``None``, not measured.
        trace_id: its trace; ``None``, it has none.
        ended: when it ended, in seconds since the epoch; ``None``, not known.
        lost: metrics that have no value after an internal error.
    """

    success: bool | None
    steps: int
    outcome: RunOutcome = "unknown"
    reason: str | None = None
    task: str | None = None
    t_max: int | None = None
    loop_steps: int = 0
    tide_loop_steps: int = 0
    tide_cycle_steps: int = 0
    progress_auv: float | None = None
    operations: int | None = None
    height: int | None = None
    memory: str | None = None
    frontier: int | None = None
    pending: int | None = None
    displaced_leads: int | None = None
    loop_actions: tuple[tuple[str, int], ...] = ()
    tide_cycle_actions: tuple[tuple[str, int], ...] = ()
    entropy: EntropySums | None = None
    recall: RecallCounts | None = None
    stale_score_max: int | None = None
    trace_id: str | None = None
    ended: float | None = None
    lost: tuple[str, ...] = ()


Record = Answered | IssuedStep | LoopSpending | ObservedStep | FinishedRun


def all_failed(results: Sequence[tuple[object, bool | None]], calls: int) -> bool | None:
    """Whether every call of a round failed, from (result, failed) of each; ``None``, not known.

    >>> all_failed([("a", True), ("b", None)], 2) is None
    True
    """
    if calls == 1 and results:
        return results[0][1]
    errors = [failed for _, failed in results[:calls]]
    if False in errors:
        return False
    return True if errors and None not in errors and len(errors) >= calls else None


def amount(reported: float | None) -> float | None:
    """The number, if it can be added up: a negative one or NaN would spoil a counter."""
    return reported if reported is not None and 0 <= reported <= MAX_AMOUNT else None


def added(left: float | None, right: float | None) -> float | None:
    """The sum of the two; ``None``, neither was reported."""
    if left is None or right is None:
        return right if left is None else left
    return left + right
