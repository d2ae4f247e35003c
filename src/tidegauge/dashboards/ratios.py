"""Every ratio that is shown, recorded or alerted on: two counters each.

A ratio is the sum of one counter's rates over the sum of another's, which is right over any
number of processes. Where nothing was counted, it is absent, never 0 and never NaN: one NaN would
make every later average over it one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.dashboards.queries import Scope, total

__all__ = [
    "AUV",
    "BACKTRACK_RATIO",
    "BEHAVIOR_ERROR",
    "CROSSED_RATIO",
    "CYCLE_RATIO",
    "ENDURANCE",
    "JUDGED_SCORE",
    "LOOP_RATIO",
    "LOOP_TIME_RATIO",
    "LOW_SCORES",
    "MEAN_STEP_SECONDS",
    "PREMATURE_HALT_RATIO",
    "RATIOS",
    "SUCCESS_RATE",
    "Ratio",
    "Term",
    "auv_bound",
    "loop_action_share",
    "memory_index",
    "ratio",
    "success_curve",
]


class Term(NamedTuple):
    """A counter of a ratio, and which of its series."""

    metric: MetricDefinition
    matchers: tuple[str, ...] = ()
    suffix: str = ""

    def rate(self, scope: Scope, by: Sequence[str], *more: str) -> str:
        """The sum of its rates."""
        return total(scope.rate(self.metric, *self.matchers, *more, suffix=self.suffix), by)


class Ratio(NamedTuple):
    """One counter over another.

    Attributes:
        name: as in the names of recording rules.
        part: what is counted.
        whole: out of what.
        window: over which it is recorded: minutes for what happens at every step, an hour for
            what happens once a run.
        labels: what it is always told by, beside what is asked for.
    """

    name: str
    part: Term
    whole: Term
    window: str
    labels: tuple[str, ...] = ()


_KNOWN_RUNS: Final = Term(catalog.RUNS_FINISHED, ('outcome!="unknown"',))
_SOLVED_RUNS: Final = Term(catalog.RUNS_FINISHED, ('outcome="success"',))
_STEPS: Final = Term(catalog.STEPS)
_STEP_SECONDS: Final = Term(catalog.STEP_DURATION, suffix="_sum")

LOOP_RATIO: Final = Ratio("loop_ratio", Term(catalog.LOOP_STEPS), _STEPS, "5m")
CYCLE_RATIO: Final = Ratio("cycle_ratio", Term(catalog.CYCLE_STEPS), _STEPS, "5m")
BACKTRACK_RATIO: Final = Ratio("backtrack_ratio", Term(catalog.BACKTRACKS), _STEPS, "5m")
LOOP_TIME_RATIO: Final = Ratio("loop_time_ratio", Term(catalog.LOOP_SECONDS), _STEP_SECONDS, "5m")
MEAN_STEP_SECONDS: Final = Ratio(
    "mean_step_seconds", _STEP_SECONDS, Term(catalog.STEP_DURATION, suffix="_count"), "5m"
)
BEHAVIOR_ERROR: Final = Ratio(
    "behavior_error",
    Term(catalog.BEHAVIOR_ERRORS),
    Term(catalog.BEHAVIOR_REQUIRED_STEPS),
    "5m",
    ("kind",),
)
SUCCESS_RATE: Final = Ratio("success_rate", _SOLVED_RUNS, _KNOWN_RUNS, "1h")
AUV: Final = Ratio("auv", Term(catalog.AUV_SUM), Term(catalog.AUV_RUNS), "1h")
PREMATURE_HALT_RATIO: Final = Ratio(
    "premature_halt_ratio", Term(catalog.PREMATURE_HALTS), Term(catalog.RUNS_FINISHED), "1h"
)
ENDURANCE: Final = Ratio(
    "endurance",
    Term(catalog.HORIZON_SOLVED_RUNS),
    Term(catalog.HORIZON_RUNS),
    "1h",
    ("operations",),
)
CROSSED_RATIO: Final = Ratio(
    "crossed_ratio",
    Term(catalog.POLICY_CROSSED_RUNS, ('outcome="success"',)),
    Term(catalog.POLICY_RUNS, ('outcome="success"',)),
    "1h",
    ("score",),
)
"""Of successful runs, those that crossed their calibrated line. Shown, not recorded."""
_JUDGED: Final = Term(catalog.JUDGED_SCORE, suffix="_count")
JUDGED_SCORE: Final = Ratio(
    "judged_score", Term(catalog.JUDGED_SCORE, suffix="_sum"), _JUDGED, "1h", ("competency",)
)
"""The mean score of a competency. Shown, not recorded."""
LOW_SCORES: Final = Ratio(
    "low_scores",
    Term(catalog.JUDGED_SCORE, ('le="2.0"',), "_bucket"),
    _JUDGED,
    "1h",
    ("competency",),
)
"""Of the scores of a competency, those of 1 and 2. Shown, not recorded."""

RATIOS: Final = (
    LOOP_RATIO,
    CYCLE_RATIO,
    BACKTRACK_RATIO,
    LOOP_TIME_RATIO,
    MEAN_STEP_SECONDS,
    BEHAVIOR_ERROR,
    SUCCESS_RATE,
    AUV,
    PREMATURE_HALT_RATIO,
    ENDURANCE,
)
"""Those that are recorded."""


def ratio(of: Ratio, scope: Scope, by: Sequence[str] = (), *matchers: str) -> str:
    """The ratio within a scope, one value for each value of ``by`` and of its own labels.

    >>> print(ratio(CYCLE_RATIO, Scope("5m"), ["agent"]))
    sum by (agent) (rate(tidegauge_cycle_steps_total[5m]))
      / (sum by (agent) (rate(tidegauge_steps_total[5m])) > 0)
    """
    kept = (*by, *(label for label in of.labels if label not in by))
    part, whole = (term.rate(scope, kept, *matchers) for term in (of.part, of.whole))
    return f"{part}\n  / ({whole} > 0)"


def memory_index(scope: Scope, by: Sequence[str] = ()) -> str:
    """AUV with memory minus AUV without: what the memory is worth.

    >>> memory_index(Scope("1h")).count("tidegauge_auv_sum_total")
    2
    """
    on, off = (ratio(AUV, scope, by, f'memory="{arm}"') for arm in ("on", "off"))
    return f"{on}\n- {off}"


def auv_bound(bound: MetricDefinition, scope: Scope) -> str:
    """What AUV can still end at over all groups: the bounds of each, weighted by its runs.

    Exact where all runs of a group tell a t_max and whether they succeeded.

    Args:
        bound: the lower or the upper one.
        scope: which groups.
    """
    of_group, runs = scope.series(bound), scope.series(catalog.RUNS_STARTED)
    return f"sum({of_group} * {runs})\n  / (sum({runs} and {of_group}) > 0)"


def success_curve(scope: Scope, *, upto: str = "") -> str:
    """P_t: the share of runs that were solved within t turns, for every t that has a bucket.

    Args:
        scope: which runs.
        upto: a matcher of ``le``, for some points of the curve only.
    """
    solved = Term(catalog.SUCCESS_TURN, (upto,) if upto else (), "_bucket").rate(scope, ("le",))
    return f"{solved}\n  / on () group_left () ({_KNOWN_RUNS.rate(scope, ())} > 0)"


def loop_action_share(scope: Scope) -> str:
    """Of all loop steps, the share of each action."""
    loops = LOOP_RATIO.part
    return (
        f"{loops.rate(scope, ('action',))}\n  / on () group_left () ({loops.rate(scope, ())} > 0)"
    )
