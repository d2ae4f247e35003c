"""The fleet at one moment: its numbers, and its runs with those in trouble first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegauge._critical import here
from tidegauge.exporters.reading import label_value
from tidegauge.streaming_metrics.engine import Held
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loops import Loops, is_looping
from tidegauge.streaming_metrics.polling_allowance import exempt_steps
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.stale_score import StaleScore, is_stale
from tidegauge.streaming_metrics.success import SuccessRate

__all__ = ["MAX_NAMES", "Fleet", "Trouble", "read_fleet", "trouble_of"]

Trouble: TypeAlias = Literal["looping", "stuck", "fine"]

MAX_NAMES: Final = 50
"""How many agents and groups the filters offer."""

_TROUBLES: Final[tuple[Trouble, ...]] = ("looping", "stuck", "fine")
_RANKS: Final = {trouble: rank for rank, trouble in enumerate(_TROUBLES)}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A reading of the fleet.

    Attributes:
        numbers: ready for JSON; ``None``: not measured.
        runs: the active runs: looping ones, the last onset first; stuck ones; the rest. Each part
            is in the order of the starts, so that runs do not move without reason.
        by_number: the same runs by number.
        troubles: their troubles, in the same order.
        looping: number of looping runs.
        stale_at: stale score from which a run is stuck.
        onset_at: length of a result streak, or number of failed rounds, from which a run is stuck.
    """

    numbers: dict[str, Any]
    runs: list[MeasuredRun]
    by_number: dict[int, MeasuredRun]
    troubles: list[Trouble]
    looping: int
    stale_at: int
    onset_at: int


def trouble_of(run: MeasuredRun, *, stale_at: int, onset_at: int) -> Trouble:
    """The trouble of a run. Call it with the run's lock.

    Repetitions of exempt steps only (a declared poller that waits) do not count as trouble.
    """
    exempt = exempt_steps(run)
    if is_looping(run):
        return "looping"
    streak = run.of(ResultStreak).current or 0
    if streak >= onset_at and streak > exempt:
        return "stuck"
    if (run.of(FailedRounds).current or 0) >= onset_at:
        return "stuck"
    return "stuck" if is_stale(run.of(StaleScore).current, exempt, stale_at) else "fine"


def read_fleet(held: Held, *, tokens: bool = False) -> Fleet:
    """Read all runs of an engine, each with its lock.

    Args:
        held: the runs and groups of the engine.
        tokens: whether an ended run reported tokens; without any, tokens in loops are not measured.
    """
    ranked: list[tuple[int, int, int, MeasuredRun]] = []
    by_number: dict[int, MeasuredRun] = {}
    steps = loop_steps = lost_steps = 0
    loop_tokens = 0.0
    names: tuple[set[str], set[str]] = (set(), set())
    interventions: dict[str, int] = {}
    for run in held.runs:
        history = run.history
        if history is None:
            continue
        with here.critical, run.lock:
            trouble = trouble_of(run, stale_at=held.stale_at, onset_at=held.onset_at)
            if "loops" not in run.lost:
                steps += run.of(Loops).steps
            loop_steps += run.of(Loops).loop_steps
            lost_steps += run.totals.lost_steps
            loop_tokens += run.totals.loop_tokens
            tokens = tokens or run.tokens is not None
            if run.totals.interventions:
                _count(interventions, run.totals.interventions)
        for known, name in zip(names, (run.started.agent, run.started.task_group), strict=True):
            if name and len(known) < MAX_NAMES:
                known.add(name)
        onset = -history.onset if trouble == "looping" else 0
        ranked.append((_RANKS[trouble], onset, history.number, run))
        by_number[history.number] = run
    success, ratio, ended = SuccessRate(), LoopRatio(), 0
    for group in held.groups:
        ended += group.runs
        success.merge(group.of(SuccessRate))
        ratio.merge(group.of(LoopRatio))
        lost_steps += group.totals.lost_steps
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
        "lost_steps": lost_steps if steps else None,
        "lost_tokens": loop_tokens if tokens else None,
        "interventions": interventions if ranked or ended else None,
        "agents": sorted({label_value(name) for name in names[0]}),
        "groups": sorted({label_value(name) for name in names[1]}),
    }
    return Fleet(
        numbers,
        [entry[3] for entry in ranked],
        by_number,
        [_TROUBLES[rank] for rank in ranks],
        looping,
        held.stale_at,
        held.onset_at,
    )


def _count(into: dict[str, int], interventions: dict[tuple[str, str], int]) -> None:
    for (action, _), count in interventions.items():
        into[action] = into.get(action, 0) + count
