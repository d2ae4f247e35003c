"""The map of actions: similar ones are close (t-SNE, van der Maaten and Hinton 2008)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from tidegauge.diagnose.recorded_run import ReportedRun
from tidegauge.diagnose.report.word_clouds import THINKING

Embedder: TypeAlias = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""Returns a vector for each text."""

MAX_POINTS: Final = 2_000
"""Limit of actions placed by t-SNE; each further one counts at the most similar of these."""

_WORD: Final = re.compile(r"\w[\w-]*")
_MAX_CHARACTERS: Final = 200
_DIMENSIONS: Final = 50
_BLOCK: Final = 1_000
_ROUNDS: Final = 500
_FEWEST: Final = 5  # fewer are not worth a map


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower()) or [text]


def tf_idf(texts: Sequence[str]) -> NDArray[np.floating[Any]]:
    """The default embedder: TF-IDF of words, reduced to at most 50 dimensions."""
    table = TfidfVectorizer(analyzer=_words, sublinear_tf=True, max_features=20_000).fit_transform(
        texts
    )
    dimensions = min(_DIMENSIONS, min(table.shape) - 1)
    if dimensions < 2:
        return np.asarray(table.toarray())
    reduced = TruncatedSVD(dimensions, random_state=0).fit_transform(table)
    return np.asarray(reduced)


def action_map(
    runs: Sequence[ReportedRun], embed: Embedder = tf_idf, *, max_points: int = MAX_POINTS
) -> dict[str, Any] | None:
    """Points with ``x``, ``y`` (0 to 1), ``text``, ``name``, ``steps`` and ``runs`` (by index).

    An action is a name with its arguments; thoughts are left out. Of more actions than
    ``max_points``, half of the points are those taken most often, the other half is drawn evenly
    from the rest, in the order of their first use; each of those that remain is counted at the
    point that its embedding is nearest to. ``None`` when there are too few to be a map.
    """
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        for step in run.steps:
            if step.name not in THINKING:
                taken[step.name, step.arguments[:_MAX_CHARACTERS]].append(index)
    actions = list(taken)
    if len(actions) < _FEWEST:
        return None
    rows = np.asarray(embed([f"{name} {arguments}" for name, arguments in actions]), dtype=float)
    rows = normalize(rows)
    chosen = _chosen([len(taken[action]) for action in actions], max_points)
    nearest = _nearest(rows, chosen)
    spots = _spread(rows[chosen])
    members: dict[int, list[int]] = defaultdict(list)
    for action, point in enumerate(nearest):
        members[int(point)] += taken[actions[action]]
    return {
        "actions": len(actions),
        "points": [
            {
                "x": round(float(spots[point, 0]), 4),
                "y": round(float(spots[point, 1]), 4),
                "name": actions[action][0],
                "text": actions[action][1],
                "steps": len(members[point]),
                "runs": sorted(set(members[point])),
            }
            for point, action in enumerate(chosen)
        ],
    }


def _chosen(counts: Sequence[int], max_points: int) -> list[int]:
    if len(counts) <= max_points:
        return list(range(len(counts)))
    by_count = sorted(range(len(counts)), key=lambda action: -counts[action])
    half = max_points // 2
    rest = sorted(by_count[half:])
    every = np.linspace(0, len(rest) - 1, max_points - half).astype(int)
    return sorted(by_count[:half] + [rest[place] for place in every])


def _nearest(rows: NDArray[Any], chosen: Sequence[int]) -> NDArray[Any]:
    """For each action the point that it is counted at; a point's own action is at itself."""
    points = rows[chosen]
    found = np.concatenate(
        [
            np.argmax(rows[start : start + _BLOCK] @ points.T, axis=1)
            for start in range(0, len(rows), _BLOCK)
        ]
    )
    found[chosen] = np.arange(len(chosen))
    return found


def _spread(points: NDArray[Any]) -> NDArray[Any]:
    """The points in the plane, each coordinate from 0 to 1."""
    perplexity = min(30.0, (len(points) - 1) / 3)
    # Equal rows would start at one spot and stay there.
    points = points + np.random.default_rng(0).normal(scale=1e-4, size=points.shape)
    start = "pca" if min(points.shape) >= 2 else "random"
    # Nothing moves any more that an eye would see; half as long as by default.
    layout = TSNE(perplexity=perplexity, init=start, random_state=0, max_iter=_ROUNDS, angle=0.6)
    found = layout.fit_transform(points)
    low, high = found.min(axis=0), found.max(axis=0)
    return np.asarray((found - low) / np.where(high > low, high - low, 1.0))
