"""Common parts of all panels: queries, units, texts and colors.

A panel without data shows why: the sentence of its description that begins with "Empty".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import dashboard, prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import units

ColorSteps: TypeAlias = Sequence[tuple[float, str]]
"""Lowest value of each color; values below the first one are :data:`GOOD`."""

GOOD: Final = "green"
WATCH: Final = "orange"
BAD: Final = "red"
NEUTRAL: Final = "blue"
MISSING: Final = "#808080"
STOPPED: Final = "purple"
_OTHER: Final = "purple"

_BY_NAME: Final[Mapping[str, str]] = {
    "running": NEUTRAL,
    "looping": BAD,
    "stale": WATCH,
    "success rate": GOOD,
    "AUV": GOOD,
    "lower bound": GOOD,
    "upper bound": GOOD,
    "frontier": NEUTRAL,
    "pending": _OTHER,
    "progress": NEUTRAL,
    "loop repeats": BAD,
    "stale score": WATCH,
    "steps": NEUTRAL,
    "lead age": NEUTRAL,
    "recall lag": _OTHER,
    "mean": NEUTRAL,
    "max": WATCH,
    "p50": NEUTRAL,
    "p95": WATCH,
    "dropped events": NEUTRAL,
    "evicted runs": _OTHER,
    "written": NEUTRAL,
    "accepted": NEUTRAL,
    "forwarded": GOOD,
    "delivered": GOOD,
    "duplicates": _OTHER,
    "late": WATCH,
    "summaries": NEUTRAL,
    "decisions": _OTHER,
    "read": NEUTRAL,
    "evicted": BAD,
}
"""By legend."""

_BY_VALUE: Final[Mapping[str, Mapping[str, str]]] = {
    "{{outcome}}": {
        "success": GOOD,
        "failure": WATCH,
        "stopped": STOPPED,
        "error": BAD,
        "unknown": MISSING,
    },
    "{{kind}}": {
        "exploration": NEUTRAL,
        "exploitation": _OTHER,
        "loop": BAD,
        "result_streak": WATCH,
        "failed_rounds": _OTHER,
    },
    "{{steps}}": {"loop": BAD, "other": NEUTRAL},
    "{{action}}": {"would_stop": NEUTRAL, "nudge": "yellow", "block": WATCH, "stop": STOPPED},
    "{{answer}}": {
        "sent": GOOD,
        "unchanged": NEUTRAL,
        "not_ready": WATCH,
        "unauthorized": _OTHER,
        "refused": "yellow",
        "busy": BAD,
    },
}
"""By the value of the label that is the whole legend."""


def named_colours(legend: str) -> Mapping[str, str]:
    """The colors of the series of a legend, by name.

    >>> named_colours("looping"), named_colours("{{agent}}")
    ({'looping': 'red'}, {})
    """
    if legend in _BY_VALUE:
        return _BY_VALUE[legend]
    return {legend: _BY_NAME[legend]} if legend in _BY_NAME else {}


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
        legend: name of its series, with labels in double braces.
        exemplars: whether to show exemplars as dots that link to traces.
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


def described(
    panel: P,
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: ColorSteps = (),
    instant: bool = False,
    least: float | None = 0,
) -> P:
    """The panel with its texts, queries and colors.

    Args:
        panel: a panel of any kind.
        title: title of the panel.
        description: what a value means, what to do, and when the panel is empty.
        *queries: what the panel shows.
        unit: unit of the values.
        steps: lowest value of each color.
        instant: whether to query the current value instead of the whole time range.
        least: lowest value on the scale; ``None`` for automatic.
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
    """The text of a panel without data.

    >>> _why_empty("How many runs loop. Empty while none does.")
    'Empty while none does.'
    """
    found = re.search(r"Empty [^.]*\.", description)
    return found[0] if found else _NO_DATA


def stairs(steps: ColorSteps) -> list[tuple[float | None, str]]:
    """The colors of all values, from the lowest value."""
    return [(None, GOOD if steps else NEUTRAL), *steps]


def setting(name: str, value: object) -> models.DynamicConfigValue:
    """A setting for some series of a panel."""
    return models.DynamicConfigValue(name, value)
