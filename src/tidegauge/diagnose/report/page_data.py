"""The report: its data (runs, groups, tasks, curves, graphs of places), and the page with them.

The page is one HTML file without requests and with its own scripts only. A content security policy
allows these by their hashes. The chart library and the recorded contents are compressed data in the
page. Scripts show contents by ``textContent`` only, so they are never markup.

Sources: TIDE (profiles of agents, pairs of memory arms); figures 1 and 4a of Exploration and
Exploitation Errors Are Measurable for Language Model Agents, E&E (arXiv 2604.13151).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Any, Final, TypeAlias

import networkx as nx
import orjson

from tidegauge.diagnose.competency_scores import CompetencyScore, overall_scores
from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep, fields_of
from tidegauge.diagnose.report.word_clouds import Embedder, action_map, tf_idf, word_clouds
from tidegauge.streaming_metrics import AUV, GroupKey, GroupSnapshot, LoopRatio, SuccessCurve
from tidegauge.streaming_metrics.contrast import contrast, student_quantile

PARTS: Final = 10
"""Parts of equal length into which a run is divided."""

_LEAST_GROUPS: Final = 3


def exploration_fractions(runs: Sequence[ReportedRun]) -> list[float | None] | None:
    """Share of the steps that entered a new place, in each tenth of the runs (E&E, figure 4a).

    Runs that report no places are left out; ``None`` if all are.
    """
    entered, steps = [0] * PARTS, [0] * PARTS
    for run in runs:
        if run.report.frontier is None:
            continue
        for index, new in enumerate(_new_places(run)):
            part = index * PARTS // len(run.steps)
            steps[part] += 1
            entered[part] += new
    if not any(steps):
        return None
    return [new / of if of else None for new, of in zip(entered, steps, strict=True)]


def _new_places(run: ReportedRun) -> list[bool]:
    """Whether each step led to a place where the run had not been."""
    seen: set[str] = set()
    first = []
    for step in run.steps:
        first.append(step.place not in seen)
        seen.add(step.place)
    # A step has the place before it, so the next step shows where it led. Where the last one led is
    # known from the number of places.
    last = (run.report.distinct_places or 0) > len(seen)
    return [*first[1:], last] if first else []


def error_fits(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How the success rate depends on the logarithm of an error (E&E, figure 1).

    A straight line through the agents of a task group, or their memory arms, by least squares:
    success = slope x log10(error) + intercept, and the share R2 of the variance that it explains.
    Groups without an error, or with one of 0, are left out, because they have no logarithm. At
    least three groups with different errors are needed.
    """
    fits = []
    for task_group in dict.fromkeys(group["task_group"] for group in groups):
        own = [group for group in groups if group["task_group"] == task_group]
        for kind in ("exploration_error", "exploitation_error"):
            points = [
                (math.log10(group[kind]), group["success_rate"])
                for group in own
                if group[kind] and group["success_rate"] is not None
            ]
            errors = [error for error, _ in points]
            if len(points) < _LEAST_GROUPS or len(set(errors)) == 1:
                continue
            rates = [rate for _, rate in points]
            line = statistics.linear_regression(errors, rates)
            flat = len(set(rates)) == 1
            fits.append(
                {
                    "task_group": task_group,
                    "error": kind.removesuffix("_error"),
                    "groups": len(points),
                    "slope": line.slope,
                    "intercept": line.intercept,
                    "r2": None if flat else statistics.correlation(errors, rates) ** 2,
                }
            )
    return fits


_ON, _OFF = "on", "off"


def profiles(groups: Iterable[GroupSnapshot]) -> list[dict[str, Any]]:
    """AUV, 1 - loop ratio and memory index of each agent, also from 0 to 1 within its task group.

    An axis goes from the lowest to the highest agent of the task group; it is ``None`` where it was
    not measured, or where all agents are equal. Only task groups of several agents have profiles.

    Source: TIDE (arXiv 2602.02196), figure 9 and appendix C.6.
    """
    agents: dict[tuple[str, str], list[GroupSnapshot]] = {}
    for group in groups:
        agents.setdefault((group.key.task_group, group.key.agent), []).append(group)
    rows: dict[str, list[dict[str, Any]]] = {}
    for (task_group, agent), members in agents.items():
        rows.setdefault(task_group, []).append(
            {"task_group": task_group, "agent": agent, **_measured(members)}
        )
    several = [own for own in rows.values() if len(own) > 1]
    for own in several:
        for axis in ("auv", "no_loops", "memory_index"):
            known = [row[axis] for row in own if row[axis] is not None]
            low, high = min(known, default=0.0), max(known, default=0.0)
            for row in own:
                value = row[axis]
                flat = value is None or high == low
                row[f"{axis}_scaled"] = None if flat else (value - low) / (high - low)
    return [row for own in several for row in own]


