"""What the page shows, as plain data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep, fields_of
from tidegauge.diagnose.report.action_map import Embedder, action_map, tf_idf
from tidegauge.diagnose.report.comparison import tasks, with_curve
from tidegauge.diagnose.report.state_graph import positions
from tidegauge.diagnose.report.word_clouds import word_clouds
from tidegauge.diagnose.scores import Score
from tidegauge.streaming_metrics import GroupKey, GroupSnapshot

__all__ = ["STAGES", "contents"]

STAGES: Final = ("runs and their graphs", "words", "map of actions")
"""What takes time, in this order."""

_MAX_TASK: Final = 300
_MEASURED: Final = (
    "loop",
    "case",
    "progress",
    "error",
    "exploration_error",
    "exploitation_error",
    "stale",
    "frontier",
    "pending",
)


def contents(
    runs: Sequence[ReportedRun],
    groups: Mapping[GroupKey, tuple[GroupSnapshot, Mapping[str, Any]]],
    *,
    memory_index: Sequence[Mapping[str, Any]] = (),
    scores: Sequence[Score] = (),
    with_contents: bool = True,
    embed: Embedder = tf_idf,
    begin: Callable[[str], object] = lambda stage: None,
) -> dict[str, Any]:
    """Everything that the page shows but the recorded lines.

    Args:
        runs: every run.
        groups: every group, with its entry of ``replay --json``.
        memory_index: as in ``replay --json``.
        scores: what judges said of the runs.
        with_contents: whether words of tasks, arguments and states are told. Without them there
            are no clouds but that of the actions' names, and no map.
        embed: embeds the actions of the map.
        begin: told each of :data:`STAGES` when it begins.
    """
    members: dict[GroupKey, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        members[run.report.group].append(run)
    begin(STAGES[0])
    told = [_run(run, with_contents) for run in runs]
    begin(STAGES[1])
    clouds = word_clouds(runs if with_contents else [_wordless(run) for run in runs])
    begin(STAGES[2])
    actions = action_map(runs, embed) if with_contents else None
    index_of: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        index_of[run.report.run].append(index)
    points = tasks(runs)
    if not with_contents:
        points = [{**point, "task": ""} for point in points]
    return {
        "contents": with_contents,
        "runs": told,
        "groups": [
            with_curve(entry, group, members[key]) for key, (group, entry) in groups.items()
        ],
        "memory_index": list(memory_index),
        "tasks": points,
        "clouds": clouds,
        "map": actions,
        "scores": [
            {
                "runs": index_of[score.run],
                "competency": score.competency,
                "score": score.score,
                "reason": score.reason if with_contents else "",
                "steps": score.steps,
            }
            for score in scores
            if score.run in index_of
        ],
    }


def _run(run: ReportedRun, with_contents: bool) -> dict[str, Any]:
    places: dict[str, int] = {}
    labels: list[str] = []
    walk: list[int] = []
    for step in run.steps:
        if step.place not in places:
            places[step.place] = len(places)
            labels.append(step.label if with_contents else "")
        walk.append(places[step.place])
    return {
        **fields_of(run.report),
        "task": run.task[:_MAX_TASK] if with_contents else "",
        "listed_loops": run.report.loops,
        "line_count": len(run.lines),
        "step": _columns(run.steps),
        "walk": walk,
        "places": labels,
        "graph": positions(walk),
        "interventions": [
            (index, what, why)
            for index, step in enumerate(run.steps)
            for what, why in step.interventions
        ],
    }


def _columns(steps: Sequence[ReportedStep]) -> dict[str, list[Any]]:
    """The steps, a list for each thing that is known of any of them."""
    columns: dict[str, list[Any]] = {
        "name": [step.name for step in steps],
        "line": [step.line for step in steps],
    }
    if any(step.outcome_line != step.line for step in steps):
        columns["outcome_line"] = [step.outcome_line for step in steps]
    if any(step.failed for step in steps):
        columns["failed"] = [step.failed for step in steps]
    for name in _MEASURED:
        values = [step.measured.get(name) for step in steps]
        if any(value is not None and value is not False for value in values):
            columns[name] = values
    return columns


def _wordless(run: ReportedRun) -> ReportedRun:
    """A run of which only the names of its actions are known."""
    steps = [replace(step, arguments="", label="") for step in run.steps]
    return ReportedRun(run.report, "", steps, run.lines)
