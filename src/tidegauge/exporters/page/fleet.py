"""The fleet at one moment: its numbers, and its runs with the troubled ones before the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tidegauge._critical import here
from tidegauge.streaming_metrics.engine import Held
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.run_state import RunState
from tidegauge.streaming_metrics.success import SuccessRate

__all__ = ["Fleet", "Trouble", "read_fleet", "trouble_of"]

Trouble: TypeAlias = Literal["looping", "stuck", "fine"]

_RANKS: dict[Trouble, int] = {"looping": 0, "stuck": 1, "fine": 2}


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was read.

    Attributes:
        numbers: ready for JSON; ``None`` stands for not measured.
        runs: the active runs: those that loop, the last onset first; those that are stuck; the
            rest. Within these in the order in which they began, so that a run keeps its place
            while nothing happens to it.
        by_number: the same by the numbers of their trails.
        looping: how many of them loop.
        stale_at: stale score from which a run is stuck.
        onset_at: length from which a result streak or failed rounds are.
    """

    numbers: dict[str, Any]
    runs: list[RunState]
    by_number: dict[int, RunState]
    looping: int
    stale_at: int
    onset_at: int


def trouble_of(run: RunState, *, stale_at: int, onset_at: int) -> Trouble:
    """What is the matter with a run. Called with its lock held.

    What only excused steps repeat (a declared poller that waits) is no trouble.
    """
    excused = run.patience.excused if run.patience is not None else 0
    if run.loops.repeats and excused < run.loops.period:
        return "looping"
    streak = run.result_streak.current or 0
    if streak >= onset_at and streak > excused:
        return "stuck"
    if (run.failed_rounds.current or 0) >= onset_at:
        return "stuck"
    stale = run.stale_score.current
    return "stuck" if stale is not None and stale >= stale_at and not excused else "fine"


def read_fleet(held: Held, *, tokens: bool = False) -> Fleet:
    """Go through all that an engine holds, each run's lock taken in turn.

    Args:
        held: what it holds.
        tokens: whether a run that ended had told of tokens: without any, those lost in loops are
            not measured.
    """
    ranked: list[tuple[int, int, int, RunState]] = []
    by_number: dict[int, RunState] = {}
    steps = loop_steps = 0
    loop_tokens = 0.0
    interventions: dict[str, int] = {}
    for run in held.runs:
        trail = run.trail
        if trail is None:
            continue
        with here.critical, run.lock:
            trouble = trouble_of(run, stale_at=held.stale_at, onset_at=held.onset_at)
            if "loops" not in run.lost:
                steps += run.loops.steps
            loop_steps += run.loops.loop_steps
            loop_tokens += run.totals.loop_tokens
            tokens = tokens or run.tokens is not None
            if run.totals.interventions:
                _count(interventions, run.totals.interventions)
        onset = -trail.onset if trouble == "looping" else 0
        ranked.append((_RANKS[trouble], onset, trail.number, run))
        by_number[trail.number] = run
    success, ratio, ended = SuccessRate(), LoopRatio(), 0
    for group in held.groups:
        ended += group.runs
        success.merge(group.success_rate)
        ratio.merge(group.loop_ratio)
        loop_tokens += group.totals.loop_tokens
        _count(interventions, group.totals.interventions)
    steps += ratio.steps
    loop_steps += ratio.loop_steps
    ranked.sort(key=lambda entry: entry[:3])
    ranks = [entry[0] for entry in ranked]
    looping = ranks.count(_RANKS["looping"])
    numbers: dict[str, Any] = {
        "running": len(ranked),
        "looping": looping,
        "stuck": ranks.count(_RANKS["stuck"]),
        "ended": ended,
        "judged": success.runs,
        "success_rate": success.value,
        "steps": steps,
        "loop_ratio": loop_steps / steps if steps else None,
        "loop_steps": loop_steps if steps else None,
        "loop_tokens": loop_tokens if tokens else None,
        "interventions": interventions if ranked or ended else None,
    }
    return Fleet(
        numbers,
        [entry[3] for entry in ranked],
        by_number,
        looping,
        held.stale_at,
        held.onset_at,
    )


def _count(into: dict[str, int], interventions: dict[tuple[str, str], int]) -> None:
    for (action, _), count in interventions.items():
        into[action] = into.get(action, 0) + count
