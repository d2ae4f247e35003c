"""Panels over time: lines, bars, bands, rows of stretches, heatmaps."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, dashboard, heatmap, statetimeline, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmaps
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tidegauge.dashboards.colours import NEUTRAL, Steps, named_colours
from tidegauge.dashboards.panels import COUNT, SHARE, Query, setting, told

__all__ = ["areas", "bars", "lines", "stretches", "turns_over_time", "with_band"]


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: Steps = (),
    least: float | None = 0,
) -> timeseries.Panel:
    """Values over time; the lines of ``steps`` are drawn behind them."""
    panel = told(
        timeseries.Panel(), title, description, *queries, unit=unit, steps=steps, least=least
    )
    panel = (
        panel.span(12)
        .height(8)
        .line_width(2)
        .fill_opacity(10 if len(queries) == 1 and "{{" not in queries[0].legend else 0)
        .show_points(shapes.VisibilityMode.AUTO)
        .color_scheme(_by_name())
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(True)
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
    for query in queries:
        for name, colour in named_colours(query.legend).items():
            fixed = {"mode": "fixed", "fixedColor": colour}
            panel = panel.override_by_name(name, [setting("color", fixed)])
    return panel


def with_band(panel: timeseries.Panel, *, low: str, high: str) -> timeseries.Panel:
    """Lines of which two bound a band: within it the others are certain to lie."""
    bound = [
        setting("custom.lineWidth", 0),
        setting("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    filled = [
        setting("custom.fillBelowTo", low),
        setting("custom.fillOpacity", 25),
    ]
    return panel.override_by_name(low, bound).override_by_name(high, [*bound, *filled])


def bars(title: str, description: str, *queries: Query, unit: str = COUNT) -> timeseries.Panel:
    """Events of each minute, or of more when more is shown, stacked."""
    return (
        lines(title, description, *queries, unit=unit)
        .draw_style(shapes.GraphDrawStyle.BARS)
        .fill_opacity(70)
        .line_width(1)
        .axis_soft_max(1)
        .interval("1m")
        .stacking(_stacked())
    )


def areas(title: str, description: str, *queries: Query, unit: str = COUNT) -> timeseries.Panel:
    """What several hold at a time, stacked: how much it is together, and how it is shared out."""
    panel = lines(title, description, *queries, unit=unit)
    return panel.fill_opacity(40).line_width(1).stacking(_stacked())


def stretches(title: str, description: str, query: Query) -> statetimeline.Panel:
    """When each series was there, a row for each."""
    panel = told(statetimeline.Panel(), title, description, query)
    return (
        panel.span(24)
        .height(8)
        .color_scheme(
            dashboard.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color(NEUTRAL)
        )
        .merge_values(True)
        .show_value(shapes.VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(False))
    )


def turns_over_time(title: str, description: str, expression: str) -> heatmap.Panel:
    """A histogram's buckets over time; the expression keeps the label ``le``."""
    query = Query(expression, "{{le}}").built(0).format(PromQueryFormat.HEATMAP)
    panel = told(heatmap.Panel(), title, description, unit=SHARE)
    return (
        panel.span(12)
        .height(10)
        .with_target(query)
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmaps.HeatmapColorMode.SCHEME)
            .scheme("Greens")
            .steps(32)
            .max(0.5)  # so that a band is as bright from day to day
        )
        .cell_values(heatmap.CellValues().unit(SHARE))
        .y_axis(heatmap.YAxisConfig().unit(COUNT).axis_label("turn"))
        .show_value(shapes.VisibilityMode.NEVER)
    )


def _stacked() -> common.StackingConfig:
    return common.StackingConfig().mode(shapes.StackingMode.NORMAL)


def _by_name() -> dashboard.FieldColor:
    """The same name has the same colour in every panel."""
    return dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
