"""Premature halts: runs that gave up while there was something left to do."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupDeclaration,
    GroupView,
    Measured,
    MetricValue,
    counts,
)
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun

CutShort: TypeAlias = Literal["budget", "policy", "error"]
"""What ended a run that did not give up: its budget, the stop of a policy, or an exception."""

_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_BUDGETS: Final = frozenset({"budget", "length", "recursion", "timeout"})
_LIMITS: Final = frozenset({"exceeded", "limit", "max", "maximum", "out"})
_LIMITED: Final = frozenset(
    name + plural
    for name in ("call", "iteration", "round", "step", "time", "token", "turn")
    for plural in ("", "s")
)


def _names_a_budget(reason: str) -> bool:
    """Whether a reason does, such as ``max_steps``, ``token limit`` or ``GraphRecursionError``."""
    words = {word.lower() for word in _WORD.findall(reason)}
    return bool(words & _BUDGETS) or bool(words & _LIMITS and words & _LIMITED)


def _left_work(run: FinishedRun) -> bool | None:
    """Whether it ended without success while places or tasks were left; ``None``, not known."""
    if run.success is None or (run.frontier is None and run.pending is None):
        return None
    return not run.success and bool(run.frontier or run.pending)


def cut_short(run: FinishedRun) -> CutShort | None:
    """What ended a run without success while places or tasks were left, if not the agent itself.

    Its budget is its ``t_max``, or what the reason of its end names.

    >>> cut_short(FinishedRun(False, steps=20, t_max=20, frontier=2))
    'budget'
    >>> cut_short(FinishedRun(False, 9, "error", "GraphRecursionError", pending=1))
    'budget'
    >>> cut_short(FinishedRun(False, steps=9, outcome="stopped", pending=1))
    'policy'
    >>> cut_short(FinishedRun(False, steps=9, t_max=20, frontier=2)) is None
    True
    """
    if not _left_work(run):
        return None
    if run.outcome == "stopped":
        return "policy"
    spent = run.t_max is not None and run.steps >= run.t_max
    if spent or (run.reason is not None and _names_a_budget(run.reason)):
        return "budget"
    return "error" if run.outcome == "error" else None


def premature_halt(run: FinishedRun) -> bool | None:
    """Whether the agent gave up: it ended the run without success, with places or tasks left.

    ``None`` while neither frontier nor pending tasks were measured, or it is not known whether the
    run succeeded.

    >>> premature_halt(FinishedRun(False, steps=4, frontier=2, pending=0))
    True
    >>> premature_halt(FinishedRun(False, steps=4, t_max=4, frontier=2))
    False
    >>> premature_halt(FinishedRun(False, steps=4)) is None
    True
    """
    left = _left_work(run)
    return left if left is None else left and cut_short(run) is None


class PrematureHalts(GroupMetric):
    """Runs whose agents gave up while the frontier or the pending tasks were not empty.

    The share of such runs, and how much they left. A run that its budget, a policy or an exception
    ended did not give up; it is counted by what cut it short. O(1) time and memory.

    Source: LORE (The Agent's Marathon), section 4.4; frontier and pending tasks as in
    Exploration and Exploitation Errors (arXiv 2604.13151), section 4.

    Attributes:
        runs: runs of which it is known.
        halts: those that halted prematurely.
        frontier_left: places that these left unvisited.
        pending_left: ready tasks that they left.
        displaced_leads: of the places left, those that newer ones had displaced.

    >>> halts = PrematureHalts()
    >>> halts.update(FinishedRun(False, steps=4, frontier=3, pending=1))
    >>> halts.update(FinishedRun(True, steps=9, frontier=5, pending=0))
    >>> halts.update(FinishedRun(False, steps=9, t_max=9, frontier=5, pending=0))
    >>> round(halts.value, 3), halts.frontier_left, halts.pending_left, halts.cut_short
    (0.333, 3, 1, {'budget': 1})
    """

    version: ClassVar[int] = 2
    __slots__ = ("_cut", "displaced_leads", "frontier_left", "halts", "pending_left", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.halts = 0
        self.frontier_left = 0
        self.pending_left = 0
        self.displaced_leads = 0
        self._cut: dict[str, int] = {}

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        halted = premature_halt(step)
        if halted is None:
            return
        self.runs += 1
        if halted:
            self.halts += 1
            self.frontier_left += step.frontier or 0
            self.pending_left += step.pending or 0
            self.displaced_leads += step.displaced_leads or 0
        elif (what := cut_short(step)) is not None:
            self._cut[what] = self._cut.get(what, 0) + 1

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.runs += other.runs
        self.halts += other.halts
        self.frontier_left += other.frontier_left
        self.pending_left += other.pending_left
        self.displaced_leads += other.displaced_leads
        for what, count in other._cut.items():
            self._cut[what] = self._cut.get(what, 0) + count

    @property
    def cut_short(self) -> dict[str, int]:
        """Runs with places or tasks left that did not give up, by what ended them."""
        return dict(self._cut)

    @property
    def value(self) -> float | None:
        """Premature halts / runs of which it is known, 0 to 1; ``None`` without any."""
        return self.halts / self.runs if self.runs else None


PREMATURE_HALTS: Final = MetricDefinition(
    "tidegauge_premature_halts_total",
    "counter",
    "runs",
    "Runs whose agents gave up: they ended by themselves, without success, with "
    "places unvisited or tasks ready.",
)
HALT_RUNS: Final = MetricDefinition(
    "tidegauge_halt_runs_total",
    "counter",
    "runs",
    "Finished runs of which it is known whether they succeeded and what they left: those that "
    "premature halts and runs cut short are a share of.",
)
CUT_SHORT_RUNS: Final = MetricDefinition(
    "tidegauge_cut_short_runs_total",
    "counter",
    "runs",
    "Runs that a budget, a policy or an error (an exception) ended, without success, "
    "with places unvisited or tasks ready.",
    labels=(*GROUP_LABELS, "by"),
    values=("budget", "policy", "error"),
)


def _halts(group: GroupView) -> int | None:
    halts: int = group.finished.of(PrematureHalts).halts
    return halts if group.placed else None


def _runs(group: GroupView) -> int | None:
    runs: int = group.finished.of(PrematureHalts).runs
    return runs if group.placed else None


def _cut_short(group: GroupView) -> MetricValue:
    found = group.finished.of(PrematureHalts).cut_short
    return counts(found, known=CUT_SHORT_RUNS.values) if group.placed else None


DECLARATION: Final[Declaration[Any]] = Declaration(
    name="premature_halt",
    absent={"premature_halt": None, "cut_short": None},
    report=lambda run, _: {
        "premature_halt": None if run.ended is None else premature_halt(run.ended),
        "cut_short": None if run.ended is None else cut_short(run.ended),
    },
    document=lambda report: {
        "premature_halt": report.premature_halt,
        "cut_short": report.cut_short,
    },
)

OF_GROUPS: Final = GroupDeclaration(
    name="premature_halts",
    kind=PrematureHalts,
    of_group=(
        Measured(PREMATURE_HALTS, _halts),
        Measured(HALT_RUNS, _runs),
        Measured(CUT_SHORT_RUNS, _cut_short),
    ),
)
