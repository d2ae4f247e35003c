"""A run for the page: as a row of the list, and in detail with its last steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegauge._critical import here
from tidegauge.exporters.page.overview import Fleet, trouble_of
from tidegauge.exporters.reading import label_value
from tidegauge.streaming_metrics.event_log import EndedRun
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loops import Loops, is_looping
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.step_history import HistoryStep

__all__ = ["Digest", "read_ended", "read_row", "read_run"]

Digest: TypeAlias = Callable[[bytes], str]
"""Converts a digest to the form that may be shown."""

_DIGITS: Final = 8
"""Shown digits of a digest: enough to distinguish the steps of a run."""

_MAX_SHOWN: Final = 2**53
"""Greatest integer that JavaScript represents exactly."""


def read_row(run: MeasuredRun, fleet: Fleet) -> dict[str, Any]:
    """A row of the list."""
    with here.critical, run.lock:
        history, started = run.history, run.started
        return {
            "key": history.number if history is not None else 0,
            "run": label_value(started.run),
            "agent": _name(started.agent, run.agent_name),
            "group": label_value(started.task_group),
            "trouble": trouble_of(run, stale_at=fleet.stale_at, onset_at=fleet.onset_at),
            "finished": run.finished,
            "unguarded": run.unguarded,
            "steps": run.steps,
            "loop": _loop(run),
            "stale": run.of(StaleScore).current,
            "streak": run.of(ResultStreak).current,
            "failed": run.of(FailedRounds).current,
            "tokens": run.tokens,
            "scores": history.stale_scores() if history is not None else [],
        }


def read_run(run: MeasuredRun, fleet: Fleet, digest: Digest) -> dict[str, Any]:
    """The details of an active run."""
    with here.critical, run.lock:
        trouble = trouble_of(run, stale_at=fleet.stale_at, onset_at=fleet.onset_at)
        report, loop, history = run.report(), _loop(run), run.history
        steps = history.steps() if history is not None else []
    return {
        **_numbers(report),
        "key": history.number if history is not None else 0,
        "started": history.started if history is not None else None,
        "trouble": trouble,
        "loop": loop,
        "loop_cost_steps": report.loop_cost_steps if loop else None,
        "loop_cost_tokens": report.loop_cost_tokens if loop else None,
        "trail": [_step(step, digest) for step in steps],
    }


def read_ended(ended: EndedRun, digest: Digest) -> dict[str, Any]:
    """The details of an ended run."""
    return {
        **_numbers(ended.report),
        "key": ended.history.number,
        "started": ended.history.started,
        "trouble": "fine",
        "loop": None,
        "loop_cost_steps": None,
        "loop_cost_tokens": None,
        "trail": [_step(step, digest) for step in ended.history.steps()],
    }


def _loop(run: MeasuredRun) -> dict[str, Any] | None:
    loops = run.of(Loops)
    if not loops.repeats:
        return None
    return {
        "period": loops.period,
        "repeats": loops.repeats,
        "first_step": loops.first_step,
        "exempt": not is_looping(run),
    }


def _numbers(report: RunReport) -> dict[str, Any]:
    return {
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
        "arguments": step.arguments,
        "result": step.result,
    }
