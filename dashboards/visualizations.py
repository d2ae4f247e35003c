"""Kinds of panels: over time (lines, bars, bands, states, heatmaps) and of the current value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmaps
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import (
    COUNT,
    MISSING,
    NEUTRAL,
    SHARE,
    ColorSteps,
    Query,
    described,
    named_colours,
    setting,
    stairs,
)


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: ColorSteps = (),
    least: float | None = 0,
) -> timeseries.Panel:
    """Values over time, with the thresholds of ``steps`` as dashed lines."""
    panel = described(
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
    """Fill the band between two of the panel's lines."""
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
    """Events per minute, or per longer interval in a longer time range, stacked."""
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
    """Values over time, stacked: their sum and the part of each."""
    panel = lines(title, description, *queries, unit=unit)
    return panel.fill_opacity(40).line_width(1).stacking(_stacked())


def stretches(title: str, description: str, query: Query) -> statetimeline.Panel:
    """When each series was present, a row for each."""
    panel = described(statetimeline.Panel(), title, description, query)
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
    """The buckets of a histogram over time; the expression keeps the label ``le``."""
    query = Query(expression, "{{le}}").built(0).format(PromQueryFormat.HEATMAP)
    panel = described(heatmap.Panel(), title, description, unit=SHARE)
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
            .max(0.5)  # the same brightness from day to day
        )
        .cell_values(heatmap.CellValues().unit(SHARE))
        .y_axis(heatmap.YAxisConfig().unit(COUNT).axis_label("turn"))
        .show_value(shapes.VisibilityMode.NEVER)
    )


def _stacked() -> common.StackingConfig:
    return common.StackingConfig().mode(shapes.StackingMode.NORMAL)


def _by_name() -> dashboard.FieldColor:
    """The same name has the same color in every panel."""
    return dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)


def big_number(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = COUNT,
    steps: ColorSteps = (),
    now: bool = True,
) -> stat.Panel:
    """One number, with a background in the color of its value.

    Args:
        now: whether to show the current value; else the last value of the time range.
    """
    return (
        _numbers(title, description, query, unit=unit, steps=steps, instant=now)
        .span(4)
        .height(4)
        .color_mode(shapes.BigValueColorMode.BACKGROUND if steps else shapes.BigValueColorMode.NONE)
    )


def amounts(title: str, description: str, **amounts: tuple[str, str]) -> stat.Panel:
    """Several numbers side by side.

    Args:
        title: title of the panel.
        description: what the values mean.
        **amounts: expression and unit by name.
    """
    queries = [Query(expression, name) for name, (expression, _) in amounts.items()]
    panel = _numbers(title, description, *queries, instant=True).span(12).height(8)
    for name, (_, unit) in amounts.items():
        panel = panel.override_by_name(name, [setting("unit", unit)])
    return panel.color_mode(shapes.BigValueColorMode.NONE).text_mode(
        shapes.BigValueTextMode.VALUE_AND_NAME
    )


def ranking(
    title: str, description: str, query: Query, *, unit: str = SHARE, steps: ColorSteps = ()
) -> bargauge.Panel:
    """Current values as bars, in the order of the query."""
    panel = _bars_across(title, description, unit, steps).max_viz_height(44)
    return panel.name_placement(shapes.BarGaugeNamePlacement.TOP).with_target(
        query.built(0, instant=True)
    )


def by_number(title: str, description: str, expression: str, label: str) -> bargauge.Panel:
    """Current shares as bars, in the numeric order of a label."""
    query = Query(expression).built(0, instant=True).format(PromQueryFormat.TABLE)
    panel = _bars_across(title, description, SHARE, ()).max(1).with_target(query)
    panel = panel.reduce_options(common.ReduceDataOptions().values(True))
    for transformation, options in (
        ("convertFieldType", _converted(label, "number")),
        ("sortBy", {"sort": [{"field": label}]}),
        ("convertFieldType", _converted(label, "string")),  # a text names its row
    ):
        panel = panel.with_transformation(
            models.DataTransformerConfig(transformation, options=options)
        )
    return panel.override_by_name(label, [setting("unit", "none")])


def _bars_across(title: str, description: str, unit: str, steps: ColorSteps) -> bargauge.Panel:
    panel = described(bargauge.Panel(), title, description, unit=unit, steps=steps)
    return (
        panel.span(12)
        .height(8)
        .no_value("none")  # beside a bar there is no room for a sentence
        .sizing(shapes.BarGaugeSizing.MANUAL)
        .min_viz_height(16)
        .max_viz_height(36)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .value_mode(shapes.BarGaugeValueMode.TEXT if not steps else shapes.BarGaugeValueMode.COLOR)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


class Column(NamedTuple):
    """A column of a table of shares.

    Attributes:
        expression: PromQL with one value per row.
        steps: lowest value of each color.
    """

    expression: str
    steps: ColorSteps = ()


def grid(title: str, description: str, columns: Mapping[str, Column]) -> table.Panel:
    """Current shares, one row per agent and task group.

    Args:
        title: title of the panel.
        description: what the values mean.
        columns: columns by heading.
    """
    panel = described(table.Panel(), title, description, unit=SHARE).span(24).height(7).decimals(0)
    nothing = [setting("noValue", "–")]  # noqa: RUF001 -- a dash, for a cell
    panel = panel.override_by_field_type("number", nothing)
    for index, column in enumerate(columns.values()):
        query = Query(column.expression).built(index, instant=True).format(PromQueryFormat.TABLE)
        panel = panel.with_target(query)
    headings = {f"Value #{chr(ord('A') + index)}": name for index, name in enumerate(columns)}
    headings |= {"agent": "Agent", "task_group": "Task group"}
    for name, column in columns.items():
        if column.steps:
            steps = [{"value": value, "color": colour} for value, colour in stairs(column.steps)]
            look = [
                setting("thresholds", {"mode": "absolute", "steps": steps}),
                setting("custom.cellOptions", {"type": "color-text"}),
            ]
            panel = panel.override_by_name(name, look)
    return panel.with_transformation(
        models.DataTransformerConfig("merge", options={})
    ).with_transformation(
        models.DataTransformerConfig(
            "organize", options={"excludeByName": {"Time": True}, "renameByName": headings}
        )
    )


def _numbers(
    title: str,
    description: str,
    *queries: Query,
    unit: str = COUNT,
    steps: ColorSteps = (),
    instant: bool = False,
) -> stat.Panel:
    panel = described(
        stat.Panel(), title, description, *queries, unit=unit, steps=steps, instant=instant
    )
    missing = models.DashboardSpecialValueMapOptions(
        models.SpecialValueMatch.NULL_AND_NAN,
        models.ValueMappingResult(text="no\N{NO-BREAK SPACE}data", color=MISSING, index=0),
    )
    return (
        panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        # A missing value must not look healthy.
        .mappings([models.SpecialValueMap(missing)])
        .graph_mode(shapes.BigValueGraphMode.NONE if instant else shapes.BigValueGraphMode.AREA)
    )


def _converted(field: str, kind: str) -> dict[str, object]:
    return {"conversions": [{"targetField": field, "destinationType": kind}]}
