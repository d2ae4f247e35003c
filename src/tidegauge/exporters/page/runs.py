"""A run as the page shows it: as a row of the list, and chosen, with its last steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegauge._critical import here
from tidegauge.exporters.page.fleet import Fleet, trouble_of
from tidegauge.exporters.prometheus.labels import label_value
from tidegauge.streaming_metrics.chronicle import EndedRun
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.run_state import RunState
from tidegauge.streaming_metrics.trail import TrailStep

__all__ = ["Digest", "read_ended", "read_row", "read_run"]

Digest: TypeAlias = Callable[[bytes], str]
"""What is shown in place of a digest."""

_DIGITS: Final = 8
"""Of a digest, so many: enough to tell the steps of a run apart."""

_MAX_SHOWN: Final = 2**53
"""Greater whole numbers are none in JavaScript."""


def read_row(run: RunState, fleet: Fleet) -> dict[str, Any]:
    """What a row of the list shows."""
    with here.critical, run.lock:
        trail, started = run.trail, run.started
        return {
            "key": trail.number if trail is not None else 0,
            "run": label_value(started.run),
            "agent": label_value(started.agent),
            "group": label_value(started.task_group),
            "trouble": trouble_of(run, stale_at=fleet.stale_at, onset_at=fleet.onset_at),
            "finished": run.finished,
            "unguarded": run.watch_only,
            "steps": run.steps,
            "loop": _loop(run),
            "stale": run.stale_score.current,
            "streak": run.result_streak.current,
            "failed": run.failed_rounds.current,
            "tokens": run.tokens,
            "scores": trail.stale_scores() if trail is not None else [],
        }


def read_run(run: RunState, fleet: Fleet, digest: Digest) -> dict[str, Any]:
    """What is shown of the chosen run."""
    with here.critical, run.lock:
        trouble = trouble_of(run, stale_at=fleet.stale_at, onset_at=fleet.onset_at)
        report, loop, trail = run.report(), _loop(run), run.trail
        steps = trail.steps() if trail is not None else []
    return {
        **_numbers(report),
        "key": trail.number if trail is not None else 0,
        "started": trail.started if trail is not None else None,
        "trouble": trouble,
        "loop": loop,
        "loop_cost_steps": report.loop_cost_steps if loop else None,
        "loop_cost_tokens": report.loop_cost_tokens if loop else None,
        "trail": [_step(step, digest) for step in steps],
    }


def read_ended(ended: EndedRun, digest: Digest) -> dict[str, Any]:
    """The same of a run that ended."""
    return {
        **_numbers(ended.report),
        "key": ended.trail.number,
        "started": ended.trail.started,
        "trouble": "fine",
        "loop": None,
        "loop_cost_steps": None,
        "loop_cost_tokens": None,
        "trail": [_step(step, digest) for step in ended.trail.steps()],
    }


def _loop(run: RunState) -> dict[str, Any] | None:
    loops = run.loops
    if not loops.repeats:
        return None
    return {
        "period": loops.period,
        "repeats": loops.repeats,
        "first_step": loops.first_step,
        "excused": run.excused,
    }


def _numbers(report: RunReport) -> dict[str, Any]:
    return {
        "run": label_value(report.run),
        "agent": label_value(report.agent),
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


def _step(step: TrailStep, digest: Digest) -> dict[str, Any]:
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
