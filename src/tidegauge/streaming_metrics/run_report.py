"""What is told of one run: every number, as plain fields."""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.events import Identity, RunOutcome

__all__ = ["GroupKey", "RunReport"]


class GroupKey(NamedTuple):
    """What runs are grouped by. ``memory`` is empty where no arm was told."""

    agent: str
    task_group: str
    memory: str


class RunReport(NamedTuple):
    """What was measured of one run, up to now or in all. ``None``: not measured."""

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
