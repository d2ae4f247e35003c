"""What all panels share: their queries, units and words.

A panel without data says why: the sentence of its description that begins with "Empty".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units

from tidegauge.dashboards.colours import BAD, GOOD, NEUTRAL, WATCH, Steps

__all__ = [
    "BYTES",
    "COUNT",
    "DATA_SOURCE",
    "REPEATS",
    "SCORE",
    "SECONDS",
    "SHARE",
    "Panel",
    "Query",
    "setting",
    "stairs",
    "told",
]

Panel: TypeAlias = Builder[models.Panel]

SHARE: Final = units.PercentUnit
SECONDS: Final = units.Seconds
BYTES: Final = units.BytesSI
COUNT: Final = units.Short
SCORE: Final = "none"

REPEATS: Final = ((1, WATCH), (3, BAD))
"""One repeat may be a retry; three are a loop."""

_NO_DATA: Final = "No data: are agents up, and does Prometheus scrape them?"

DATA_SOURCE: Final = shapes.DataSourceRef(type_val="prometheus", uid="$datasource")


class Query(NamedTuple):
    """One query of a panel.

    Attributes:
        expression: PromQL; may use the dashboard's variables.
        legend: what its series are called, with their labels in double braces.
        exemplars: show them as dots that lead to traces.
    """

    expression: str
    legend: str = ""
    exemplars: bool = False

    def built(self, index: int, *, instant: bool = False) -> prometheus.Dataquery:
        """The query as the panel's ``index``-th."""
        query = (
            prometheus.Dataquery()
            .ref_id(chr(ord("A") + index))
            .datasource(DATA_SOURCE)
            .expr(self.expression)
            .legend_format(self.legend or "__auto")
        )
        if self.exemplars:
            query = query.exemplar(True)
        return query.instant() if instant else query.range()


class _AnyPanel(Protocol):
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def datasource(self, datasource: shapes.DataSourceRef) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def min(self, min_val: float) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def thresholds(self, thresholds: Builder[models.ThresholdsConfig]) -> Self: ...
    def with_target(self, target: Builder[Dataquery]) -> Self: ...


P = TypeVar("P", bound=_AnyPanel)


def told(
    panel: P,
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = (),
    instant: bool = False,
    least: float | None = 0,
) -> P:
    """A panel with its words, its queries, and the colours that its values have.

    Args:
        panel: of any kind.
        title: of it.
        description: what to make of it, what to do, and when it is empty.
        *queries: what it shows.
        unit: of the values.
        steps: from which value on a colour holds.
        instant: whether it asks for what is so now, or for what was so all the time.
        least: lowest value on its scale; None, whatever comes.
    """
    panel = (
        panel.title(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .unit(unit)
        .no_value(_why_empty(description))
        .thresholds(
            dashboard.ThresholdsConfig()
            .mode(models.ThresholdsMode.ABSOLUTE)
            .steps([models.Threshold(value, colour) for value, colour in stairs(steps)])
        )
    )
    if least is not None:
        panel = panel.min(least)
    for index, query in enumerate(queries):
        panel = panel.with_target(query.built(index, instant=instant))
    return panel


def _why_empty(description: str) -> str:
    """What a panel says instead of data.

    >>> _why_empty("How many runs loop. Empty while none does.")
    'Empty while none does.'
    """
    found = re.search(r"Empty [^.]*\.", description)
    return found[0] if found else _NO_DATA


def stairs(steps: Steps) -> list[tuple[float | None, str]]:
    """The colour of all values, from the lowest one on."""
    return [(None, GOOD if steps else NEUTRAL), *steps]


def setting(name: str, value: object) -> models.DynamicConfigValue:
    """One setting that holds for some of a panel's series only."""
    return models.DynamicConfigValue(name, value)
