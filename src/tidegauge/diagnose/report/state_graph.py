"""The graph of a run's places: where each is drawn. Drawn by networkx (Kamada and Kawai 1989)."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import networkx as nx

__all__ = ["MAX_PLACES", "Position", "positions"]

Position: TypeAlias = tuple[float, float]

MAX_PLACES: Final = 60
"""Places that are drawn of one run: those it came to first. More can be counted, not looked at."""


def positions(walk: list[int]) -> list[Position]:
    """A position for each place of a walk, each coordinate from 0 to 1.

    Args:
        walk: the places in the order in which they were visited, numbered by their first visit.

    >>> positions([0, 1, 0])
    [(0.5, 1.0), (0.5, 0.0)]
    >>> positions([])
    []
    """
    drawn = [place for place in walk if place < MAX_PLACES]
    moves = {(min(move), max(move)) for move in pairwise(drawn) if move[0] != move[1]}
    return _laid_out(len(set(drawn)), tuple(sorted(moves)))


@lru_cache(maxsize=10_000)
def _laid_out(places: int, moves: tuple[tuple[int, int], ...]) -> list[Position]:
    """Runs of one form are many (most are a path): each form is laid out once."""
    if not places:
        return []
    graph = nx.Graph()
    graph.add_nodes_from(range(places))
    graph.add_edges_from(moves)
    if places <= 2:
        return [(0.5, 1.0), (0.5, 0.0)][:places]
    # From a circle, so that the same graph is always drawn in the same way.
    found = nx.kamada_kawai_layout(graph, pos=nx.circular_layout(graph))
    across = [float(found[place][0]) for place in range(places)]
    up = [float(found[place][1]) for place in range(places)]
    return list(zip(_stretched(across), _stretched(up), strict=True))


def _stretched(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    if high - low < 1e-6:
        return [0.5] * len(values)
    return [round((value - low) / (high - low), 3) for value in values]
