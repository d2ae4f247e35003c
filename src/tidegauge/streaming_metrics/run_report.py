"""What is told of one run: every number, as plain fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidegauge.events import Identity, RunOutcome

if TYPE_CHECKING:
    from tidegauge.streaming_metrics.exploration import Exploration
    from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["GroupKey", "RunReport", "displaced_leads", "report_of"]


class GroupKey(NamedTuple):
    """What runs are grouped by. ``memory`` is empty where no arm was told."""

    agent: str
    task_group: str
    memory: str


class RunReport(NamedTuple):
    """What was measured of one run, up to now or in all. ``None``: not measured.

    ``unguarded``: its policy was switched off after an internal error. ``lost``: the metrics that
    the error left without a number.
    """

    run: str
    group: GroupKey
    agent: str
    task_group: str
    memory: str | None
    model: str | None
    trace_id: str | None
    steps: int
    t_max: int | None
    finished: bool
    success: bool | None
    outcome: RunOutcome
    loop_steps: int
    loop_ratio: float | None
    cycles: int
    cycle_steps: int
    loops: list[tuple[int, int, int]]
    loop_period: int
    loop_repeats: int
    loop_cost_steps: int
    loop_cost_tokens: float | None
    loop_cost_seconds: float | None
    result_streak: int | None
    result_streak_max: int | None
    failed_rounds: int | None
    failed_rounds_max: int | None
    recurrence: int | None
    recurrence_max: int | None
    novelty: float | None
    progress: float | None
    progress_auv: float | None
    tokens: float | None
    stale_score: int | None
    stale_score_max: int | None
    place: Identity | None
    frontier: int | None
    pending: int | None
    tasks_never_closed: bool
    exploration_required: int | None
    exploration_errors: int | None
    exploration_error: float | None
    exploitation_required: int | None
    exploitation_errors: int | None
    exploitation_error: float | None
    oldest_lead_age: int | None
    displaced_leads: int | None
    goal_pending_age: int | None
    premature_halt: bool | None
    distinct_places: int | None
    backtracks: int | None
    zone_changes: int | None
    actions_per_stay: float | None
    recall_lag: float | None
    loop_entropy: float | None
    other_entropy: float | None
    intervention: str | None
    intervention_step: int | None
    intervention_reason: str | None
    saved_steps: int | None
    saved_tokens: float | None
    saved_seconds: float | None
    excused: bool
    unguarded: bool
    lost: tuple[str, ...]


def report_of(run: RunState) -> RunReport:
    """Everything that is known of a run now. Called with its lock held."""
    started, loops, cost = run.started, run.loops, run.loop_cost
    told = cost.first_step == loops.first_step
    exploration, navigation = run.exploration, run.navigation
    placed = exploration if exploration is not None and exploration.placed else None
    intervention = None
    if run.stopped:
        intervention, at = "stop", run.stopped
    elif run.first_would_stop:
        intervention, at = "would_stop", run.first_would_stop
    return RunReport(
        run=started.run,
        group=run.group,
        agent=started.agent,
        task_group=started.task_group,
        memory=started.memory,
        model=started.model,
        trace_id=started.trace_id,
        steps=run.steps,
        t_max=run.t_max,
        finished=run.finished,
        success=run.success,
        outcome=run.outcome,
        loop_steps=loops.loop_steps,
        loop_ratio=loops.value,
        cycles=loops.cycles,
        cycle_steps=loops.cycle_steps,
        loops=loops.loops,
        loop_period=loops.period,
        loop_repeats=loops.repeats,
        loop_cost_steps=0 if run.signals is None else run.signals.loop_cost_steps,
        loop_cost_tokens=cost.onset_tokens if told else None,
        loop_cost_seconds=cost.onset_seconds if told else None,
        result_streak=run.result_streak.value,
        result_streak_max=run.result_streak.maximum,
        failed_rounds=run.failed_rounds.value,
        failed_rounds_max=run.failed_rounds.maximum,
        recurrence=run.recurrence.value,
        recurrence_max=run.recurrence.maximum,
        novelty=run.novelty.value,
        progress=run.progress_auv.best,
        progress_auv=run.progress_auv.value,
        tokens=run.tokens,
        stale_score=run.stale_score.current,
        stale_score_max=run.stale_score.maximum,
        place=placed.here if placed else None,
        frontier=exploration.frontier if exploration else None,
        pending=exploration.pending if exploration else None,
        tasks_never_closed=exploration.tasks_never_closed if exploration else False,
        exploration_required=placed.exploration_required if placed else None,
        exploration_errors=placed.exploration_errors if placed else None,
        exploration_error=placed.exploration_error_rate if placed else None,
        exploitation_required=placed.exploitation_required if placed else None,
        exploitation_errors=placed.exploitation_errors if placed else None,
        exploitation_error=placed.exploitation_error_rate if placed else None,
        oldest_lead_age=placed.oldest_lead_age if placed else None,
        displaced_leads=displaced_leads(exploration),
        goal_pending_age=exploration.goal_pending_age if exploration else None,
        premature_halt=run.premature_halt,
        distinct_places=navigation.distinct if navigation else None,
        backtracks=navigation.backtracks if navigation and placed else None,
        zone_changes=navigation.zone_changes if navigation and placed else None,
        actions_per_stay=navigation.actions_per_stay if navigation else None,
        recall_lag=run.recall_lag.value,
        loop_entropy=run.entropy_split.loop,
        other_entropy=run.entropy_split.other,
        intervention=intervention,
        intervention_step=at[0] if intervention else None,
        intervention_reason=at[1] if intervention else None,
        saved_steps=run.totals.saved_steps if run.first_would_stop else None,
        saved_tokens=run.totals.saved_tokens if run.first_would_stop else None,
        saved_seconds=run.totals.saved_seconds if run.first_would_stop else None,
        excused=run.excused,
        unguarded=run.watch_only,
        lost=run.lost,
    )


def displaced_leads(exploration: Exploration | None) -> int | None:
    """Leads that newer ones have displaced; ``None``, no place was told."""
    return exploration.leads.displaced if exploration is not None and exploration.placed else None
