"""Decisions: a run's signals against lines that a policy draws."""

from tidegauge.policies.advice import advise
from tidegauge.policies.policy import DEFAULT_RULES, Policy, Rule, parse_rules

__all__ = ["DEFAULT_RULES", "Policy", "Rule", "advise", "parse_rules"]
