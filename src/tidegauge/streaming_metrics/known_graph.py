"""The known graph: the places of a run and the exits between them, as far as reported.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and appendix B.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import NamedTuple, TypeAlias

from tidegauge.events import Identity
from tidegauge.streaming_metrics.metric import Stateful

Distance: TypeAlias = Callable[[Identity, Identity], float]
"""The distance from one place to another, in any unit; infinity if there is no way."""

Targets: TypeAlias = Mapping[Identity, object]
"""Places that the agent may want to reach: the keys."""


class KnownGraph(Stateful):
    """Observed places, the exits seen from them, and the *frontier*: exits not yet visited.

    A move connects its two places, even if no exits were reported. Edges lead both ways unless
    ``directed``.

    :meth:`observe` costs O(1) for each reported exit. :meth:`nearer` is one breadth-first search,
    O(places + edges) at worst, over at most ``max_visited`` places.

    Args:
        directed: whether an exit leads one way only.
        max_visited: limit of the places that one search visits; beyond it the answer is unknown.
        max_places: observed and frontier places kept; later ones are dropped.
        max_edges: exits kept, of all places together; later ones are dropped.

    >>> graph = KnownGraph()
    >>> graph.observe("hall", ("kitchen", "cellar")), graph.observe("kitchen", ("garden",))
    (2, 1)
    >>> list(graph.frontier)
    ['cellar', 'garden']
    >>> graph.nearer("kitchen", "hall", graph.frontier)
    True
    """

    __slots__ = (
        "_entries",
        "_neighbours",
        "directed",
        "dropped_edges",
        "dropped_places",
        "edges",
        "frontier",
        "mapped",
        "max_edges",
        "max_places",
        "max_visited",
    )

    def __init__(
        self,
        *,
        directed: bool = False,
        max_visited: int = 10_000,
        max_places: int = 50_000,
        max_edges: int = 200_000,
    ) -> None:
        self.directed = directed
        self.max_visited = max_visited
        self.max_places = max_places
        self.max_edges = max_edges
        self.dropped_places = 0
        self.dropped_edges = 0
        self.edges = 0
        # whether any place's exits were reported: without them the frontier is unknown
        self.mapped = False
        # when each frontier place was revealed, oldest first
        self.frontier: dict[Identity, int] = {}
        # neighbours of each observed place: its exits and, unless directed, its entries
        self._neighbours: dict[Identity, set[Identity]] = {}
        # observed neighbours of each frontier place; empty when directed
        self._entries: dict[Identity, list[Identity]] = {}

    @property
    def observed(self) -> Collection[Identity]:
        """The places visited so far."""
        return self._neighbours.keys()

    @property
    def full(self) -> bool:
        """Whether no further place is kept: a place that is not known may be a dropped one."""
        return len(self._neighbours) + len(self.frontier) >= self.max_places

    def observe(
        self, place: Identity, exits: Collection[Identity] | None = None, clock: int = 0
    ) -> int:
        """The agent is at ``place``; returns how many frontier places that reveals.

        Args:
            place: the place of the agent.
            exits: what can be reached from there; ``None``, not reported.
            clock: recorded as the birth of the places revealed.
        """
        if place not in self._neighbours:
            if self.frontier.pop(place, None) is None and self.full:
                self.dropped_places += 1
                return 0
            self._neighbours[place] = set(self._entries.pop(place, ()))
        if exits is None:
            return 0
        self.mapped = True
        revealed = 0
        # One after the other, kept at once: that each has a hash is known before (Exploration).
        listed = self._neighbours[place]
        for index, target in enumerate(exits):
            if target in listed or target == place:
                continue
            if self.edges >= self.max_edges:
                self.dropped_edges += len(exits) - index
                break
            if target not in self._neighbours and target not in self.frontier:
                if self.full:
                    self.dropped_places += 1
                    continue
                self.frontier[target] = clock
                revealed += 1
            self._join(place, target)
        return revealed

    def walk(self, old: Identity, new: Identity) -> None:
        """A move from ``old`` to ``new`` was made; both were observed."""
        listed = self._neighbours.get(old)
        if listed is None or new in listed or new == old or new not in self._neighbours:
            return
        if self.edges >= self.max_edges:
            self.dropped_edges += 1
            return
        self._join(old, new)

    def nearer(self, old: Identity, new: Identity, *targets: Targets) -> bool | None:
        """Whether some target is strictly nearer to ``new`` than to ``old``.

        Both ends spread at once, a step of distance at a time, ``old`` first; a place belongs to
        the end that reaches it first, to ``old`` when both do. A place that ``new`` gets is
        strictly nearer to ``new``, and every place strictly nearer to it is got that way, since
        so is each place on a shortest path there. So each place is visited once, not once from
        either end. The search stops at the first target that ``new`` gets, and says no when
        ``new`` has nowhere left to go or ``old`` has all targets.

        Returns:
            ``None`` when more than ``max_visited`` places would have to be visited.
        """
        if any(new in group for group in targets):
            return new != old
        left = sum(len(group) - (old in group) for group in targets)
        behind, ahead = {old}, {new}
        seen = behind | ahead
        while ahead and left and old != new:
            behind = self._around(behind) - seen
            seen |= behind
            left -= sum(len(group.keys() & behind) for group in targets)
            ahead = self._around(ahead) - seen
            seen |= ahead
            if len(seen) > self.max_visited:
                return None
            if not all(group.keys().isdisjoint(ahead) for group in targets):
                return True
        return False

    def _around(self, places: set[Identity]) -> set[Identity]:
        observed: Mapping[Identity, Collection[Identity]] = self._neighbours
        frontier: Mapping[Identity, Collection[Identity]] = self._entries
        nowhere: Collection[Identity] = ()
        return set().union(
            *[observed.get(place, nowhere) or frontier.get(place, nowhere) for place in places]
        )

    def _join(self, place: Identity, target: Identity) -> None:
        self._neighbours[place].add(target)
        self.edges += 1
        if self.directed:
            return
        back = self._neighbours.get(target)
        if back is None:
            self._entries.setdefault(target, []).append(place)
        else:
            back.add(place)


class DistanceQuestion(NamedTuple):
    """What the user's distance function is asked about a move, before a lock is taken for it.

    Attributes:
        old: where the agent is.
        new: where it goes.
        clock: steps so far.
        targets: where it may want to get to.
        limit: how many of them are asked about.
    """

    old: Identity
    new: Identity
    clock: int
    targets: list[Identity]
    limit: int

    def answered(self, distance: Distance) -> DistanceAnswer:
        """The answer; calls ``distance``."""
        old, new, clock, targets, limit = self
        nearer = nearer_by_distance(distance, old, new, targets, limit=limit)
        return DistanceAnswer(old, new, clock, nearer)


class DistanceAnswer(NamedTuple):
    """The answer of a distance function about a move, if any; see :class:`DistanceQuestion`."""

    old: Identity
    new: Identity
    clock: int
    nearer: bool | None

    def of(self, old: Identity, new: Identity, clock: int) -> bool | None:
        """The answer, if it is of this move; else ``None``, not known."""
        return self.nearer if (old, new, clock) == self[:3] else None


def nearer_by_distance(
    distance: Distance, old: Identity, new: Identity, *targets: Iterable[Identity], limit: int
) -> bool | None:
    """The same as :meth:`KnownGraph.nearer`, by a distance function of the user.

    Two calls of ``distance`` for each target up to the first that is nearer; ``None`` if none of
    the first ``limit`` targets is and there are more.

    >>> nearer_by_distance(lambda a, b: abs(a - b), 3, 4, {0: None, 9: None}, limit=10)
    True
    """
    for index, target in enumerate(chain.from_iterable(targets)):
        if index >= limit:
            return None
        if distance(new, target) < distance(old, target):
            return True
    return False
