"""Every ratio that is shown, recorded or alerted on, and the recording rules.

A ratio is the sum of one counter's rates over the sum of another's, which is correct for any
number of processes. Without data a ratio is absent, never 0 or NaN: one NaN would turn every later
average into NaN. Recorded names follow Prometheus: level:metric:operation. The usual values that
alerts compare with are recorded, too, so that no alert reads the samples of a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dashboards.queries import GROUP, QueryScope, total
from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.auv import AUV_RUNS, AUV_SUM
from tidegauge.streaming_metrics.entropy_split import ACTION_ENTROPY_STEPS, ACTION_ENTROPY_SUM
from tidegauge.streaming_metrics.exploration import BEHAVIOR_ERRORS, BEHAVIOR_REQUIRED_STEPS
from tidegauge.streaming_metrics.horizon import HORIZON_RUNS, HORIZON_SOLVED_RUNS
from tidegauge.streaming_metrics.loop_cost import LOOP_SECONDS
from tidegauge.streaming_metrics.loops import LOOP_STEPS
from tidegauge.streaming_metrics.navigation import BACKTRACKS
from tidegauge.streaming_metrics.novelty import NEW_RESULTS, RESULTS
from tidegauge.streaming_metrics.premature_halt import CUT_SHORT_RUNS, HALT_RUNS, PREMATURE_HALTS
from tidegauge.streaming_metrics.recurrence import RECURRING_RESULTS
from tidegauge.streaming_metrics.repetition import REPEATED_STEPS
from tidegauge.streaming_metrics.run_counts import RUNS_FINISHED, RUNS_STARTED, STEP_DURATION, STEPS
from tidegauge.streaming_metrics.success import SUCCESS_TURN
from tidegauge.streaming_metrics.tide_loops import TIDE_CYCLE_STEPS, TIDE_LOOP_STEPS


class Term(NamedTuple):
    """A counter of a ratio, and its series."""

    metric: MetricDefinition
    matchers: tuple[str, ...] = ()
    suffix: str = ""

    def rate(self, scope: QueryScope, by: Sequence[str], *more: str) -> str:
        """The sum of the counter's rates; in dashboards, of its increases, which are exact."""
        rate = scope.increase if scope.window.startswith("$") else scope.rate
        return total(rate(self.metric, *self.matchers, *more, suffix=self.suffix), by)


class Ratio(NamedTuple):
    """One counter over another.

    Attributes:
        name: as in the names of recording rules.
        part: the numerator.
        whole: the denominator.
        window: time window of the recording: minutes for counters of steps, an hour for counters
            of runs.
        labels: labels that the ratio always keeps.
    """

    name: str
    part: Term
    whole: Term
    window: str
    labels: tuple[str, ...] = ()


_KNOWN_RUNS: Final = Term(RUNS_FINISHED, ('outcome!="unknown"',))
_SOLVED_RUNS: Final = Term(RUNS_FINISHED, ('outcome="success"',))
_STEPS: Final = Term(STEPS)
_STEP_SECONDS: Final = Term(STEP_DURATION, suffix="_sum")

