"""What metrics are fed: one frozen record a moment, made of digests and numbers only.

A metric names in :attr:`~tidegauge.streaming_metrics.metric.Metric.takes` which of the three it
takes. The engine makes them from events; contents end here, as digests.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.events import Identity, RunOutcome, Task

__all__ = ["FinishedRun", "IssuedStep", "ObservedStep", "Record"]


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


Record = IssuedStep | ObservedStep | FinishedRun
