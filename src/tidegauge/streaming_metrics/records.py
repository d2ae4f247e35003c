"""What metrics are fed: one frozen record a moment, made of digests and numbers only.

A metric names in :attr:`~tidegauge.streaming_metrics.metric.Metric.takes` which of them it
takes. The engine makes them from events; contents end here, as digests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidegauge.events import Identity, RunOutcome, Task

__all__ = [
    "ChosenAction",
    "EntropySums",
    "FinishedRun",
    "IssuedStep",
    "ObservedStep",
    "RecallCounts",
    "Record",
    "made",
]

made: Final = tuple.__new__
"""Makes a record of all its fields, in their order, at half of what a call of its class takes.

For records that are made at every step. Types don't count the fields: ``test_made_records`` does.
"""


class IssuedStep(NamedTuple):
    """An action was issued.

    Attributes:
        t: index of the step.
        state: digest of what the agent saw.
        action: digest of what it chose, name and arguments.
        name: name of the action; of a round, the names of its calls joined by ``+``.
        uses: entities that the action uses.
        mentions: entities that occur in the state.
    """

    t: int
    state: bytes
    action: bytes
    name: str = ""
    uses: tuple[Identity, ...] = ()
    mentions: tuple[Identity, ...] = ()


class ChosenAction(NamedTuple):
    """An action was issued, by its words.

    Attributes:
        t: index of the step.
        words: checksums of its distinct words.
        similarity: its likeness to an earlier action, where that was told; ``None``: to be found.
    """

    t: int
    words: frozenset[int] = frozenset()
    similarity: float | None = None


class ObservedStep(NamedTuple):
    """The outcome of a step was observed.

    Attributes:
        t: index of the step.
        action: digest of the action.
        outcome: digest of what came back; ``None``, not given.
        calls: how many calls the round had.
        failed: whether every call of the round failed; ``None``, not known.
        tokens: tokens spent on the step; ``None``, not told.
        seconds: how long it took; ``None``, not told.
        progress: how much of the task is done, 0 to 1; ``None``, not told.
        entropy: entropy of the choice, nats per token; ``None``, not told.
        loop_matched: steps, this one included, that repeat the kept cycle so far, since its
            last complete round.
        loop_settled: steps that became loop steps with this one.
        loop_first_step: first repeated step of the loop that the run is in; -1, in none.
        place: where the agent stands after the step; ``None``, not told.
        exits: places that can be reached from there; ``None``, not told.
        tasks: tasks found there.
        achieved: tasks the step achieved, where places don't say it.
        state: digest of what the agent saw before it acted; ``None``, not known.
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
    loop_matched: int = 0
    loop_settled: int = 0
    loop_first_step: int = -1
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    achieved: tuple[Identity, ...] = ()
    state: bytes | None = None


class EntropySums(NamedTuple):
    """Action entropy of one run, as sums over its loop steps and over its other steps.

    Attributes:
        loop_sum: nats per token, added up over the loop steps that told theirs.
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
        task: the task's name, for repeated runs of one task.
        t_max: turns within which success counts; ``None``, not set.
        loop_steps: how many of its steps looped.
        cycle_steps: how many lay inside closed cycles.
        progress_auv: area under its progress; ``None``, not measured.
        operations: operations the task needs; ``None``, not told.
        height: height of its dependency tree; ``None``, not told.
        memory: arm of a memory experiment; ``None``, not told.
        frontier: places seen and not visited when it ended; ``None``, not measured.
        pending: tasks ready and not achieved when it ended; ``None``, not measured.
        displaced_leads: leads of older batches that were left; ``None``, not measured.
        loop_actions: how many of the loop steps each action has, by name.
        entropy: its action entropy; ``None``, not told.
        recall: its recall lags; ``None``, no entity was recalled.
        stale_score_max: its highest stale score; ``None``, not measured.
        trace_id: its trace; ``None``, it has none.
        ended: when it ended, in seconds since the epoch; ``None``, not known.
        lost: metrics that an internal error left without a number.
    """

    success: bool | None
    steps: int
    outcome: RunOutcome = "unknown"
    task: str | None = None
    t_max: int | None = None
    loop_steps: int = 0
    cycle_steps: int = 0
    progress_auv: float | None = None
    operations: int | None = None
    height: int | None = None
    memory: str | None = None
    frontier: int | None = None
    pending: int | None = None
    displaced_leads: int | None = None
    loop_actions: tuple[tuple[str, int], ...] = ()
    entropy: EntropySums | None = None
    recall: RecallCounts | None = None
    stale_score_max: int | None = None
    trace_id: str | None = None
    ended: float | None = None
    lost: tuple[str, ...] = ()


Record = ChosenAction | IssuedStep | ObservedStep | FinishedRun