LOOP_RATIO: Final = Ratio("loop_ratio", Term(LOOP_STEPS), _STEPS, "5m")
TIDE_LOOP_RATIO: Final = Ratio("tide_loop_ratio", Term(TIDE_LOOP_STEPS), _STEPS, "5m")
TIDE_CYCLE_RATIO: Final = Ratio("tide_cycle_ratio", Term(TIDE_CYCLE_STEPS), _STEPS, "5m")
BACKTRACK_RATIO: Final = Ratio("backtrack_ratio", Term(BACKTRACKS), _STEPS, "5m")
REPETITION_RATIO: Final = Ratio("repetition_ratio", Term(REPEATED_STEPS), _STEPS, "5m")
NOVELTY_RATIO: Final = Ratio("novelty", Term(NEW_RESULTS), Term(RESULTS), "5m")
RECURRENCE_RATIO: Final = Ratio("recurrence_ratio", Term(RECURRING_RESULTS), Term(RESULTS), "5m")
ACTION_ENTROPY: Final = Ratio(
    "action_entropy", Term(ACTION_ENTROPY_SUM), Term(ACTION_ENTROPY_STEPS), "1h", ("steps",)
)
"""Nats per token. Not recorded."""
LOOP_TIME_RATIO: Final = Ratio("loop_time_ratio", Term(LOOP_SECONDS), _STEP_SECONDS, "5m")
MEAN_STEP_SECONDS: Final = Ratio(
    "mean_step_seconds", _STEP_SECONDS, Term(STEP_DURATION, suffix="_count"), "5m"
)
BEHAVIOR_ERROR: Final = Ratio(
    "behavior_error",
    Term(BEHAVIOR_ERRORS),
    Term(BEHAVIOR_REQUIRED_STEPS),
    "5m",
    ("kind",),
)
SUCCESS_RATE: Final = Ratio("success_rate", _SOLVED_RUNS, _KNOWN_RUNS, "1h")
AUV: Final = Ratio("auv", Term(AUV_SUM), Term(AUV_RUNS), "1h")
CUT_SHORT_RATIO: Final = Ratio("cut_short_ratio", Term(CUT_SHORT_RUNS), Term(HALT_RUNS), "1h")
PREMATURE_HALT_RATIO: Final = Ratio(
    "premature_halt_ratio", Term(PREMATURE_HALTS), Term(HALT_RUNS), "1h"
)
ENDURANCE: Final = Ratio(
    "endurance",
    Term(HORIZON_SOLVED_RUNS),
    Term(HORIZON_RUNS),
    "1h",
    ("operations",),
)
EXCEEDED_RATIO: Final = Ratio(
    "exceeded_ratio",
    Term(catalog.POLICY_CROSSED_RUNS, ('outcome="success"',)),
    Term(catalog.POLICY_RUNS, ('outcome="success"',)),
    "1h",
    ("score",),
)
"""Share of the successful runs that exceeded their calibrated threshold. Not recorded."""
_JUDGED: Final = Term(catalog.JUDGED_SCORE, suffix="_count")
JUDGED_SCORE: Final = Ratio(
    "judged_score", Term(catalog.JUDGED_SCORE, suffix="_sum"), _JUDGED, "1h", ("competency",)
)
"""The mean score of a competency. Not recorded."""
LOW_SCORES: Final = Ratio(
    "low_scores",
    Term(catalog.JUDGED_SCORE, ('le="2.0"',), "_bucket"),
    _JUDGED,
    "1h",
    ("competency",),
)
"""Share of the scores 1 and 2 of a competency. Not recorded."""

RATIOS: Final = (
    LOOP_RATIO,
    TIDE_LOOP_RATIO,
    TIDE_CYCLE_RATIO,
    BACKTRACK_RATIO,
    REPETITION_RATIO,
    NOVELTY_RATIO,
    RECURRENCE_RATIO,
    LOOP_TIME_RATIO,
    MEAN_STEP_SECONDS,
    BEHAVIOR_ERROR,
    SUCCESS_RATE,
    AUV,
    CUT_SHORT_RATIO,
    PREMATURE_HALT_RATIO,
    ENDURANCE,
)
"""The recorded ratios."""


def ratio(of: Ratio, scope: QueryScope, by: Sequence[str] = (), *matchers: str) -> str:
    """The ratio within a scope, by the labels ``by`` and those of the ratio.

    >>> print(ratio(TIDE_CYCLE_RATIO, QueryScope("5m"), ["agent"]))
    sum by (agent) (rate(tidegauge_tide_cycle_steps_total[5m]))
      / (sum by (agent) (rate(tidegauge_steps_total[5m])) > 0)
    """
    kept = (*by, *(label for label in of.labels if label not in by))
    part, whole = (term.rate(scope, kept, *matchers) for term in (of.part, of.whole))
    return f"{part}\n  / ({whole} > 0)"


