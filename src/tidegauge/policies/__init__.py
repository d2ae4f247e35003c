"""Policies: rules that people set, and thresholds learned from successful runs.

- :class:`Rule`, :class:`Threshold`, :class:`Budget` and :class:`Breaker` define actions; a
  :class:`Policy` combines them.
- :data:`SCORES` can have thresholds; :func:`calibrate` learns them from successful runs.
- :mod:`~tidegauge.policies.backtesting` shows what they would have done to recorded runs; it is
  imported separately, because it needs numpy.
- :func:`read_score` reads a score that was learned from recorded runs;
  :mod:`~tidegauge.policies.learning`, which learns one, is imported separately, too.
- :func:`read_policy` and :func:`write_policy` read and write a policy's file.
"""

from tidegauge.policies.breaker import Breaker
from tidegauge.policies.budget import Budget
from tidegauge.policies.calibration import (
    CalibratedGroup,
    Guarantee,
    calibrate,
)
from tidegauge.policies.learned_score import LearnedScore, read_score
from tidegauge.policies.live_limits import LiveLimits
from tidegauge.policies.live_policy import LivePolicy, RunPolicy, advise
from tidegauge.policies.policy import Policy
from tidegauge.policies.policy_file import PolicyFile, read_policy, run_mark, write_policy
from tidegauge.policies.rule import DEFAULT_RULES, Guard, Rule, guard_rules, parse_rules, with_guard
from tidegauge.policies.shift import Crossings
from tidegauge.policies.thresholds import (
    SCORES,
    Score,
    Threshold,
    Thresholds,
    score_named,
    score_of,
)
from tidegauge.policies.trace import RunTrace, TraceSink
from tidegauge.streaming_metrics.stagnation import STAGNATION_WEIGHTS

__all__ = [
    "DEFAULT_RULES",
    "SCORES",
    "STAGNATION_WEIGHTS",
    "Breaker",
    "Budget",
    "CalibratedGroup",
    "Crossings",
    "Guarantee",
    "Guard",
    "LearnedScore",
    "LiveLimits",
    "LivePolicy",
    "Policy",
    "PolicyFile",
    "Rule",
    "RunPolicy",
    "RunTrace",
    "Score",
    "Threshold",
    "Thresholds",
    "TraceSink",
    "advise",
    "calibrate",
    "guard_rules",
    "parse_rules",
    "read_policy",
    "read_score",
    "run_mark",
    "score_named",
    "score_of",
    "with_guard",
    "write_policy",
]
