"""Separation: how well each metric distinguishes failed from solved runs, step by step.

AUC: the probability that a failed run has the higher value than a solved one, of runs of the same
task group and agent that have completed so many steps; 0.5 is chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.evidence.recorded import Family

__all__ = ["METRICS", "STEPS", "separation"]

STEPS: Final = (5, 10, 20)
METRICS: Final = (
    "stagnation",
    "repetition",
    "similarity",
    "loop_repeats",
    "result_streak",
    "failed_rounds",
    "recurrence",
    "staleness",
    "stale_score",
)
LEAST: Final = 10
"""How many solved and failed runs a group needs at that step."""
_RESAMPLES: Final = 400


def auc(values: NDArray[np.float64], failed: NDArray[np.bool_]) -> float:
    """The share of pairs of a failed and a solved run in which the failed one is higher."""
    bad = int(failed.sum())
    good = len(failed) - bad
    if not bad or not good:
        return float("nan")
    ranks = rankdata(values)
    return float((ranks[failed].sum() - bad * (bad + 1) / 2) / (bad * good))


def separation(families: Sequence[Family]) -> list[dict[str, Any]]:
    """The mean AUC over the groups, for each metric and step, with a 95% bootstrap interval."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for step in STEPS:
        groups = [
            (family, runs)
            for family in families
            for agent in dict.fromkeys(family.agents)
            if _enough(family, runs := _completed(family, str(agent), step))
        ]
        draws = [
            [rng.integers(len(runs), size=len(runs)) for _, runs in groups]
            for _ in range(_RESAMPLES)
        ]
        for metric in METRICS:
            values = [_values(family, runs, metric, step) for family, runs in groups]
            failed = [family.failed[runs] for family, runs in groups]
            each = [auc(value, bad) for value, bad in zip(values, failed, strict=True)]
            means = [
                np.nanmean([auc(v[d], b[d]) for v, b, d in zip(values, failed, draw, strict=True)])
                for draw in (draws if groups else ())
            ]
            low, high = np.nanpercentile(means, [2.5, 97.5]) if groups else (np.nan, np.nan)
            rows.append(
                {
                    "step": step,
                    "metric": metric,
                    "groups": len(groups),
                    "runs": int(sum(len(runs) for _, runs in groups)),
                    "auc": float(np.mean(each)) if groups else None,
                    "interval": [float(low), float(high)] if groups else None,
                    "by_group": {
                        f"{family.name} {family.agents[runs[0]]}": value
                        for (family, runs), value in zip(groups, each, strict=True)
                    },
                }
            )
    return rows


def _completed(family: Family, agent: str, step: int) -> NDArray[np.int64]:
    return np.flatnonzero((family.agents == agent) & (family.steps > step))


def _enough(family: Family, runs: NDArray[np.int64]) -> bool:
    failed = int(family.failed[runs].sum())
    return failed >= LEAST and len(runs) - failed >= LEAST


def _values(family: Family, runs: NDArray[np.int64], metric: str, step: int) -> NDArray[np.float64]:
    """The metric of these runs once the step is observed."""
    at = np.flatnonzero(family.taken == step)
    _, first = np.unique(family.run[at], return_index=True)
    found = dict(zip(family.run[at[first]], family.scores[metric][at[first]], strict=True))
    return np.array([found.get(run, 0.0) for run in runs])
