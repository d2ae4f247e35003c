"""Navigation: where a run goes, how often it goes back, how long it stays.

Source: AgentDiagnose: An Open Toolkit for Diagnosing LLM Agent Trajectories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from tidegauge.catalog import MetricDefinition
from tidegauge.events import Identity
from tidegauge.streaming_metrics.declaration import Declaration, Measured, Sum, zero
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

Zone: TypeAlias = Callable[[Identity], Identity]
"""The zone that a place lies in."""


def zone_of(place: Identity) -> Identity:
    """The host of a URL, the folder of a path, a tuple without its last entry.

    >>> zone_of("https://user@Shop.example:8080/cart?id=1"), zone_of("src/app/main.py")
    ('shop.example:8080', 'src/app')
    >>> zone_of(("floor 2", "room 7")), zone_of("README.md")
    (('floor 2',), '')
    """
    if isinstance(place, tuple):
        return place[:-1]
    if not isinstance(place, str):
        return None
    scheme, mark, rest = place.partition("://")
    if not mark or not scheme.isascii() or "/" in scheme:
        rest = place
    else:
        authority = rest.replace("?", "/", 1).replace("#", "/", 1).partition("/")[0]
        if authority:
            return authority.rpartition("@")[2].lower()
    return rest.replace("\\", "/").rpartition("/")[0]


class Navigation(Metric[ObservedStep]):
    """Distinct places, backtracks, zone changes, and actions per stay.

    A *move* leads to another place than the present one; it is a *backtrack* when that place was
    visited before, and a *zone change* when it lies in another zone. A *stay* is what lies
    between two moves; only stays in which something was done are counted. A step that reports no
    place, or the present one, belongs to the stay; so does the step that leaves.

    O(1) a step. Memory grows with the distinct places, up to ``max_places``; later ones are not
    remembered, so that returning to them is not a backtrack.

    Args:
        place: where the agent is at the start; ``None``, not reported.
        zone: the zone that a place lies in; ``None`` takes :func:`zone_of`. Not part of
            :meth:`state`.
        max_places: distinct places remembered.

    >>> navigation = Navigation(place="src/a.py")
    >>> for t, place in enumerate(["src/b.py", None, "docs/a.md", "src/a.py"]):
    ...     navigation.update(ObservedStep(t, place=place))
    >>> navigation.distinct, navigation.moves, navigation.backtracks, navigation.zone_changes
    (3, 3, 1, 2)
    >>> round(navigation.value, 2), round(navigation.actions_per_stay, 2)
    (0.33, 1.33)
    """

    takes: ClassVar[type] = ObservedStep
    unsaved: ClassVar[frozenset[str]] = frozenset({"zone"})
    __slots__ = (
        "_acted",
        "_visited",
        "actions",
        "backtracks",
        "current_zone",
        "dropped_places",
        "here",
        "max_places",
        "moves",
        "place",
        "stays",
        "zone",
        "zone_changes",
    )

    def __init__(
        self,
        *,
        place: Identity | None = None,
        zone: Zone | None = None,
        max_places: int = 50_000,
    ) -> None:
        self.place = place
        self.zone = zone
        self.max_places = max_places
        self.dropped_places = 0
        self.moves = 0
        self.backtracks = 0
        self.zone_changes = 0
        self.actions = 0  # steps issued while the place was known
        self.stays = 0  # stays with at least one of them
        self.here: Identity | None = None
        self.current_zone: Identity | None = None
        self._acted = False  # whether the present stay is among the stays counted
        self._visited: set[Identity] = set()
        if place is not None:
            self._enter(place, self._zone_of(place), known=False)

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        place, here = step.place, self.here
        moves = place is not None and place != here
        # Places and zones are the user's: what they raise is raised before anything is counted.
        zone = self._zone_of(place) if moves else None
        known = moves and place in self._visited
        zone_changes = moves and zone != self.current_zone
        if here is not None:
            self.actions += 1
            self.stays += not self._acted
            self._acted = True
        if not moves:
            return
        if here is not None:
            self.moves += 1
            self.backtracks += known
            self.zone_changes += zone_changes
        self._enter(place, zone, known=known)

    @property
    def value(self) -> float | None:
        """Backtracks / moves; ``None`` while there was no move."""
        return self.backtracks / self.moves if self.moves else None

    @property
    def distinct(self) -> int | None:
        """Distinct places visited; ``None`` while no place was reported."""
        return len(self._visited) if self.here is not None else None

    @property
    def actions_per_stay(self) -> float | None:
        """Actions for each stay, the present one included once something was done in it."""
        return self.actions / self.stays if self.stays else None

    def _zone_of(self, place: Identity) -> Identity:
        return zone_of(place) if self.zone is None else self.zone(place)

    def _enter(self, place: Identity, zone: Identity, *, known: bool) -> None:
        if not known:
            if len(self._visited) < self.max_places:
                self._visited.add(place)
            else:
                self.dropped_places += 1
        self.here = place
        self.current_zone = zone
        self._acted = False


BACKTRACKS: Final = MetricDefinition(
    "tidegauge_backtracks_total",
    "counter",
    "moves",
    "Moves to a place that the run had visited before.",
)


DECLARATION: Final = Declaration(
    name="navigation",
    kind=Navigation,
    make=lambda run: Navigation(place=run.started.place),
    observed=True,
    brought_by=("place",),
    brought_by_start=lambda started, settings: started.place is not None,
    sums=(Sum("backtracks", zero, "backtracks"),),
    absent=dict.fromkeys(("distinct_places", "backtracks", "zone_changes", "actions_per_stay")),
    report=lambda run, navigation: {
        "distinct_places": navigation.distinct,
        "backtracks": navigation.backtracks,
        "zone_changes": navigation.zone_changes,
        "actions_per_stay": navigation.actions_per_stay,
    },
    of_group=(
        Measured(BACKTRACKS, lambda group: group.totals.backtracks if group.placed else None),
    ),
)
