"""The data of the report: runs, groups, tasks, curves and graphs of places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import networkx as nx

from tidegauge.diagnose.competency_scores import CompetencyScore, overall_scores
from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep, fields_of
from tidegauge.diagnose.report.action_map import Embedder, action_map, tf_idf
from tidegauge.diagnose.report.agent_profiles import memory_pairs, profiles
from tidegauge.diagnose.report.exploring import error_fits, exploration_fractions
from tidegauge.diagnose.report.word_clouds import word_clouds
from tidegauge.streaming_metrics import AUV, GroupKey, GroupSnapshot, LoopRatio, SuccessCurve
from tidegauge.streaming_metrics.contrast import student_quantile

_CONFIDENCE = 0.95
_MAX_TURNS = 200


def auv_interval(auv: AUV) -> tuple[float, float] | None:
    """Student's 95% interval of an AUV; ``None`` with fewer than two runs.

    >>> auv_interval(AUV()) is None
    True
    """
    if auv.value is None or auv.standard_error is None:
        return None
    reach = student_quantile((1 + _CONFIDENCE) / 2, auv.runs - 1) * auv.standard_error
    return max(auv.value - reach, 0.0), min(auv.value + reach, 1.0)


def success_curve(group: GroupSnapshot, turns: int) -> list[float] | None:
    """P_t for t from 0 to ``turns``; ``None`` if no run has a known success."""
    curve = group.finished.of(SuccessCurve)
    if not curve.runs:
        return None
    return [curve.at(turn) or 0.0 for turn in range(turns + 1)]


def with_curve(
    entry: Mapping[str, Any], group: GroupSnapshot, runs: Sequence[ReportedRun]
) -> dict[str, Any]:
    """A group's entry of ``replay --json``, with its interval and its curve."""
    turns = max((run.report.t_max or run.report.steps for run in runs), default=0)
    return {
        **entry,
        "auv_interval": auv_interval(group.finished.of(AUV)),
        "curve": success_curve(group, min(turns, _MAX_TURNS)),
        "unfinished": len(group.active),
        "exploring": exploration_fractions(runs),
        "looping_runs": sum(run.report.loop_steps > 0 for run in runs),
        "steps": group.totals.steps,
    }


def tasks(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Loop ratio and AUV of every task of every agent, as in TIDE's figure 3.

    Only ended runs count, and only tasks with a known AUV are returned.
    """
    found: dict[tuple[str, str, str], tuple[AUV, LoopRatio, list[int]]] = {}
    for index, run in enumerate(runs):
        report = run.report
        if not report.finished:
            continue
        key = (report.agent, report.task_group, run.task or report.run)
        auv, ratio, members = found.setdefault(key, (AUV(), LoopRatio(), []))
        auv.update(run.finished_run())
        ratio.update(run.finished_run())
        members.append(index)
    return [
        {
            "agent": agent,
            "task_group": task_group,
            "task": task,
            "auv": auv.value,
            "loop_ratio": ratio.value,
            "runs": members,
        }
        for (agent, task_group, task), (auv, ratio, members) in found.items()
        if auv.value is not None and ratio.value is not None
    ]


Position: TypeAlias = tuple[float, float]

MAX_PLACES: Final = 60
"""Limit of places drawn of one run: the first ones that it visited."""


def positions(walk: list[int]) -> list[Position]:
    """A position for each place of a walk (Kamada and Kawai 1989), with coordinates from 0 to 1.

    Args:
        walk: the places in the order in which they were visited, numbered by their first visit.

    >>> positions([0, 1, 0])
    [(0.5, 1.0), (0.5, 0.0)]
    >>> positions([])
    []
    """
    drawn = [place for place in walk if place < MAX_PLACES]
    moves = {(min(move), max(move)) for move in pairwise(drawn) if move[0] != move[1]}
    return _laid_out(len(set(drawn)), tuple(sorted(moves)))


@lru_cache(maxsize=10_000)
def _laid_out(places: int, moves: tuple[tuple[int, int], ...]) -> list[Position]:
    """Many runs have the same form (most are a path): the layout of each form is cached."""
    if not places:
        return []
    graph = nx.Graph()
    graph.add_nodes_from(range(places))
    graph.add_edges_from(moves)
    if places <= 2:
        return [(0.5, 1.0), (0.5, 0.0)][:places]
    # Start from a circle, so that the layout is deterministic.
    found = nx.kamada_kawai_layout(graph, pos=nx.circular_layout(graph))
    across = [float(found[place][0]) for place in range(places)]
    up = [float(found[place][1]) for place in range(places)]
    return list(zip(_stretched(across), _stretched(up), strict=True))


def _stretched(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    if high - low < 1e-6:
        return [0.5] * len(values)
    return [round((value - low) / (high - low), 3) for value in values]


STAGES: Final = ("runs and their graphs", "words", "map of actions")
"""The slow stages, in order."""

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
    scores: Sequence[CompetencyScore] = (),
    with_contents: bool = True,
    embed: Embedder = tf_idf,
    begin: Callable[[str], object] = lambda stage: None,
) -> dict[str, Any]:
    """All data of the page except the recorded lines.

    Args:
        runs: all runs.
        groups: all groups, with their entries of ``replay --json``.
        memory_index: as in ``replay --json``.
        scores: judged scores of the runs.
        with_contents: whether to include words of tasks, arguments and states. Without them there
            is only the word cloud of action names, and no map.
        embed: embeds the actions of the map.
        begin: called with each of :data:`STAGES` when it begins.
    """
    members: dict[GroupKey, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        members[run.report.group].append(run)
    begin(STAGES[0])
    overall = overall_scores(scores)
    shown = [
        {**_run(run, with_contents), "overall_score": overall.get(run.report.run)} for run in runs
    ]
    begin(STAGES[1])
    clouds = word_clouds(runs if with_contents else [_redacted(run) for run in runs])
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
        "runs": shown,
        "groups": [
            with_curve(entry, group, members[key]) for key, (group, entry) in groups.items()
        ],
        "memory_index": list(memory_index),
        "memory_pairs": memory_pairs(group for group, _ in groups.values()),
        "error_fits": error_fits([entry for _, entry in groups.values()]),
        "profiles": profiles(group for group, _ in groups.values()),
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
        "agent_name": run.report.agent_name,
        "task": run.task[:_MAX_TASK] if with_contents else "",
        "listed_loops": [tuple(loop) for loop in run.report.loops],
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
    """The steps as columns, without columns that have no value."""
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


def _redacted(run: ReportedRun) -> ReportedRun:
    """The run with only the names of its actions."""
    steps = [replace(step, arguments="", label="") for step in run.steps]
    return ReportedRun(run.report, "", steps, run.lines)
