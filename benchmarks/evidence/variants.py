"""The learned score with a part of its inputs left out, or fitted in another way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegauge.policies.learned_score import WORDS
from tidegauge.policies.learning import BUCKETS, FeatureTable, Fitted, fit
from tidegauge.streaming_metrics.features import FEATURES

__all__ = ["variants"]

Floats: TypeAlias = NDArray[np.float64]
Fit: TypeAlias = Callable[[FeatureTable, Floats], Fitted]

_NAMES: Final = [feature.name for feature in FEATURES]
_METRICS: Final = _NAMES[: _NAMES.index("stale_score") + 1]
_CLUES: Final = [name for name in _NAMES if name not in _METRICS]

VARIANTS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "all inputs": (frozenset(), frozenset()),
    "metrics alone": (frozenset(_CLUES), frozenset(WORDS)),
    "metrics and clues, no words": (frozenset(), frozenset(WORDS)),
    "words alone": (frozenset(_NAMES), frozenset()),
    "without the words of the task": (frozenset(), frozenset({"task"})),
    "without failing tests and edits": (
        frozenset(
            {
                "edits",
                "since_edit",
                "edited_again",
                "most_edits",
                "undone",
                "tests",
                "failing",
                "same_failing",
                "failing_now",
            }
        ),
        frozenset(),
    ),
    "without files and places named again": (
        frozenset({"named_again", "named", "places_again", "place_again"}),
        frozenset(),
    ),
    "without errors and return codes": (
        frozenset(
            {"errors", "errors_now", "same_error", "returned", "returned_now", "failed", "failures"}
        ),
        frozenset(),
    ),
    "without words of doubt and success": (
        frozenset({"doubts", "doubts_now", "hopes", "hopes_now", "successes", "successes_now"}),
        frozenset(),
    ),
}
"""For each variant, the numbers and the words that are left out."""

FITS: Final[Mapping[str, Fit]] = {
    "all moments of failed runs alike": partial(fit, by_left=False),
    "no stagnation added": partial(fit, added=0.0),
    "as much stagnation added": partial(fit, added=1.0),
}
"""Other ways to fit all inputs."""


class _Without:
    """A fit of which some inputs are 0; its scores are those of the whole table."""

    def __init__(self, numbers: frozenset[str], words: frozenset[str]) -> None:
        self._numbers = np.array([name not in numbers for name in _NAMES], dtype=float)
        self._words = np.repeat([name not in words for name in WORDS], BUCKETS).astype(float)

    def __call__(self, table: FeatureTable, runs: Floats) -> Fitted:
        left = copy.copy(table)
        left.numbers = table.numbers * self._numbers
        left.words = table.words.multiply(self._words).tocsr()
        fitted = fit(left, runs)
        weight, mean, scale, limit = fitted.numbers
        return fitted._replace(
            numbers=np.array([weight * self._numbers, mean, scale, limit]),
            words=fitted.words * self._words,
        )


def variants() -> dict[str, Fit]:
    """How to fit each variant."""
    return {**{label: _Without(*left_out) for label, left_out in VARIANTS.items()}, **FITS}
