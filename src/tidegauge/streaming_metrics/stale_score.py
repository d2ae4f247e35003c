"""Stale score: how much a run retraces its path since its last progress.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and tables 4 to 9.
"""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.events import Identity
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupHistogram,
    GroupView,
    Measured,
    Signal,
    over_active_runs,
    times,
)
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

_FREE: Final = 2
"""Visits of a place, and uses of an edge, that do not count: there and back is no error."""

_DROPPED: Final = -1
"""Number of a place beyond the cap, and of the place before the first one of the path."""


class StaleScore(Metric[ObservedStep]):
    """S = c + e + n over the path since the last progress.

    With E its distinct edges, either way counting as the same edge, and V its distinct places,
    the one where progress was made included: c = \\|E\\| - \\|V\\| + 1 counts independent cycles,
    e adds every use of an edge after the second, n every visit to a place after the second.
    To stay at a place counts as a visit and uses no edge. A step that succeeded in changing
    something and finds a place of the path is no part of the path.

    :class:`Exploration` reports progress through :meth:`move`. Without it, :meth:`update` counts a
    step that achieved a task as progress. Until a place is reported, digests of the states before
    each step serve as places; those that are an acknowledgement, which a new action got as others
    did before it, are no part of the path either: bulk work does not wander.

    O(1) per step. Memory grows with the distinct places and edges of the path, up to the caps.
    Beyond them, new places and edges do not count, and S is a lower bound.

    Args:
        place: where the path begins; ``None``, not reported.
        max_places: distinct places remembered since the last progress.
        max_edges: distinct edges remembered since then, without those that first led to each
            place.

    >>> stale = StaleScore(place="hall")
    >>> for t, place in enumerate(["cellar", "hall", "attic", "hall", "cellar", "hall"]):
    ...     stale.update(ObservedStep(t, place=place))
    >>> stale.value
    4
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 2
    __slots__ = (
        "_acknowledged",
        "_edges",
        "_index",
        "_number",
        "_origins",
        "_result",
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
        self._acknowledged = False  # whether the last result is progress, though it was known
        self._result: bytes | None = None  # the last one
        self.placed = False  # whether a place was reported; until then states serve as places
        self.here: Identity | None = None
        self.current: int | None = None
        self.maximum: int | None = None
        self.rose = False  # whether the last step raised it
        self.rises = 0  # at how many steps it rose since the last progress
        self._index: dict[Identity | None, int] = {}  # number of each place of the path
        # By number of a place: the place from which it was first reached. On a path with progress,
        # most edges are of this kind, and most places and edges are used once: only further uses
        # are counted.
        self._origins: list[int] = []
        self._revisits: dict[int, int] = {}  # visits of the places with more than one
        self._reuses: dict[int, int] = {}  # uses of those edges with more than one, by place
        self._edges: dict[tuple[int, int], int] = {}  # uses of the other edges; lower number first
        self._number = _DROPPED  # of the place where the path ends
        if place is not None:
            self.placed = True
            self._restart(place, {place: 0})

    def update(self, step: ObservedStep, progress: bool | None = None) -> None:
        """Take the next observed step; without a place or state it is not a move.

        Args:
            step: the step. Until a place is reported, the state before it is one.
            progress: whether it made progress; ``None``, if it achieved a task.
        """
        place = step.place
        if progress is None:
            progress = bool(step.achieved)
        if place is None:
            state = None if self.placed else step.state
            acknowledged = self._acknowledged and not step.reported
            again = step.outcome == self._result  # one more attempt that found nothing
            self._result = step.outcome
            self._acknowledged = step.changed or (
                step.outcome is not None
                and not (step.known or step.failed or (step.negative and again))
            )
            if state is None:
                self.stay(progress)
            else:
                self.move(state, progress, acknowledged)
        elif self.placed:
            self.move(place, progress, step.changed)
        else:
            index: dict[Identity | None, int] = {place: 0}  # raises, if anything does
            self.placed = True
            self.maximum = None
            self._restart(place, index)

    def move(self, place: Identity, progress: bool = False, exempt: bool = False) -> None:
        """The step led to ``place``, which may be the same place as before."""
        if progress or self.current is None:
            self._restart(place, {place: 0})
            return
        previous, score = self._number, self.current
        # A place that cannot be hashed raises here, before any update.
        number = self._index.get(place)
        if number is not None:
            if exempt:
                self.rose = False
                return
            visits = self._revisits[number] = self._revisits.get(number, 1) + 1
            score += visits > _FREE
            if previous not in (number, _DROPPED):
                score += self._use(previous, number)
        elif len(self._origins) < self.max_places:
            # A new place with a new edge: the number of cycles is the same. Without the edge, it
            # is one less.
            number = self._index[place] = len(self._origins)
            self._origins.append(previous)
            score -= previous == _DROPPED
        else:
            number = _DROPPED
            self.dropped_places += 1
        self._number = number
        self.here = place
        rose = self.rose = score > self.current
        if rose:
            self.rises += 1
            self._keep(score)
        else:
            self.current = score

    def stay(self, progress: bool = False) -> None:
        """The step was no move: the path continues from the same place."""
        self.rose = False
        if progress and self.current is not None:
            self._restart(self.here, {self.here: 0})

    @property
    def value(self) -> int | None:
        """S now; ``None`` until a place or state is known."""
        return self.current

    def _use(self, start: int, end: int) -> int:
        """What the use of an edge adds: 1 for a new edge, 1 for a use after the second."""
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


RUNS_STALE: Final = MetricDefinition(
    "tidegauge_runs_stale",
    "gauge",
    "runs",
    "Active runs that retrace their path: their stale score has reached stale_at.",
)
STALE_SCORE: Final = MetricDefinition(
    "tidegauge_stale_score",
    "gauge",
    "score",
    "How much active runs retrace their path since their last progress: mean and maximum.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
RUN_STALE_SCORE: Final = MetricDefinition(
    "tidegauge_run_stale_score",
    "gauge",
    "score",
    "How much the run retraces its path since its last progress. Only for the most "
    "troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
STALE_SCORE_MAX: Final = MetricDefinition(
    "tidegauge_stale_score_max",
    "histogram",
    "score",
    "Highest stale score of finished runs.",
)


def is_stale(score: int | None, stale_at: int) -> bool:
    """Whether a run with that score retraces its path.

    >>> is_stale(5, 5), is_stale(4, 5), is_stale(None, 5)
    (True, False, False)
    """
    return score is not None and score >= stale_at


def _runs_stale(group: GroupView) -> int | None:
    """Active runs that are stale; ``None``, no score is measured."""
    measured = [run for run in group.active if run.stale_score is not None]
    if not measured:
        return None
    return sum(is_stale(run.stale_score, group.stale_at) for run in measured)


DECLARATION: Final = Declaration(
    name="stale_score",
    kind=StaleScore,
    make=lambda run: StaleScore(place=run.started.place),
    observed=True,
    absent={"stale_score": None, "stale_score_max": None},
    report=lambda run, stale: {
        "stale_score": stale.current,
        "stale_score_max": stale.maximum,
    },
    document=lambda report: {
        "stale_score": report.stale_score,
        "stale_score_max": report.stale_score_max,
    },
    ended=lambda run, stale: {"stale_score_max": stale.maximum},
    signals=(
        Signal(
            name="stale_score",
            read=Attribute(StaleScore, "current"),
            help="how much the run revisits known places and actions since its last progress",
            message=lambda now, at: (
                f"known places and actions again and again, stale score {now.stale_score}"
            ),
        ),
        Signal(
            name="stale_rises",
            read=Attribute(StaleScore, "rises"),
            help="at how many steps the stale score rose since then",
            message=lambda now, at: (
                f"the stale score rose {times(now.stale_rises)} without progress"
            ),
        ),
    ),
    of_group=(
        Measured(RUNS_STALE, _runs_stale),
        Measured(STALE_SCORE, over_active_runs("stale_score")),
    ),
    of_run=(Measured(RUN_STALE_SCORE, lambda run: run.stale_score),),
    histograms=(
        GroupHistogram(
            "stale_score_max",
            STALE_SCORE_MAX,
            (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0),
            lambda run: run.stale_score_max,
        ),
    ),
)
