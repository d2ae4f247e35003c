"""Panels: one look for all dashboards, so that a colour means the same everywhere.

Green is well, orange wants a look, red wants somebody now; blue and purple are things that are
neither good nor bad. What has a name of its own keeps its colour from panel to panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmaps
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "BAD",
    "COUNT",
    "GOOD",
    "NEUTRAL",
    "OFTEN",
    "REPEATS",
    "SCORE",
    "SECONDS",
    "SHARE",
    "WATCH",
    "Panel",
    "Query",
    "Steps",
    "bars",
    "big_number",
    "grid",
    "lines",
    "places_over_time",
    "ranking",
    "turns_over_time",
]

Panel: TypeAlias = Builder[models.Panel]
Steps: TypeAlias = Sequence[tuple[float, str]]
"""From which value on a colour holds; below the first one it is :data:`GOOD`."""

GOOD: Final = "green"
WATCH: Final = "orange"
BAD: Final = "red"
NEUTRAL: Final = "blue"
_OTHER: Final = "purple"

SHARE: Final = units.PercentUnit
SECONDS: Final = units.Seconds
REPEATS: Final = ((1, WATCH), (3, BAD))
"""One repeat may be a retry; three are a loop."""

COUNT: Final = units.Short
SCORE: Final = "none"
OFTEN: Final = units.CountsPerSecond

DATA_SOURCE: Final = shapes.DataSourceRef(type_val="prometheus", uid="$datasource")

_COLOURS: Final[Mapping[str, str]] = {
    "running": NEUTRAL,
    "looping": BAD,
    "stale": WATCH,
    "success rate": GOOD,
    "AUV": GOOD,
    "least": "light-green",
    "most": "light-green",
    "exploration": NEUTRAL,
    "exploitation": _OTHER,
    "would_stop": NEUTRAL,
    "nudge": "yellow",
    "block": WATCH,
    "stop": BAD,
    "frontier": NEUTRAL,
    "pending": _OTHER,
    "progress": NEUTRAL,
    "tokens": _OTHER,
    "seconds": WATCH,
}
"""The colour of a series, by what its legend says."""


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
    def max(self, max_val: float) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...
    def thresholds(self, thresholds: Builder[models.ThresholdsConfig]) -> Self: ...
    def with_target(self, target: Builder[Dataquery]) -> Self: ...
    def override_by_name(self, name: str, properties: list[models.DynamicConfigValue]) -> Self: ...


P = TypeVar("P", bound=_AnyPanel)


def big_number(
    title: str, description: str, query: Query, *, unit: str = COUNT, steps: Steps = ()
) -> stat.Panel:
    """One number, whose background tells from afar whether it is well."""
    panel = _common(stat.Panel(), title, description, query, unit=unit, steps=steps)
    return (
        panel.span(4)
        .height(4)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(shapes.BigValueGraphMode.AREA)
        .color_mode(shapes.BigValueColorMode.BACKGROUND if steps else shapes.BigValueColorMode.NONE)
    )


def lines(
    title: str, description: str, *queries: Query, unit: str = COUNT, steps: Steps = ()
) -> timeseries.Panel:
    """Values over time; the lines of ``steps`` are drawn behind them."""
    panel = _common(timeseries.Panel(), title, description, *queries, unit=unit, steps=steps)
    panel = (
        panel.span(12)
        .height(8)
        .line_width(2)
        .fill_opacity(8)
        .show_points(shapes.VisibilityMode.AUTO)
        .color_scheme(_by_name())
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.TABLE)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(shapes.TooltipDisplayMode.MULTI)
            .sort(shapes.SortOrder.DESCENDING)
        )
    )
    if steps:
        style = common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(style)
    return panel


def bars(title: str, description: str, *queries: Query, unit: str = COUNT) -> timeseries.Panel:
    """Events of each minute, or of more when more is shown, stacked."""
    return (
        lines(title, description, *queries, unit=unit)
        .draw_style(shapes.GraphDrawStyle.BARS)
        .fill_opacity(70)
        .line_width(1)
        .interval("1m")
        .stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    )


def ranking(
    title: str, description: str, query: Query, *, unit: str = SHARE, steps: Steps = ()
) -> bargauge.Panel:
    """What is so now, a bar each, in the order of the query."""
    panel = _common(
        bargauge.Panel(), title, description, query, unit=unit, steps=steps, instant=True
    )
    return (
        panel.span(12)
        .height(8)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def grid(title: str, description: str, columns: Mapping[str, tuple[str, str]]) -> table.Panel:
    """What is so now, a row for each agent and task group.

    Args:
        title: of the panel.
        description: what to make of it.
        columns: expression and unit by heading.
    """
    panel = _common(table.Panel(), title, description).span(24).height(9)
    for index, (expression, _) in enumerate(columns.values()):
        query = Query(expression).built(index, instant=True).format(PromQueryFormat.TABLE)
        panel = panel.with_target(query)
    headings = {f"Value #{chr(ord('A') + index)}": name for index, name in enumerate(columns)}
    for name, (_, unit) in columns.items():
        panel = panel.override_by_name(name, [models.DynamicConfigValue("unit", unit)])
    return panel.with_transformation(
        models.DataTransformerConfig("merge", options={})
    ).with_transformation(
        models.DataTransformerConfig(
            "organize", options={"excludeByName": {"Time": True}, "renameByName": headings}
        )
    )


def places_over_time(title: str, description: str, expression: str) -> statetimeline.Panel:
    """One band, whose colour and text are the value of the label ``place``."""
    query = Query(expression).built(0).format(PromQueryFormat.TABLE)
    panel = _common(statetimeline.Panel(), title, description)
    return (
        panel.span(24)
        .height(5)
        .with_target(query)
        .color_scheme(_by_name())
        .merge_values(True)
        .show_value(shapes.VisibilityMode.AUTO)
        # The answer is a table with a row for each moment and place: its text column is the state.
        .with_transformation(
            models.DataTransformerConfig("sortBy", options={"sort": [{"field": "Time"}]})
        )
        .with_transformation(
            models.DataTransformerConfig(
                "filterFieldsByName", options={"include": {"names": ["Time", "place"]}}
            )
        )
    )


def turns_over_time(title: str, description: str, expression: str) -> heatmap.Panel:
    """A histogram's buckets over time; the expression keeps the label ``le``."""
    query = Query(expression, "{{le}}").built(0).format(PromQueryFormat.HEATMAP)
    panel = _common(heatmap.Panel(), title, description, unit=SHARE)
    return (
        panel.span(12)
        .height(9)
        .with_target(query)
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmaps.HeatmapColorMode.SCHEME)
            .scheme("Greens")
            .steps(32)
        )
        .cell_values(heatmap.CellValues().unit(SHARE))
        .y_axis(heatmap.YAxisConfig().unit(COUNT).axis_label("turn"))
        .show_value(shapes.VisibilityMode.NEVER)
    )


def _common(
    panel: P,
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = (),
    instant: bool = False,
) -> P:
    colours = [(None, GOOD if steps else NEUTRAL), *steps]
    panel = (
        panel.title(title)
        .description(description)
        .datasource(DATA_SOURCE)
        .unit(unit)
        .min(0)
        .no_value("none")
        .thresholds(
            dashboard.ThresholdsConfig()
            .mode(models.ThresholdsMode.ABSOLUTE)
            .steps([models.Threshold(value, colour) for value, colour in colours])
        )
    )
    for index, query in enumerate(queries):
        panel = panel.with_target(query.built(index, instant=instant))
    for name, colour in _COLOURS.items():
        if any(name in _names(query) for query in queries):
            panel = panel.override_by_name(name, [_fixed(colour)])
    return panel


def _names(query: Query) -> Sequence[str]:
    """What the query's series may be called: labels of known values are in the catalogue."""
    known = {
        "{{kind}}": ("exploration", "exploitation"),
        "{{action}}": ("would_stop", "nudge", "block", "stop"),
    }
    return known.get(query.legend, (query.legend,))


def _fixed(colour: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _by_name() -> dashboard.FieldColor:
    """The same name has the same colour in every panel."""
    return dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
