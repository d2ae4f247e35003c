"""Runs as the page shows them: the fleet in numbers, a row for each run, and one run in detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from tidegauge.catalog import RUNBOOKS
from tidegauge.exporters.reading import label_value, visible
from tidegauge.safety.critical import here
from tidegauge.streaming_metrics.answers import Answers
from tidegauge.streaming_metrics.engine import Held
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.snapshot import RunReport
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.step_history import EndedRun, HistoryStep, Spent
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


Digest: TypeAlias = Callable[[bytes], str]
"""Converts a digest to the form that may be shown."""

_DIGITS: Final = 8
"""Shown digits of a digest: enough to distinguish the steps of a run."""

_MAX_SHOWN: Final = 2**53
"""Greatest integer that JavaScript represents exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """How runs are shown."""

    digest: Digest
    trace_url: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    runbooks: str = RUNBOOKS

    def dollars(self, tokens: float | None, model: str | None) -> float | None:
        """What tokens of a model cost; ``None``, not known."""
        price = None if model is None else self.prices.get(model)
        return None if tokens is None or price is None else tokens * price / 1e6

    def trace(self, trace_id: str | None) -> str | None:
        """The address of a trace; ``None``, there is none."""
        if trace_id is None or self.trace_url is None:
            return None
        return self.trace_url.replace("{trace_id}", quote(trace_id, safe=""))


def read_row(run: MeasuredRun, showing: Showing) -> dict[str, Any]:
    """A row of the list."""
    with here.critical, run.lock:
        history, started = run.history, run.started
        loops = run.of(Loops)
        answers = run.find(Answers)
        turns = not loops.repeats and answers is not None and answers.repeats > 0
        signals = run.signals() if loops.repeats or turns else None
        shown: Any = answers if turns else loops
        trouble = main_trouble_of(run)
        return {
            "key": history.number if history is not None else 0,
            "run": label_value(started.run),
            "agent": _name(started.agent, run.agent_name),
            "group": label_value(started.task_group),
            "trouble": condition_of(trouble),
            "since": since_of(run, trouble),
            "finished": run.finished,
            "unguarded": run.unguarded,
            "steps": run.steps,
            "loop": None
            if signals is None
            else {
                "of": "turn" if turns else "step",
                "period": shown.period,
                "repeats": shown.repeats,
                "times": shown.times,
                "first_step": None if turns else loops.first_step,
                "since": shown.since,
                "steps": signals.loop_cost_steps,
                "tokens": signals.loop_cost_tokens,
                "dollars": showing.dollars(signals.loop_cost_tokens, started.model),
            },
            "stale": run.of(StaleScore).current,
            "streak": run.of(ResultStreak).current,
            "failed": run.of(FailedRounds).current,
            "tokens": run.tokens,
            "scores": history.stale_scores() if history is not None else [],
        }


def read_run(run: MeasuredRun, showing: Showing) -> dict[str, Any]:
    """The details of an active run."""
    with here.critical, run.lock:
        trouble = main_trouble_of(run)
        since = since_of(run, trouble)
        report, history = run.report(), run.history
        steps = history.steps() if history is not None else []
    return {
        **_numbers(report, showing),
        "key": history.number if history is not None else 0,
        "started": history.started if history is not None else None,
        "trouble": condition_of(trouble),
        "since": since,
        "advice": _advice(report, trouble, showing),
        "trail": [_step(step, showing.digest) for step in steps],
    }


def read_ended(ended: EndedRun, showing: Showing) -> dict[str, Any]:
    """The details of an ended run; it keeps the loop that it ended in."""
    report = ended.report
    return {
        **_numbers(report, showing),
        "key": ended.history.number,
        "started": ended.history.started,
        "trouble": condition_of(next(iter(report.troubles), None)),
        "since": None,
        "advice": None,
        "trail": [_step(step, showing.digest) for step in ended.history.steps()],
    }


_RUNBOOKS: Final[Mapping[Trouble, str]] = {
    "loop": "loop-onset",
    "result_streak": "runs-stale",
    "failed_rounds": "failed-rounds",
    "stale": "runs-stale",
}


