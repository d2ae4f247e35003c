"""The bound in practice: size of the calibration, transfer to other agents, and the ratchet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.recorded import Family
from tidegauge.policies import Guarantee

__all__ = ["calibration_size", "ratchet", "transfer"]

_DRAWS: Final = 1_000
_LEAST_LEFT: Final = 30
_ALPHA: Final = 0.05
_RATCHET_ALPHA: Final = 0.1
_RUNS: Final = 200
_GENERATIONS: Final = 10


def _highest(family: Family, score: str) -> NDArray[np.float64]:
    found = np.full(len(family.steps), -np.inf)
    np.maximum.at(found, family.run, family.scores[score])
    return found


def _good(family: Family, agent: str, score: str = "stagnation") -> NDArray[np.float64]:
    """The scores of an agent's successful runs."""
    found: NDArray[np.float64] = _highest(family, score)[(family.agents == agent) & ~family.failed]
    return found


def calibration_size(families: Sequence[Family]) -> list[dict[str, Any]]:
    """The share of successful runs stopped, by the number of calibration runs and the guarantee."""
    rng = np.random.default_rng(1)
    rows = []
    for kind in ("marginal", "pac"):
        for runs in (20, 45, 80):
            guarantee = Guarantee(_ALPHA, kind)
            rank = guarantee.rank(runs)
            groups = [
                good
                for family in families
                for agent in family.groups()
                if len(good := _good(family, agent)) >= runs + _LEAST_LEFT
            ]
            if rank is None or not groups:
                continue
            stopped = np.array([_stopped(good, runs, rank, rng) for good in groups])
            rows.append(
                {
                    "guarantee": kind,
                    "runs": runs,
                    "groups": len(groups),
                    "stopped": float(stopped.mean()),
                    "draws_above_alpha": float((stopped > _ALPHA).mean()),
                }
            )
    return rows


def _stopped(
    good: NDArray[np.float64], runs: int, rank: int, rng: np.random.Generator
) -> list[float]:
    found = []
    for _ in range(_DRAWS):
        drawn = rng.permutation(good)
        threshold = np.sort(drawn[:runs])[rank - 1]
        found.append(float((drawn[runs:] > threshold).mean()))
    return found


def transfer(families: Sequence[Family]) -> dict[str, Any]:
    """The share of an agent's successful runs above a threshold learned from another agent."""
    pairs: list[dict[str, Any]] = []
    for family in families:
        agents = list(family.groups())
        for learned in agents:
            threshold = Guarantee(_ALPHA).threshold([[one] for one in _good(family, learned)])
            for used in agents:
                if used != learned and threshold is not None:
                    share = float((_good(family, used) > threshold).mean())
                    pairs.append({"learned_on": learned, "used_on": used, "stopped": share})
    shares = [pair["stopped"] for pair in pairs]
    return {
        "pairs": len(pairs),
        "mean": float(np.mean(shares)) if shares else None,
        "most": max(shares, default=None),
        "above_alpha": float(np.mean([share > _ALPHA for share in shares])) if shares else None,
        "worst": max(pairs, key=lambda pair: pair["stopped"], default=None),
    }


def ratchet(families: Sequence[Family]) -> dict[str, Any]:
    """The share of successful runs stopped, generation by generation, with and without a holdout.

    Each generation draws successful runs of a group, and records those above its threshold as
    failed. The next threshold is learned from what is recorded as successful, or from a holdout.
    """
    rng = np.random.default_rng(2)
    groups = [_good(family, agent) for family in families for agent in family.groups(good=50)]
    found: dict[str, Any] = {"alpha": _RATCHET_ALPHA, "groups": len(groups)}
    for name, share in (("without", 0.0), ("holdout", 0.1)):
        stopped = np.array(
            [[_generations(good, share, rng) for _ in range(100)] for good in groups]
        )
        found[name] = [float(one) for one in stopped.mean(axis=(0, 1))] if groups else []
    return found


def _generations(
    good: NDArray[np.float64], holdout: float, rng: np.random.Generator
) -> list[float]:
    guarantee = Guarantee(_RATCHET_ALPHA)
    seen = rng.choice(good, _RUNS)
    shares = []
    for _ in range(_GENERATIONS):
        rank = guarantee.rank(len(seen))
        threshold = np.inf if rank is None else np.sort(seen)[rank - 1]
        runs = rng.choice(good, _RUNS)
        shares.append(float((runs > threshold).mean()))
        held = np.arange(_RUNS) < holdout * _RUNS
        seen = runs[held] if holdout else runs[runs <= threshold]
    return shares
