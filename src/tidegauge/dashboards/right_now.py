"""Panels of what is so now: large numbers, bars across, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, stat, table
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tidegauge.dashboards.colours import UNTOLD, Steps
from tidegauge.dashboards.panels import COUNT, SHARE, Query, setting, stairs, told

__all__ = ["Column", "amounts", "big_number", "by_number", "grid", "ranking"]


def big_number(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = COUNT,
    steps: Steps = (),
    now: bool = True,
) -> stat.Panel:
    """One number, whose background tells from afar whether it is well.

    Args:
        now: what holds now, to the second; else the last that was known in the chosen time.
    """
    return (
        _numbers(title, description, query, unit=unit, steps=steps, instant=now)
        .span(4)
        .height(4)
        .color_mode(shapes.BigValueColorMode.BACKGROUND if steps else shapes.BigValueColorMode.NONE)
    )


def amounts(title: str, description: str, **amounts: tuple[str, str]) -> stat.Panel:
    """Several numbers beside each other.

    Args:
        title: of the panel.
        description: what to make of them.
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
    title: str, description: str, query: Query, *, unit: str = SHARE, steps: Steps = ()
) -> bargauge.Panel:
    """What is so now, a bar each, in the order of the query."""
    panel = _bars_across(title, description, unit, steps).max_viz_height(44)
    return panel.name_placement(shapes.BarGaugeNamePlacement.TOP).with_target(
        query.built(0, instant=True)
    )


def by_number(title: str, description: str, expression: str, label: str) -> bargauge.Panel:
    """Shares as they are now, a bar each, in the order of the numbers that a label has."""
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


def _bars_across(title: str, description: str, unit: str, steps: Steps) -> bargauge.Panel:
    panel = told(bargauge.Panel(), title, description, unit=unit, steps=steps)
    return (
        panel.span(12)
        .height(8)
        .no_value("none")  # stands beside a bar, where a sentence has no room
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
        expression: PromQL of its values, one for each row.
        steps: from which value on a colour holds.
    """

    expression: str
    steps: Steps = ()


def grid(title: str, description: str, columns: Mapping[str, Column]) -> table.Panel:
    """Shares as they are now, a row for each agent and task group.

    Args:
        title: of the panel.
        description: what to make of it.
        columns: by heading.
    """
    panel = told(table.Panel(), title, description, unit=SHARE).span(24).height(7).decimals(0)
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
    steps: Steps = (),
    instant: bool = False,
) -> stat.Panel:
    panel = told(
        stat.Panel(), title, description, *queries, unit=unit, steps=steps, instant=instant
    )
    untold = models.DashboardSpecialValueMapOptions(
        models.SpecialValueMatch.NULL_AND_NAN,
        models.ValueMappingResult(text="no\N{NO-BREAK SPACE}data", color=UNTOLD, index=0),
    )
    return (
        panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        # What nobody tells is not well.
        .mappings([models.SpecialValueMap(untold)])
        .graph_mode(shapes.BigValueGraphMode.NONE if instant else shapes.BigValueGraphMode.AREA)
    )


def _converted(field: str, kind: str) -> dict[str, object]:
    return {"conversions": [{"targetField": field, "destinationType": kind}]}
