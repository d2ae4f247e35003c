"""Decisions: a run's signals against rules that people set and lines learned from good runs.

- :class:`Rule` and :class:`Line` say what follows when; a :class:`Policy` joins them.
- :data:`SCORES` are what lines are drawn for; :func:`calibrate` learns them from good runs.
- :mod:`~tidegauge.policies.backtest` tells beforehand what they would have done to recorded
  runs; it is imported by itself, with numpy.
- :func:`read_policy` and :func:`write_policy` keep a policy in a file.
"""

from tidegauge.policies.advice import advise
from tidegauge.policies.calibration import (
    CalibratedGroup,
    calibrate,
    conformal_line,
    conformal_rank,
    least_runs,
    promised,
)
from tidegauge.policies.crossings import Crossings
from tidegauge.policies.line import Line
from tidegauge.policies.lines import Lines
from tidegauge.policies.policy import Policy
from tidegauge.policies.policy_file import PolicyFile, read_policy, run_mark, write_policy
from tidegauge.policies.rule import DEFAULT_RULES, Rule, parse_rules
from tidegauge.policies.scores import SCORES, STAGNATION_WEIGHTS, Score, score_named
from tidegauge.policies.trace import RunTrace, TraceSink

__all__ = [
    "DEFAULT_RULES",
    "SCORES",
    "STAGNATION_WEIGHTS",
    "CalibratedGroup",
    "Crossings",
    "Line",
    "Lines",
    "Policy",
    "PolicyFile",
    "Rule",
    "RunTrace",
    "Score",
    "TraceSink",
    "advise",
    "calibrate",
    "conformal_line",
    "conformal_rank",
    "least_runs",
    "parse_rules",
    "promised",
    "read_policy",
    "run_mark",
    "score_named",
    "write_policy",
]
