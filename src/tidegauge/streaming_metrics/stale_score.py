"""Stale score: how much a run goes over its own tracks since it last made progress.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and tables 4 to 9.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.events import Identity
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["StaleScore"]

_FREE: Final = 2
"""Going somewhere and coming back is nobody's fault."""

_DROPPED: Final = -1
"""Number of a place past the cap; also where the path's first place came from."""


class StaleScore(Metric[ObservedStep]):
    """S = c + e + n over the path since the last progress.

    With E its distinct edges, either way counting as the same edge, and V its distinct places,
    the one where progress was made included: c = \\|E\\| - \\|V\\| + 1 counts independent cycles,
    e adds every use of an edge after the second, n every visit to a place after the second.
    Staying where one is counts as a visit and uses no edge.

    Progress is told by whoever knows it, through :meth:`move`. Used alone, :meth:`update` takes
    a step that achieved a task for progress. While no place is told, the places are states: what
    the agent saw before each step, as digests.

    O(1) a step. Memory grows with the distinct places and edges of the path, up to the caps;
    past them new places and edges don't count, and S is a lower bound.

    Args:
        place: where the path begins; ``None``, not told.
        max_places: distinct places remembered since the last progress.
        max_edges: distinct edges remembered since then, beside the one that first led to each
            place.

    >>> stale = StaleScore(place="hall")
    >>> for t, place in enumerate(["cellar", "hall", "attic", "hall", "cellar", "hall"]):
    ...     stale.update(ObservedStep(t, place=place))
    >>> stale.value
    4
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = (
        "_edges",
        "_index",
        "_number",
        "_origins",
        "_reuses",
        "_revisits",
        "current",
        "dropped_edges",
        "dropped_places",
        "here",
        "max_edges",
        "max_places",
        "maximum",
        "place",
        "placed",
        "rises",
        "rose",
    )

    def __init__(
        self,
        *,
        place: Identity | None = None,
        max_places: int = 10_000,
        max_edges: int = 20_000,
    ) -> None:
        self.place = place
        self.max_places = max_places
        self.max_edges = max_edges
        self.dropped_places = 0
        self.dropped_edges = 0
        self.placed = False  # whether a place was told; until then states stand for places
        self.here: Identity | None = None
        self.current: int | None = None
        self.maximum: int | None = None
        self.rose = False  # whether the last step raised it
        self.rises = 0  # at how many steps it rose since the last progress
        self._index: dict[Identity | None, int] = {}  # number of each place of the path
        # By number of the place: where the edge came from that first led there. Most edges of a
        # path that gets somewhere are of that kind, and most are used once, as most places are
        # visited once: only what is more than that is counted.
        self._origins: list[int] = []
        self._revisits: dict[int, int] = {}  # visits of the places with more than one
        self._reuses: dict[int, int] = {}  # uses of those edges with more than one, by place
        self._edges: dict[tuple[int, int], int] = {}  # uses of the other edges; lower number first
        self._number = _DROPPED  # of the place where the path ends
        if place is not None:
            self.placed = True
            self._restart(place, {place: 0})

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step; one that tells neither place nor state is no move."""
        if step.place is not None:
            if not self.placed:
                index: dict[Identity | None, int] = {step.place: 0}  # raises, if anything does
                self.placed = True
                self.maximum = None
                self._restart(step.place, index)
            else:
                self.move(step.place, progress=bool(step.achieved))
        elif self.placed or step.state is None:
            self.stay(progress=bool(step.achieved))
        else:
            self.move(step.state, progress=bool(step.achieved))

    def move(self, place: Identity, *, progress: bool = False) -> None:
        """The step led to ``place``, which may be where the path was already."""
        if progress or self.current is None:
            self._restart(place, {place: 0})
            return
        previous, score = self._number, self.current
        number = self._index.get(place)  # a place is the user's: here it raises, if it does
        if number is not None:
            visits = self._revisits[number] = self._revisits.get(number, 1) + 1
            score += visits > _FREE
            if previous not in (_DROPPED, number):
                score += self._use(previous, number)
        elif len(self._origins) < self.max_places:
            # One place more and the edge that led there: no cycle more. Without that edge, one
            # cycle less.
            number = self._index[place] = len(self._origins)
            self._origins.append(previous)
            score -= previous == _DROPPED
        else:
            number = _DROPPED
            self.dropped_places += 1
        self._number = number
        self.here = place
        self.rose = score > self.current
        self.rises += self.rose
        self._keep(score)

    def stay(self, *, progress: bool = False) -> None:
        """The step led nowhere: the path goes on from where it was."""
        self.rose = False
        if progress and self.current is not None:
            self._restart(self.here, {self.here: 0})

    @property
    def value(self) -> int | None:
        """S now; ``None`` while the run is nowhere."""
        return self.current

    def _use(self, start: int, end: int) -> int:
        """What going along an edge adds: one for a new edge, one for a use after the second."""
        origins = self._origins
        if origins[end] == start or origins[start] == end:
            newer = end if origins[end] == start else start
            uses = self._reuses[newer] = self._reuses.get(newer, 1) + 1
            return int(uses > _FREE)
        edge = (start, end) if start < end else (end, start)
        uses = self._edges.get(edge, 0)
        if not uses and len(self._edges) >= self.max_edges:
            self.dropped_edges += 1
            return 0
        self._edges[edge] = uses + 1
        return 1 if not uses or uses >= _FREE else 0

    def _restart(self, place: Identity | None, index: dict[Identity | None, int]) -> None:
        self.here = place
        self._index = index
        self._origins = [_DROPPED]
        self._revisits = {}
        self._reuses = {}
        self._edges = {}
        self._number = 0
        self.rose = False
        self.rises = 0
        self._keep(0)

    def _keep(self, score: int) -> None:
        self.current = score
        if self.maximum is None or score > self.maximum:
            self.maximum = score