def memory_index(scope: QueryScope, by: Sequence[str] = ()) -> str:
    """AUV with memory minus AUV without.

    >>> memory_index(QueryScope("1h")).count("tidegauge_auv_sum_total")
    2
    """
    on, off = (ratio(AUV, scope, by, f'memory="{arm}"') for arm in ("on", "off"))
    return f"{on}\n- {off}"


def auv_bound(bound: MetricDefinition, scope: QueryScope) -> str:
    """A bound of AUV over all groups: the mean of the groups' bounds, weighted by runs.

    Exact when all runs of a group report a t_max and their success.

    Args:
        bound: the metric of the lower or the upper bound.
        scope: selects the groups.
    """
    of_group, runs = scope.series(bound), scope.series(RUNS_STARTED)
    return f"sum({of_group} * {runs})\n  / (sum({runs} and {of_group}) > 0)"


def success_curve(scope: QueryScope, *, upto: str = "") -> str:
    """P_t: the share of runs that succeeded within t turns, for every t that has a bucket.

    Args:
        scope: selects the runs.
        upto: a matcher of ``le`` to select points of the curve.
    """
    solved = Term(SUCCESS_TURN, (upto,) if upto else (), "_bucket").rate(scope, ("le",))
    return f"{solved}\n  / on () group_left () ({_KNOWN_RUNS.rate(scope, ())} > 0)"


def loop_action_share(scope: QueryScope) -> str:
    """The share of each action in all loop steps."""
    loops = LOOP_RATIO.part
    return (
        f"{loops.rate(scope, ('action',))}\n  / on () group_left () ({loops.rate(scope, ())} > 0)"
    )


_PREFIX: Final = "tidegauge"
_BY_GROUP: Final = "_".join(GROUP)

USUAL: Final = QueryScope("1d", offset="1h")
"""A day, up to an hour ago, so that current trouble is not part of what is usual."""


class RecordingRule(NamedTuple):
    """A recording rule."""

    name: str
    expression: str


def recorded(of: Ratio) -> str:
    """The name of the series that records a ratio by agent and task group.

    >>> recorded(LOOP_RATIO)
    'agent_task_group:tidegauge_loop_ratio:rate5m'
    """
    return f"{_BY_GROUP}:{_PREFIX}_{of.name}:rate{of.window}"


USUAL_LOOP_RATIO: Final = RecordingRule(
    f"{_BY_GROUP}:{_PREFIX}_{LOOP_RATIO.name}:p95_{USUAL.window}",
    f"quantile_over_time(0.95, {recorded(LOOP_RATIO)}[{USUAL.window}] offset {USUAL.offset})",
)
"""The p95 of a group's loop ratio over a day."""

USUAL_SUCCESS_RATE: Final = RecordingRule(
    f"{_BY_GROUP}:{_PREFIX}_{SUCCESS_RATE.name}:rate{USUAL.window}",
    ratio(SUCCESS_RATE, USUAL, GROUP),
)
"""The success rate of a group over a day."""


def recording_groups() -> list[dict[str, Any]]:
    """The rule groups for Prometheus."""
    ratios = [
        record
        for of in RATIOS
        for record in (
            RecordingRule(recorded(of), ratio(of, QueryScope(of.window), GROUP)),
            RecordingRule(
                f"fleet:{_PREFIX}_{of.name}:rate{of.window}", ratio(of, QueryScope(of.window))
            ),
        )
    ]
    memory = [
        RecordingRule(
            f"{_BY_GROUP}:{_PREFIX}_memory_index:rate1h", memory_index(QueryScope("1h"), GROUP)
        ),
        RecordingRule(f"fleet:{_PREFIX}_memory_index:rate1h", memory_index(QueryScope("1h"))),
    ]
    usual = [USUAL_LOOP_RATIO, USUAL_SUCCESS_RATE]
    return [
        {"name": "tidegauge-ratios", "rules": [_rule(record) for record in [*ratios, *memory]]},
        {"name": "tidegauge-usual", "interval": "2m", "rules": [_rule(record) for record in usual]},
    ]


def _rule(record: RecordingRule) -> dict[str, str]:
    return {"record": record.name, "expr": record.expression}