def _advice(report: RunReport, trouble: Trouble | None, showing: Showing) -> dict[str, Any] | None:
    """What to do about a run: the runbook, what would stop such runs, what to declare if not."""
    if trouble is None:
        return None
    name = _RUNBOOKS[trouble]
    served = showing.runbooks != RUNBOOKS  # the placeholder leads nowhere
    tools = [label_value(tool) for tool in report.loop_tools[:1]] or ["TOOL"]
    return {
        "runbook": name,
        "address": f"{showing.runbooks.rstrip('/')}/{name}.md" if served else None,
        # No threshold from this moment: copied, it would let later loops run as long.
        "rule": None if trouble == "stale" else 'tidegauge.configure(guard="stuck")',
        "declare": visible(f"tools={{{tools[0]!r}: tidegauge.ToolDeclaration(poll=True)}}"),
    }


def _loop(report: RunReport, showing: Showing) -> dict[str, Any] | None:
    if not (report.loop_repeats or report.turn_loop_repeats):
        return None
    turns = not report.loop_repeats  # of answers without calls, which no step shows
    return {
        "of": "turn" if turns else "step",
        "period": report.turn_loop_period if turns else report.loop_period,
        "repeats": report.turn_loop_repeats if turns else report.loop_repeats,
        "times": report.turn_loop_times if turns else report.loop_times,
        "first_step": report.loop_first_step,
        "since": report.loop_since,
        "tools": [label_value(tool) for tool in report.loop_tools],
        "steps": report.loop_cost_steps,
        "tokens": report.loop_cost_tokens,
        "seconds": report.loop_cost_seconds,
        "dollars": showing.dollars(report.loop_cost_tokens, report.model),
    }


def _numbers(report: RunReport, showing: Showing) -> dict[str, Any]:
    return {
        "loop": _loop(report, showing),
        "lost_steps": report.loop_steps,
        "lost_tokens": report.lost_tokens,
        "dollars": showing.dollars(report.tokens, report.model),
        "trace_id": report.trace_id,
        "trace_url": showing.trace(report.trace_id),
        "run": label_value(report.run),
        "agent": _name(report.agent, report.agent_name),
        "group": label_value(report.task_group),
        "model": None if report.model is None else label_value(report.model),
        "finished": report.finished,
        "outcome": report.outcome if report.finished else None,
        "steps": report.steps,
        "t_max": None if report.t_max is None else min(report.t_max, _MAX_SHOWN),
        "loop_ratio": report.loop_ratio,
        "stale": report.stale_score,
        "stale_max": report.stale_score_max,
        "streak": report.result_streak,
        "failed": report.failed_rounds,
        "novelty": report.novelty,
        "left_out": report.left_out,
        "progress": report.progress,
        "tokens": report.tokens,
        "frontier": report.frontier,
        "pending": report.pending,
        "intervention": report.intervention,
        "intervention_step": report.intervention_step,
        "intervention_reason": report.intervention_reason,
        "saved_steps": report.saved_steps,
        "saved_tokens": report.saved_tokens,
        "unguarded": report.unguarded,
        "lost": list(report.lost),
    }


def _name(agent: str, agent_name: str | None) -> str:
    """The name of an agent, and by what it was counted, if that is another."""
    if agent_name is None:
        return label_value(agent)
    return f"{label_value(agent_name)} (counted as {label_value(agent)})"


def _step(step: HistoryStep, digest: Digest) -> dict[str, Any]:
    return {
        "step": step.step,
        "tool": label_value(step.tool),
        "action": digest(step.action)[:_DIGITS],
        "outcome": None if step.outcome is None else digest(step.outcome)[:_DIGITS],
        "looped": step.looped,
        "observed": step.observed,
        "failed": step.failed,
        "tokens": step.tokens,
        "seconds": step.seconds,
        "stale": step.stale_score,
        "intervention": step.intervention,
        "arguments": None if step.arguments is None else visible(step.arguments),
        "result": None if step.result is None else visible(step.result),
    }
