"""The fleet at one moment: its numbers, and its runs with those in trouble first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegauge.exporters.reading import label_value
from tidegauge.safety.critical import here
from tidegauge.streaming_metrics.answers import Answers
from tidegauge.streaming_metrics.engine import Held
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.step_history import Spent
from tidegauge.streaming_metrics.success import SuccessRate
from tidegauge.streaming_metrics.trouble import Trouble, troubles_of

Condition: TypeAlias = Literal["looping", "stuck", "fine"]
"""Trouble in one word, as the page shows it."""

Dollars: TypeAlias = Callable[[float | None, str | None], float | None]
"""What tokens of a model cost; ``None``, not known."""

MAX_NAMES: Final = 50
"""How many agents and groups the filters offer."""

_CONDITIONS: Final[tuple[Condition, ...]] = ("looping", "stuck", "fine")
_RANKS: Final = {condition: rank for rank, condition in enumerate(_CONDITIONS)}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A reading of the fleet.

    Attributes:
        numbers: ready for JSON; ``None``: not measured.
        runs: the active runs: looping ones, the last onset first; stuck ones; the rest. Each part
            is in the order of the starts, so that runs do not move without reason.
        by_number: the same runs by number.
        conditions: their conditions, in the same order.
        looping: number of looping runs.
    """

    numbers: dict[str, Any]
    runs: list[MeasuredRun]
    by_number: dict[int, MeasuredRun]
    conditions: list[Condition]
    looping: int


def main_trouble_of(run: MeasuredRun) -> Trouble | None:
    """The surest of a run's troubles; ``None``, there is none. Call it with the run's lock."""
    return next(iter(troubles_of(run)), None)


def condition_of(trouble: Trouble | None) -> Condition:
    """The condition of a run with this main trouble."""
    return "fine" if trouble is None else "looping" if trouble == "loop" else "stuck"


def since_of(run: MeasuredRun, trouble: Trouble | None) -> dict[str, Any] | None:
    """Since which step a run is in trouble, and since when. Call it with the run's lock.

    Of a loop, its first repeated step; of a streak, the step at which it set in; of a stale run,
    the first one of its stale score.
    """
    history = run.history
    if trouble == "loop":
        loops, answers = run.of(Loops), run.find(Answers)
        if not loops.period and answers is not None:
            return {"step": None, "time": answers.since}
        return {"step": loops.first_step, "time": loops.since}
    if trouble is None or history is None:
        return None
    if trouble == "stale":
        last, at = history.calm
        return {"step": last + 1, "time": at}
    found = history.stuck.get(trouble)
    return None if found is None else {"step": found[0], "time": found[1]}


def read_fleet(
    held: Held, *, spent: Mapping[str | None, Spent], dollars: Dollars = lambda tokens, model: None
) -> Fleet:
    """Read all runs of an engine, each with its lock.

    Args:
        held: the runs and groups of the engine.
        spent: tokens of ended runs, by model; without any tokens, those of loops are not measured.
        dollars: what tokens of a model cost.
    """
    ranked: list[tuple[int, int, int, MeasuredRun]] = []
    by_number: dict[int, MeasuredRun] = {}
    steps = loop_steps = 0
    loop_tokens = 0.0
    by_model = {model: [*one] for model, one in spent.items()}
    names: tuple[set[str], set[str]] = (set(), set())
    interventions: dict[str, int] = {}
    for run in held.runs:
        history = run.history
        if history is None:
            continue
        with here.critical, run.lock:
            condition = condition_of(main_trouble_of(run))
            if "loops" not in run.lost:
                steps += run.steps
            loop_steps += run.of(Loops).loop_steps
            loop_tokens += run.totals.loop_tokens
            if run.tokens is not None:
                of_model = by_model.setdefault(run.started.model, [0, 0])
                of_model[0] += run.tokens
                of_model[1] += run.totals.loop_tokens
            if run.totals.interventions:
                _count(interventions, run.totals.interventions)
        for known, name in zip(names, (run.started.agent, run.started.task_group), strict=True):
            if name and len(known) < MAX_NAMES:
                known.add(name)
        onset = -history.onset if condition == "looping" else 0
        ranked.append((_RANKS[condition], onset, history.number, run))
        by_number[history.number] = run
    success, ratio, ended = SuccessRate(), LoopRatio(), 0
    for group in held.groups:
        ended += group.runs
        success.merge(group.of(SuccessRate))
        ratio.merge(group.of(LoopRatio))
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
        "lost_steps": loop_steps if steps else None,
        "lost_tokens": loop_tokens if by_model else None,
        **_cost(by_model, dollars),
        "interventions": interventions if ranked or ended else None,
        "agents": sorted({label_value(name) for name in names[0]}),
        "groups": sorted({label_value(name) for name in names[1]}),
    }
    return Fleet(
        numbers,
        [entry[3] for entry in ranked],
        by_number,
        [_CONDITIONS[rank] for rank in ranks],
        looping,
    )


def _cost(by_model: Mapping[str | None, list[float]], dollars: Dollars) -> dict[str, Any]:
    """What tokens cost, as far as their models have a price, and whether all have one."""
    costs = [[dollars(amount, model) for amount in amounts] for model, amounts in by_model.items()]
    known = [[one or 0.0 for one in cost] for cost in costs if cost[0] is not None]
    spent, lost = map(sum, zip(*known, strict=True)) if known else (None, None)
    return {"dollars": spent, "lost_dollars": lost, "all_priced": len(known) == len(costs)}


def _count(into: dict[str, int], interventions: dict[tuple[str, str], int]) -> None:
    for (action, _), count in interventions.items():
        into[action] = into.get(action, 0) + count