def memory_pairs(groups: Iterable[GroupSnapshot]) -> list[dict[str, Any]]:
    """The difference in AUV of any two memory arms of an agent in a task group, with its interval.

    Of the arms ``on`` and ``off`` it is the memory index. There may be others, such as window
    sizes.
    """
    arms: dict[tuple[str, str], dict[str, AUV]] = {}
    for group in groups:
        if group.key.memory is not None:
            own = arms.setdefault((group.key.task_group, group.key.agent), {})
            own[group.key.memory] = group.finished.of(AUV)
    return [
        {
            "task_group": task_group,
            "agent": agent,
            "arm": arm,
            "against": against,
            "auv": own[arm].value,
            "auv_against": own[against].value,
            "value": difference.value,
            "low": difference.low,
            "high": difference.high,
        }
        for (task_group, agent), own in arms.items()
        for arm, against in _pairs(own)
        if (difference := contrast(own[arm], own[against])) is not None
    ]


def _pairs(arms: Iterable[str]) -> list[tuple[str, str]]:
    """All pairs of arms; the arm without memory comes second."""
    ordered = sorted(arms, key=lambda arm: (arm == _OFF, arm))
    return list(combinations(ordered, 2))


def _measured(groups: list[GroupSnapshot]) -> dict[str, float | None]:
    """The axes of an agent, over its memory arms."""
    auv, arms = AUV(), {}
    for group in groups:
        own = group.finished.of(AUV)
        auv.merge(own)
        arms[group.key.memory] = own
    steps = sum(group.totals.steps for group in groups)
    loop_steps = sum(sum(group.totals.loop_steps.values()) for group in groups)
    index = contrast(arms[_ON], arms[_OFF]) if {_ON, _OFF} <= arms.keys() else None
    return {
        "auv": auv.value,
        "no_loops": 1 - loop_steps / steps if steps else None,
        "memory_index": None if index is None else index.value,
    }


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
        groups: all groups, with their entries of ``replay --json``.
        memory_index: as in ``replay --json``.
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


_SCRIPTS: Final = (
    "text.js",
    "store.js",
    "selection.js",
    "address.js",
    "find.js",
    "charts.js",
    "tables.js",
    "overview.js",
    "runs.js",
    "patterns.js",
    "scores.js",
    "run.js",
    "compare.js",
    "report.js",
)
"""Classic scripts, in the order of their dependencies."""

_MAPS_STYLE: Final = re.compile(
    r'getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)
"""The chart library adds a style sheet for geographic maps, unless an element with this id exists.
The page draws no such maps, and the policy would forbid the style sheet."""

_POLICY: Final = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "img-src data: blob:",
)


def page(data: Mapping[str, Any], lines: Iterable[bytes]) -> str:
    """The page as text, of the result of :func:`contents` and the lines of all runs."""
    library = _plotly()
    scripts = [_shared("theme.js"), *(_own(name) for name in _SCRIPTS)]
    style = _shared("theme.css") + _own("report.css")
    policy = "; ".join(
        [
            *_POLICY,
            # The chart library adds an empty style sheet and fills it by script.
            f"style-src {_hash(style)} {_hash('')}",
            f"script-src {' '.join(_hash(script) for script in (library, *scripts))}",
        ]
    )
    parts = {
        "policy": policy,
        "style": style,
        "styled": "".join(f'<meta id="{name}" />' for name in _MAPS_STYLE.findall(library)),
        "library": _packed(library.encode()),
        "data": _packed(orjson.dumps(data, default=str)),
        "lines": _packed(b"\n".join(lines)),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    text = _own("report.html")
    for name, part in parts.items():
        before, mark, after = text.partition(f"<!-- {name} -->")
        assert mark, name  # noqa: S101
        text = before + part + after
    return text


def _packed(data: bytes) -> str:
    """Compressed and base64-encoded, so that it contains no markup."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _shared(name: str) -> str:
    """A file that the live page has, too."""
    return files("tidegauge._web").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The chart library, from the package plotly."""
    found = files("plotly").joinpath("package_data", "plotly.min.js")
    return found.read_text(encoding="utf-8").replace("\r\n", "\n")
